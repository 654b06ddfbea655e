/* kernel.h - what the harness knows of a kernel's entry. Read by C and by kernel texts. */
#ifndef FTX_SIMT_KERNEL_H
#define FTX_SIMT_KERNEL_H

typedef struct SimtKernel {
    const char *name;
    void (*call)(const void *args); /* one thread's run through it */
    unsigned args_bytes;
    unsigned cluster; /* blocks of a cluster; 1: none */
} SimtKernel;

#endif
