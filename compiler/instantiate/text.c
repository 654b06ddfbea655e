/* text.c - the CUDA text of an instance: its template with the constants filled in.
 *
 * Contract lines become empty lines, but for text lines of the instance's variant: NVRTC's line numbers are those of the
 * template, and a change of a contract that does not change the constants does not change the text. */
#include "parts.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Buffer {
    char *at;
    size_t n, cap;
} Buffer;

static void append(Arena *keep, Buffer *b, const char *text, size_t n)
{
    if (b->n + n + 1 > b->cap) {
        const size_t cap = (b->n + n + 1) * 2;

        b->at = arena_grow(keep, b->at, b->n, cap);
        b->cap = cap;
    }
    memcpy(b->at + b->n, text, n);
    b->n += n;
    b->at[b->n] = '\0';
}

static const char *type_name(DType t)
{
    switch (t) {
    case DT_FP32: return "float";
    case DT_FP16: return "half";
    case DT_BF16: return "bf16";
    case DT_I32: return "int";
    case DT_NONE:
    case DT_INT8:
    case DT_INT4:
    case DT_FP8: break;
    }
    return "void";
}

/* A float as a literal that reads back as the same float. */
static const char *float_text(double f, char out[48])
{
    if (!isfinite(f))
        die("a constant of a kernel is not finite");
    snprintf(out, 40, "%.9g", f);
    if (!strpbrk(out, ".e"))
        strcat(out, ".0");
    strcat(out, "f");
    return out;
}

static const char *const_text(const Const *c, char out[48])
{
    switch (c->kind) {
    case CONST_INT: snprintf(out, 48, "%lld", (long long)c->i); return out;
    case CONST_FLOAT: return float_text(c->f, out);
    case CONST_TYPE: return type_name((DType)c->i);
    }
    return "";
}

/* The length of `@WORD@` at p, with both signs; 0: p does not begin one. */
static size_t placeholder(const char *p)
{
    size_t n = 1;

    while (isupper((unsigned char)p[n]) || p[n] == '_' || (n > 1 && isdigit((unsigned char)p[n])))
        n++;
    return n > 1 && p[n] == '@' ? n + 1 : 0;
}

static const Const *find_const(const Const *at, size_t n_consts, const char *word, size_t n)
{
    for (size_t c = 0; c < n_consts; c++)
        if (strlen(at[c].name) == n && !memcmp(at[c].name, word, n))
            return &at[c];
    return NULL;
}

/* RING_AT = 0, SUMS_AT = 4096, SHARED = 8192 */
static void append_regions(const Instance *i, Arena *keep, Buffer *b)
{
    for (size_t k = 0; k < i->n_regions; k++) {
        const char *text =
            arena_printf(keep, "%s%s = %lld", k ? ", " : "", i->regions[k].name, (long long)i->regions[k].i);

        append(keep, b, text, strlen(text));
    }
}

static void append_word(const Instance *i, Arena *keep, Buffer *b, const char *word, size_t n)
{
    const Const *c = find_const(i->consts, i->n_consts, word, n);
    char text[48];

    if (!c)
        c = find_const(i->fixed, i->n_fixed, word, n);
    if (!c)
        c = find_const(i->regions, i->n_regions, word, n);
    if (!c && n == 7 && !memcmp(word, "REGIONS", 7)) {
        append_regions(i, keep, b);
        return;
    }
    if (c || (n == 4 && !memcmp(word, "NAME", 4))) {
        const char *value = c ? const_text(c, text) : i->entry;

        append(keep, b, value, strlen(value));
        return;
    }
    die("templates/%s uses @%.*s@, but its contract has no such constant", i->template_name, (int)n, word);
}

const char *text_body(const Instance *i, Arena *keep)
{
    const char *p = catalog_text(i->template_name);
    Buffer b = {0};

    if (!p)
        die("there is no template %s", i->template_name);
    append(keep, &b, "", 0);
    while (*p) {
        const char *end = strchr(p, '\n');
        const char *const stop = end ? end + 1 : p + strlen(p);

        if (strncmp(p, "//@", 3) == 0) {
            const char *own = catalog_text_line(p, i->variant);

            p = own ? own : stop;
            if (!own)
                append(keep, &b, "\n", 1);
        }
        while (p < stop) {
            const size_t word = *p == '@' ? placeholder(p) : 0;

            if (word)
                append_word(i, keep, &b, p + 1, word - 2);
            else
                append(keep, &b, p, 1);
            p += word ? word : 1;
        }
    }
    return b.at;
}

void text_architecture(Target t, char out[32])
{
    const uint32_t major = t.id / 100, minor = t.id / 10 % 10;

    if (target_is_ptx(t))
        snprintf(out, 32, "compute_%u%u", major, minor);
    else
        snprintf(out, 32, "sm_%u%u%s", major, minor, t.id % 10 == 1 ? "a" : "");
}

static const char *nvcc_line(const Instance *i, Target t, Arena *keep)
{
    char arch[32];

    text_architecture(t, arch);
    if (target_is_ptx(t))
        return arena_printf(keep, "nvcc -arch=%s -std=c++17 -I. -ptx %s.cu", arch, i->entry);
    return arena_printf(keep, "nvcc -gencode=arch=compute_%s,code=%s -std=c++17 -I. -cubin %s.cu", arch + 3, arch,
                        i->entry);
}

const char *instantiate_text(const Instance *i, Target t, Arena *keep)
{
    return arena_printf(keep, "// %s\n// made by ftxc from %s%s%s\n// %s\n#line 1 \"%s\"\n%s", i->entry,
                        i->template_name, i->note ? ", " : "", i->note ? i->note : "", nvcc_line(i, t, keep),
                        i->template_name, text_body(i, keep));
}
