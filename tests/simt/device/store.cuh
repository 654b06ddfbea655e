// store.cuh - stores of several words on the host: plain stores.
#pragma once
#include "device/types.cuh"

DEVICE void store_16(void *p, uint4_ v) { *(uint4_ *)p = v; }
DEVICE void store_8(void *p, uint2_ v) { *(uint2_ *)p = v; }
