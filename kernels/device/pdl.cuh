// pdl.cuh - programmatic dependent launch (sm_90): a kernel starts while the previous one still runs.
//
// A kernel calls launch_dependents() first. Before wait_for_previous() it may read what no earlier kernel writes:
// weights, and what the host wrote before the step. Each thread that reads or writes other memory calls the wait
// before it does. On older targets both do nothing: kernels run one after another.
#pragma once
#include "device/types.cuh"

// griddepcontrol.launch_dependents: the next kernel may start once all blocks of this one have called it or ended.
DEVICE void launch_dependents()
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// griddepcontrol.wait: returns when the previous kernel has ended and its writes are visible.
DEVICE void wait_for_previous()
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
