/* fake_modules.c - code images of the fake driver, and the kernels in them. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_parts.h"

enum { MAX_FUNCTIONS = 64 };
struct CUmod_st {
    const void *elf; /* NULL: the text form */
    unsigned n_functions;
    struct CUfunc_st function[MAX_FUNCTIONS];
};

static uint64_t word(const void *p, size_t at, size_t bytes)
{
    uint64_t v = 0;

    memcpy(&v, (const char *)p + at, bytes);
    return v;
}

/* Pointers that an entry of a cubin takes: the size of its parameter 0, from the records KPARAM_INFO
 * of section .nv.info.ENTRY. 0: no such entry. */
static unsigned elf_params(const void *elf, const char *name)
{
    enum { KPARAM_INFO = 0x17 };
    const char *file = elf, *table = file + word(file, 40, 8);
    const char *names = file + word(table + 64 * word(file, 62, 2), 24, 8);

    for (uint64_t i = 0; i < word(file, 60, 2); i++) {
        const char *s = table + 64 * i, *section = names + word(s, 0, 4), *p = file + word(s, 24, 8);

        if (strncmp(section, ".nv.info.", 9) != 0 || strcmp(section + 9, name) != 0)
            continue;
        for (uint64_t at = 0; at + 4 <= word(s, 32, 8); at += 4 + (p[at] == 4 ? word(p, at + 2, 2) : 0))
            if (p[at] == 4 && p[at + 1] == KPARAM_INFO) /* {u32, ordinal u16, offset u16, flags and size << 18} */
                return (unsigned)(word(p, at + 12, 4) >> 18) / sizeof(CUdeviceptr);
    }
    return 0;
}

static CUresult fake_ModuleLoadDataEx(CUmodule *m, const void *image, unsigned n, CUjit_option *o, void **values)
{
    (void)o;
    fake_need_context();
    MAY_FAIL;
    *m = calloc(1, sizeof **m);
    if (memcmp(image, "\177ELF", 4) == 0) {
        (*m)->elf = image;
    } else if (sscanf(image, "%127s %u", (*m)->function[0].name, &(*m)->function[0].n_params) == 2) {
        (*m)->n_functions = 1;
    } else {
        free(*m);
        if (n)
            strcpy(values[0], "no such code");
        return CUDA_ERROR_UNKNOWN;
    }
    fake_keep(*m, free, &fake.modules);
    return CUDA_SUCCESS;
}

static CUresult fake_ModuleUnload(CUmodule m)
{
    fake_drop(m);
    return RESULT;
}

static CUresult fake_ModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
    MAY_FAIL;
    for (unsigned i = 0; i < m->n_functions; i++)
        if (strcmp(m->function[i].name, name) == 0) {
            *f = &m->function[i];
            return CUDA_SUCCESS;
        }
    if (!m->elf || !elf_params(m->elf, name) || m->n_functions == MAX_FUNCTIONS)
        return CUDA_ERROR_UNKNOWN;
    *f = &m->function[m->n_functions++];
    snprintf((*f)->name, sizeof(*f)->name, "%s", name);
    (*f)->n_params = elf_params(m->elf, name);
    return CUDA_SUCCESS;
}

static CUresult fake_FuncLoad(CUfunction f)
{
    (void)f;
    MAY_FAIL;
    return CUDA_SUCCESS;
}

static CUresult fake_FuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f)
{
    (void)a, (void)f;
    MAY_FAIL;
    *v = 1024;
    return CUDA_SUCCESS;
}

static CUresult fake_FuncSetAttribute(CUfunction f, CUfunction_attribute a, int v)
{
    (void)f;
    MAY_FAIL;
    return a == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && v > 232448 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult fake_FuncGetParamInfo(CUfunction f, size_t i, size_t *at, size_t *bytes)
{
    MAY_FAIL;
    if (i > 0)
        return CUDA_ERROR_UNKNOWN;
    *at = 0;
    *bytes = f->n_params * sizeof(CUdeviceptr);
    return CUDA_SUCCESS;
}

void fake_add_modules(CudaDriver *t)
{
    t->cuModuleLoadDataEx = fake_ModuleLoadDataEx;
    t->cuModuleUnload = fake_ModuleUnload;
    t->cuModuleGetFunction = fake_ModuleGetFunction;
    t->cuFuncLoad = fake_FuncLoad;
    t->cuFuncGetAttribute = fake_FuncGetAttribute;
    t->cuFuncSetAttribute = fake_FuncSetAttribute;
    t->cuFuncGetParamInfo = fake_FuncGetParamInfo;
}
