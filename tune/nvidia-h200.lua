-- Written by ftxc tune; docs/tuning.md explains it. What no longer applies is ignored.
return {
  gpu = "NVIDIA H200",
  made = "ftxc 0.1, driver for CUDA 13.0, NVRTC 13.0, 132 multiprocessors, memory at 3201 MHz, cuBLASLt 13.1.0",
  any_order = false,
  entries = {
    { kernel = "attend_prefill_hopper", hash = "5d0d1938182e7e5c", program = "step 128",
      shape = "X=bf16 HEADS=32 KV_HEADS=8 HEAD_DIM=64 PAGE=16 LENGTH=2304 BOX=16 ACROSS=1",
      use = { WARPGROUPS = 2, KEYS = 128, SLOTS = 8 }, us = 1025.656, untuned = 1040.456 },
    { kernel = "linear_batch_append", hash = "85f2cc6450215796", program = "step 128",
      shape = "X=bf16 W=bf16 Y=bf16 N=3072 K=2048 M=128 H=32 G=8 E=64 ROT=64 BLOCK=16 KV=bf16",
      use = { WARPGROUPS = 2, SPLIT_K = 2, TILE_N = 64 }, us = 1042.736, untuned = 1059.432 },
  },
}
