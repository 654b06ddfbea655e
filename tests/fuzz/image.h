/* image.h - an artifact in memory: fields changed one at a time, as seeds or as the choices of an input say. */
#ifndef TESTS_FUZZ_IMAGE_H
#define TESTS_FUZZ_IMAGE_H

#include "choices.h"

#include "tests/artifact/small.h"

typedef struct Image {
    unsigned char *at;
    size_t n;
} Image;

static inline FtxSection *image_sections(Image i)
{
    return (FtxSection *)(void *)(i.at + ((FtxHeader *)(void *)i.at)->sections_at);
}

enum { IMAGE_TABLE = 100, IMAGE_HEADER }; /* kinds that are no section */

/* The table of sections and the header stand behind the sections. */
static inline uint32_t image_kind(Image i, uint32_t at)
{
    const uint32_t n = ((const FtxHeader *)(void *)i.at)->sections;

    return at < n ? image_sections(i)[at].kind : at == n ? IMAGE_TABLE : IMAGE_HEADER;
}

static inline uint8_t image_find(Image i, uint32_t kind)
{
    uint8_t at = 0;

    while (image_kind(i, at) != kind)
        at++;
    return at;
}

/* An element of a section; 1: the section is bytes or text. */
static inline size_t image_element_bytes(uint32_t kind)
{
    switch (kind) {
    case IMAGE_TABLE: return sizeof(FtxSection);
    case IMAGE_HEADER: return sizeof(FtxHeader);
    case FTX_SEC_FACTS: return sizeof(FtxFacts);
    case FTX_SEC_WEIGHT_INDEX: return sizeof(FtxWeight);
    case FTX_SEC_PLAN: return sizeof(FtxPlan);
    case FTX_SEC_KERNELS: return sizeof(FtxKernel);
    case FTX_SEC_PROGRAMS: return sizeof(FtxProgram);
    case FTX_SEC_LAUNCHES: return sizeof(FtxLaunch);
    case FTX_SEC_OPERANDS: return sizeof(FtxOperand);
    case FTX_SEC_BUFFERS: return sizeof(FtxBuffer);
    case FTX_SEC_CACHES: return sizeof(FtxCache);
    case FTX_SEC_CONSTS:
    case FTX_SEC_EXPRS: return sizeof(int64_t);
    case FTX_SEC_BAD_WORDS: return sizeof(int32_t);
    default: return 1;
    }
}

/* One edit of `to`, a copy of `from`: section, element, field, value. Sections are those of `from`, so that an edit of
 * the table does not move the next one. Returns what was changed, as image_kind. */
static inline uint32_t image_edit(Image from, unsigned char *to, Choices *c)
{
    const FtxHeader *h = (const void *)from.at;
    const uint32_t k = choose(c, h->sections + 2), kind = image_kind(from, k);
    const uint64_t start = kind == IMAGE_HEADER  ? 0
                           : kind == IMAGE_TABLE ? h->sections_at
                                                 : image_sections(from)[k].offset;
    const size_t one = image_element_bytes(kind);
    const size_t n = kind == IMAGE_HEADER ? 1 : kind == IMAGE_TABLE ? h->sections : image_sections(from)[k].bytes / one;
    const size_t width = one < 4 ? 1 : one % 8 || choose(c, 2) == 0 ? 4 : 8;
    unsigned char *at = to + start + choose(c, n < UINT16_MAX ? (uint32_t)n : UINT16_MAX) * one;
    uint64_t value = 0;

    at += choose(c, (uint32_t)(one / width)) * width;
    if (!n)
        return kind;
    memcpy(&value, at, width);
    value = choose_value(c, value);
    memcpy(at, &value, width);
    return kind;
}

/* The file's bytes; the file is removed. */
static inline Image image_of(const char *path)
{
    FtxError err;
    FileMap map;
    Image i;

    if (file_map(path, &map, &err))
        fuzz_bug("%s", err.text);
    i.n = map.bytes;
    i.at = malloc(i.n);
    if (!i.at)
        fuzz_bug("no memory");
    memcpy(i.at, map.at, i.n);
    file_unmap(&map);
    unlink(path);
    return i;
}

/* Inputs of one edit, behind the byte `first`: each field of `width` bytes of a section's first element at the borders of
 * choose_value. at: the section's place in the table; the table itself and the header stand behind the last. */
static inline void image_edit_seeds(Image i, const char *name, uint8_t first, uint8_t at, uint8_t width)
{
    const uint8_t from = width == 4 ? 0 : CHOICES_BORDERS_32, to = width == 4 ? CHOICES_BORDERS_32 : CHOICES_BORDERS;

    for (uint8_t field = 0; field < image_element_bytes(image_kind(i, at)) / width; field++)
        for (uint8_t border = from; border < to; border++) {
            const uint8_t seed[] = {first, at, width == 8, 0, field, 7, border};
            char text[80];

            snprintf(text, sizeof text, "%s-section-%u-field-%u-of-%u-%u", name, at, field, width, border);
            fuzz_seed(text, seed, sizeof seed);
        }
}

#endif
