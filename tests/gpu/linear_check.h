// linear_check.h - the facts of an instance that linear_check.py writes beside its text.
#pragma once
struct Instance {
    const char *family;
    const void *kernel;
    int x, y, kv; // DType: 1 fp32, 2 fp16, 3 bf16
    int n, k, m, norm, bias, act, glu, res, append, H, G, E, ROT, last;
    int grid, grid_y, block, smem;
    int tile_x, tile_w;      // rows of the tiles of a TMA descriptor; 0: the kernel takes the address
    int cluster;             // blocks of a cluster
    int live;                // rows of a timed step
    int bits, group, scales; // of quantised weights (runtime/base/packed.h); 0 bits: w has the type of x
    const char *seq;         // timed sequence, or ""
    const char *note;
    int id;
};
