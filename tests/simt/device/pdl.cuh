// pdl.cuh - programmatic dependent launch on the host: until its wait a thread of an overlapping
// launch may touch nothing that an earlier launch of the program wrote, back to the last one that let
// no other start before its own wait.
#pragma once
#include "device/types.cuh"

DEVICE void launch_dependents() { simt_launch_dependents(); }
DEVICE void wait_for_previous() { simt_wait_for_previous(); }
