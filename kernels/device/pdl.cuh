// pdl.cuh - programmatic dependent launch: a kernel starts while the one before it still runs.
//
// Call launch_dependents() first. What does not depend on earlier kernels (weights) may be read
// before wait_for_previous(); everything else after it. Every thread that reads or writes what
// other kernels write calls the wait. Before sm_90 both are nothing: launches follow one another.
#pragma once
#include "device/types.cuh"

DEVICE void launch_dependents()
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
DEVICE void wait_for_previous()
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
