/* window.c - numbers and names of an artifact as text for people. */
#include "window.h"

#include <inttypes.h>
#include <string.h>

#include "../../runtime/base/dtype.h"

static char *next(void)
{
    static char ring[8][160];
    static unsigned turn;

    return ring[turn++ % 8];
}

const char *window_bytes(uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double n = (double)bytes / 1024;
    char *s = next();
    int u = 0;

    if (bytes < 1024) {
        snprintf(s, 160, "%" PRIu64 " B", bytes);
        return s;
    }
    for (; n >= 1023.95 && u < 3; u++)
        n /= 1024;
    snprintf(s, 160, "%.1f %s", n, units[u]);
    return s;
}

const char *window_count(uint64_t n)
{
    char digits[32], *s = next(), *to = s;
    const int len = snprintf(digits, sizeof digits, "%" PRIu64, n);

    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return s;
}

const char *window_plan(const Artifact *a, const FtxSection *s)
{
    uint32_t plan = 0;

    for (uint32_t i = 0; i < a->header->sections && s->kind >= FTX_SEC_PLAN && s->kind <= FTX_SEC_SOURCE; i++)
        if (a->sections[i].kind == FTX_SEC_PLAN) { /* a->plans are in this order */
            if (a->sections[i].target == s->target && a->sections[i].variant == s->variant)
                return artifact_string(a, a->plans[plan].head->name);
            plan++;
        }
    return "";
}

const char *window_program(const FtxProgram *p)
{
    const uint32_t most = p->most ? p->most : p->bucket;
    char *s = next();

    if (p->kind == FTX_PROG_DECODE && p->bucket)
        snprintf(s, 160, "decode, up to %u sequence%s", most, most == 1 ? "" : "s");
    else if ((p->kind == FTX_PROG_ENCODE || p->kind == FTX_PROG_HIDDEN) && p->bucket)
        snprintf(s, 160, "encode%s, up to %u tokens", p->kind == FTX_PROG_HIDDEN ? " hidden states" : "", most);
    else if (p->kind == FTX_PROG_ENCODE || p->kind == FTX_PROG_HIDDEN)
        snprintf(s, 160, "encode%s, any number of tokens", p->kind == FTX_PROG_HIDDEN ? " hidden states" : "");
    else if (p->bucket)
        snprintf(s, 160, "step, up to %u tokens", most);
    else
        snprintf(s, 160, "%s",
                 p->kind == FTX_PROG_DECODE ? "decode, any number of sequences" : "step, any number of tokens");
    return s;
}

const char *window_shape(const FtxWeight *w)
{
    char *s = next();
    int n = 0;

    for (uint32_t i = 0; i < w->rank; i++)
        n += snprintf(s + n, 160 - (size_t)n, "%c%" PRIu64, i ? ',' : '[', w->dim[i]);
    snprintf(s + n, 160 - (size_t)n, "]");
    return s;
}

const char *window_space(uint32_t space)
{
    static const char *const names[] = {"none", "weights", "state", "input", "workspace", "output", "pages"};

    return space < FTX_SPACE_COUNT ? names[space] : "unknown";
}

const char *window_weight_kind(uint32_t kind)
{
    static const char *const names[] = {"matrix", "gain", "bias", "table", "matrix"};

    return kind <= FTX_WEIGHT_CENTRED ? names[kind] : "unknown";
}

bool window_resources(const Artifact *a, const ArtifactPlan *p, const FtxKernel *k, Resources *r)
{
    *r = (Resources){0};
    return k->kind == FTX_KERNEL_CUDA && p->head->target % 10 != 2 &&
           cubin_resources((Bytes){(const char *)p->cubin + k->code_at, k->code_bytes}, artifact_string(a, k->entry),
                           r);
}

uint64_t window_live_peak(const ArtifactPlan *p, uint32_t program, uint32_t *launch)
{
    uint64_t peak = 0;

    *launch = 0;
    for (uint32_t at = 0; at < p->programs[program].n_launches; at++) {
        uint64_t live = 0;

        for (uint32_t i = 0; i < p->n_buffers; i++) {
            const FtxBuffer *b = &p->buffers[i];

            if (b->space == FTX_SPACE_WORK && b->program == program && b->first <= at && at <= b->last)
                live += b->bytes;
        }
        if (live > peak) {
            peak = live;
            *launch = at;
        }
    }
    return peak;
}
