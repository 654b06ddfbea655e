/* build.c - the tables of the tokenizer (Build), and the functions with which all readers fill them. */
#include <inttypes.h>
#include <string.h>

#include "parts.h"
#include "../../runtime/base/utf8.h"

/* --- fields of a JSON object --------------------------------------------------------------------- */

const char *build_type(const json_t *o)
{
    const char *type = json_string_value(json_object_get(o, "type"));

    return type ? type : "without a type";
}

bool build_flag(const json_t *o, const char *name, bool otherwise)
{
    const json_t *v = json_object_get(o, name);

    return json_is_boolean(v) ? json_is_true(v) : otherwise;
}

const char *build_text(const json_t *o, const char *name)
{
    return json_string_value(json_object_get(o, name));
}

void build_append(Build *b, const void *p, size_t bytes)
{
    if (b->bytes.n + bytes > b->bytes.cap) {
        const size_t cap = (b->bytes.n + bytes) * 2 + 1024;

        b->bytes.at = arena_grow(b->keep, b->bytes.at, b->bytes.n, cap);
        b->bytes.cap = cap;
    }
    if (bytes)
        memcpy(b->bytes.at + b->bytes.n, p, bytes);
    b->bytes.n += bytes;
}

int32_t build_id(const Build *b, const char *text)
{
    const json_t *v = json_object_get(b->vocab, text);

    return json_is_integer(v) ? (int32_t)json_integer_value(v) : -1;
}

/* --- bytes as characters: byte-level texts write each byte as one printable character ----------- */

/* Printable bytes are written as themselves, the others as U+0100, U+0101 ... in their order. */
static void make_byte_characters(Build *b)
{
    int next = 256;

    for (int i = 0; i < BYTE_CHARACTERS; i++)
        b->byte_of[i] = -1;
    for (int byte = 0; byte < 256; byte++) {
        const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;

        b->byte_of[printable ? byte : next++] = (int16_t)byte;
    }
}

void build_open(Build *b)
{
    make_byte_characters(b);
    b->facts.unknown = b->facts.unknown_piece = -1;
    for (int i = 0; i < 256; i++)
        b->facts.byte_id[i] = -1;
}

bool build_token_bytes(const Build *b, const char *text, char *out, size_t *n)
{
    const size_t all = strlen(text);

    *n = 0;
    for (size_t at = 0, length; at < all; at += length) {
        uint32_t code;

        if (utf8_next((const unsigned char *)text + at, all - at, &length, &code) != UTF8_CHARACTER ||
            code >= BYTE_CHARACTERS || b->byte_of[code] < 0) {
            memcpy(out, text, all);
            *n = all;
            return false;
        }
        out[(*n)++] = (char)b->byte_of[code];
    }
    return true;
}

const char *build_byte_text(const Build *b, const void *bytes, size_t n)
{
    char *out = arena_alloc(b->keep, 2 * n + 1);
    size_t to = 0;

    for (size_t i = 0; i < n; i++)
        for (uint32_t c = 0; c < BYTE_CHARACTERS; c++)
            if (b->byte_of[c] == ((const unsigned char *)bytes)[i])
                to += utf8_put(c, out + to);
    out[to] = '\0';
    return out;
}

bool build_byte_ids(Build *b)
{
    bool any = false;

    for (int i = 0; i < 256; i++) {
        b->facts.byte_id[i] = build_id(b, arena_printf(b->keep, "<0x%02X>", i));
        any |= b->facts.byte_id[i] >= 0;
    }
    return any;
}

/* --- base64 ------------------------------------------------------------------------------------- */

static int sextet(char c)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(alphabet, c) : NULL;

    return at ? (int)(at - alphabet) : -1;
}

unsigned char *build_base64(Arena *keep, const char *text, size_t *bytes)
{
    size_t n = strlen(text), to = 0;
    unsigned char *out = arena_alloc(keep, n / 4 * 3 + 3);

    if (n % 4)
        return NULL;
    while (n && text[n - 1] == '=')
        n--;
    for (size_t i = 0; i < n; i++) {
        const int v = sextet(text[i]);

        if (v < 0)
            return NULL;
        switch (i % 4) {
        case 0: out[to] = (unsigned char)(v << 2); break;
        case 1:
            out[to++] |= (unsigned char)(v >> 4);
            out[to] = (unsigned char)(v << 4);
            break;
        case 2:
            out[to++] |= (unsigned char)(v >> 2);
            out[to] = (unsigned char)(v << 6);
            break;
        default: out[to++] |= (unsigned char)v;
        }
    }
    *bytes = to;
    return out;
}

/* --- filling the tables ------------------------------------------------------------------------- */

bool build_token(Build *b, const char *text, json_int_t id, uint32_t flags)
{
    TokenText *t;

    if (id < 0 || id >= MAX_ID)
        return diag_error(b->d, b->loc, "token \"%.80s\" has the id %" JSON_INTEGER_FORMAT, text, id);
    while (b->texts.n <= (size_t)id)
        arena_push(b->keep, b->texts);
    t = &b->texts.at[id];
    if (t->text && strcmp(t->text, text) != 0)
        return diag_error(b->d, b->loc, "token \"%.80s\" has the id %" JSON_INTEGER_FORMAT " of another token", text,
                          id);
    if (!t->text)
        t->text = arena_strdup(b->keep, text);
    t->flags |= flags;
    return true;
}

void build_added(Build *b, const char *text, int32_t id, uint32_t flags)
{
    if (*text)
        *arena_push(b->keep, b->added_texts) =
            (AddedText){arena_strdup(b->keep, text), id, flags, (uint32_t)b->added_texts.n};
}

void build_piece(Build *b, const char *text, int32_t id, double score)
{
    const uint32_t n = (uint32_t)strlen(text);

    if (!n)
        return;
    *arena_push(b->keep, b->piece_texts) = (PieceText){arena_strdup(b->keep, text), n, (uint32_t)b->pieces.n};
    *arena_push(b->keep, b->pieces) = (TokPiece){score, id, n};
}

void build_frame(Build *b, int32_t id, uint32_t type, bool pair)
{
    const size_t at = pair ? b->frame.n : b->facts.n_single;

    arena_push(b->keep, b->frame);
    memmove(b->frame.at + at + 1, b->frame.at + at, (b->frame.n - 1 - at) * sizeof *b->frame.at);
    b->frame.at[at] = (TokFrame){id, type};
    if (pair)
        b->facts.n_pair++;
    else
        b->facts.n_single++;
}

void build_norm(Build *b, TokNormKind kind, uint32_t flags, const char *text, const char *with)
{
    const uint32_t n = (uint32_t)strlen(text), m = (uint32_t)strlen(with), at = (uint32_t)b->bytes.n;

    *arena_push(b->keep, b->norms) = (TokNorm){kind, flags, at, n, at + n, m};
    build_append(b, text, n);
    build_append(b, with, m);
}

/* --- hash tables ---------------------------------------------------------------------------------- */

size_t build_slots(size_t n)
{
    size_t slots = 8;

    while (slots < n * 2)
        slots *= 2;
    return slots;
}

void build_pairs(Build *b)
{
    b->n_pairs = build_slots(b->merges.n);
    b->pairs = arena_array(b->keep, uint32_t, b->n_pairs);
    for (size_t rank = 0; rank < b->merges.n; rank++) {
        const TokMerge *m = &b->merges.at[rank];
        size_t i = tok_pair_hash(m->left, m->right) & (b->n_pairs - 1);

        for (const TokMerge *o; b->pairs[i]; i = (i + 1) & (b->n_pairs - 1)) {
            o = &b->merges.at[b->pairs[i] - 1];
            if (o->left == m->left && o->right == m->right)
                break; /* of two equal pairs the later one counts, as in tokenizers */
        }
        b->pairs[i] = (uint32_t)rank + 1;
    }
}
