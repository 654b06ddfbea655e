/* extents.c - the rows of extents.def by name. */
#include "cpu.h"

static const CpuExtents cpu_extent_rows[] = {
#define EXTENTS(family, constants, condition, operands) {#family, constants, condition, operands},
#include "extents.def"
#undef EXTENTS
};

const CpuExtents *cpu_extents(const char *family)
{
    for (size_t i = 0; i < sizeof cpu_extent_rows / sizeof *cpu_extent_rows; i++)
        if (strcmp(cpu_extent_rows[i].family, family) == 0)
            return &cpu_extent_rows[i];
    return NULL;
}
