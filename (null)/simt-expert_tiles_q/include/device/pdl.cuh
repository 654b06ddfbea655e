// pdl.cuh - programmatic dependent launch on the host: until its wait, a thread of an overlapping launch may not touch
// what an earlier launch of the program writes, back to the last launch that started its dependents only after its wait.
#pragma once
#include "device/types.cuh"

DEVICE void launch_dependents() { simt_launch_dependents(); }
DEVICE void wait_for_previous() { simt_wait_for_previous(); }
