/* image.h - an artifact in memory as a seed, each size field in turn at what no file has. */
#ifndef TESTS_FUZZ_IMAGE_H
#define TESTS_FUZZ_IMAGE_H

#include "fuzz.h"

#include "tests/artifact/small.h"

typedef struct Image {
    unsigned char *at;
    size_t n;
} Image;

static inline FtxSection *image_sections(Image i)
{
    return (FtxSection *)(void *)(i.at + ((FtxHeader *)(void *)i.at)->sections_at);
}

static inline void *image_section_bytes(Image i, uint32_t kind)
{
    FtxSection *s = image_sections(i);

    while (s->kind != kind)
        s++;
    return i.at + s->offset;
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

/* Each field in turn gets each of these. */
static const uint64_t image_sizes[] = {
    0, 1, 63, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX, UINT64_C(1) << 63, UINT64_MAX - 63};

static inline void image_u64(Image i, const char *name, uint64_t *field)
{
    const uint64_t was = *field;

    for (size_t k = 0; k < LEN(image_sizes); k++) {
        char text[60];

        *field = image_sizes[k];
        snprintf(text, sizeof text, "%s-%zu", name, k);
        fuzz_seed(text, i.at, i.n);
    }
    *field = was;
}

static inline void image_u32(Image i, const char *name, uint32_t *field)
{
    const uint32_t was = *field;

    for (size_t k = 0; k < 5; k++) {
        char text[60];

        *field = (uint32_t)image_sizes[k];
        snprintf(text, sizeof text, "%s-%zu", name, k);
        fuzz_seed(text, i.at, i.n);
    }
    *field = was;
}

#endif
