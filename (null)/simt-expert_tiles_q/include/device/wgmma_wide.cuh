// wgmma_wide.cuh - on the host Wgmma has every number of columns.
#pragma once
#include "device/wgmma.cuh"
