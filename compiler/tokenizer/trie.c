/* trie.c - pieces to a trie in a double array: the children of a node are at its base plus their bytes, and the
 * children of different nodes interleave, so that few slots stay free. Aoe 1989.
 *
 *   sorted   a  ab  b      root: base 1     slot 98 'a'   slot 99 'b'
 *                          98:   base 5     slot 103 'b' of "ab"
 *
 * Free slots form a list. For a node the first TRIES of them are tried; if none fits, it goes to the end. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"

enum { TRIES = 200, NO_PARENT = -1 };

typedef struct Range { /* the pieces that pass through a node */
    uint32_t node;
    size_t lo, hi, depth;
} Range;

typedef struct Slots {
    Build *b;
    struct {
        uint32_t *at;
        size_t n, cap;
    } next, prev; /* doubly linked list of the free slots; slot 0 is its head */
} Slots;

static int by_bytes(const void *a, const void *b)
{
    const PieceText *x = a, *y = b;
    const int order = memcmp(x->text, y->text, x->bytes < y->bytes ? x->bytes : y->bytes);

    if (order || x->bytes != y->bytes)
        return order ? order : x->bytes < y->bytes ? -1 : 1;
    return x->piece < y->piece ? -1 : x->piece > y->piece;
}

static void grow(Slots *s, size_t n)
{
    Arena *keep = s->b->keep;

    while (s->b->trie.n < n) {
        const uint32_t at = (uint32_t)s->b->trie.n, last = at ? s->prev.at[0] : 0;

        *arena_push(keep, s->b->trie) = (TokNode){UINT32_MAX, (uint32_t)NO_PARENT, 0};
        *arena_push(keep, s->next) = 0;
        *arena_push(keep, s->prev) = last;
        if (at)
            s->next.at[last] = s->prev.at[0] = at;
    }
}

static void take(Slots *s, uint32_t slot, uint32_t parent)
{
    s->next.at[s->prev.at[slot]] = s->next.at[slot];
    s->prev.at[s->next.at[slot]] = s->prev.at[slot];
    s->b->trie.at[slot].parent = parent;
}

static bool fits(Slots *s, size_t base, const unsigned char *bytes, size_t n)
{
    grow(s, base + 256);
    for (size_t i = 0; i < n; i++)
        if (s->b->trie.at[base + bytes[i]].parent != (uint32_t)NO_PARENT || base + bytes[i] == 0)
            return false;
    return true;
}

static size_t find_base(Slots *s, const unsigned char *bytes, size_t n)
{
    uint32_t slot = s->next.at[0];

    for (int i = 0; i < TRIES && slot; i++, slot = s->next.at[slot])
        if (slot >= bytes[0] && fits(s, slot - bytes[0], bytes, n))
            return slot - bytes[0];
    return s->b->trie.n;
}

/* The bytes that follow in pieces [lo, hi), and where each begins. */
static size_t next_bytes(const Build *b, const Range *r, unsigned char *bytes, size_t *starts)
{
    size_t n = 0;

    for (size_t i = r->lo; i < r->hi; i++) {
        const unsigned char c = (unsigned char)b->piece_texts.at[i].text[r->depth];

        if (n == 0 || bytes[n - 1] != c) {
            bytes[n] = c;
            starts[n++] = i;
        }
    }
    starts[n] = r->hi;
    return n;
}

void build_trie(Build *b)
{
    struct {
        Range *at;
        size_t n, cap;
    } todo = {0};
    Slots s = {.b = b};

    assert(b->trie.n == 0);
    if (b->piece_texts.n)
        qsort(b->piece_texts.at, b->piece_texts.n, sizeof *b->piece_texts.at, by_bytes);
    grow(&s, 257);
    *arena_push(b->keep, todo) = (Range){0, 0, b->piece_texts.n, 0};
    while (todo.n) {
        Range r = todo.at[--todo.n];
        unsigned char bytes[256];
        size_t starts[257], n, base;

        for (; r.lo < r.hi && b->piece_texts.at[r.lo].bytes == r.depth; r.lo++)
            b->trie.at[r.node].piece = b->piece_texts.at[r.lo].piece + 1; /* of equal pieces the last one counts */
        n = next_bytes(b, &r, bytes, starts);
        if (!n)
            continue;
        base = find_base(&s, bytes, n);
        grow(&s, base + 256);
        b->trie.at[r.node].base = (uint32_t)base;
        for (size_t i = 0; i < n; i++) {
            const uint32_t child = (uint32_t)base + bytes[i];

            take(&s, child, r.node);
            *arena_push(b->keep, todo) = (Range){child, starts[i], starts[i + 1], r.depth + 1};
        }
    }
}

uint32_t trie_find(const Build *b, const char *text)
{
    uint32_t node = 0;

    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        const uint64_t at = (uint64_t)b->trie.at[node].base + *p;

        if (at >= b->trie.n || !at || b->trie.at[at].parent != node)
            return 0;
        node = (uint32_t)at;
    }
    return node;
}
