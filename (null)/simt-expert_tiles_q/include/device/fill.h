/* fill.h - a quantised weight that the kernel random_codes draws; read by C and by CUDA. runtime/base/packed.h has the
 * layout of its tiles, runtime/device/random.h the values. */
#ifndef FTX_FILL_H
#define FTX_FILL_H

typedef struct FtxCodesFill {
    unsigned long long offset;     /* bytes from the block's start, 256-byte aligned */
    unsigned tiles, codes, groups; /* bytes of a tile's codes; scales of a tile */
    unsigned scales, zero;         /* a PackedScales; the zero of symmetric weights */
    unsigned key;
    float scale;
} FtxCodesFill;

#endif
