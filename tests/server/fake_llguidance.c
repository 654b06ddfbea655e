/* fake_llguidance.c - a library with llguidance's C interface, for tests: a matcher allows one text alone, the grammar's
 * own (of a JSON schema: {"a": 1}), and then an end. A grammar with "bad" in it is wrong. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Init { /* LlgTokenizerInitV2 */
    size_t struct_size;
    uint32_t vocab_size, tok_eos;
    const uint32_t *token_lens;
    const uint8_t *token_bytes;
    const char *tokenizer_json;
    bool assumes_string;
    void *tokenize;
    bool greedy;
    const void *user;
    const char *const *slices;
    const uint32_t *eos_extra;
    uint32_t eos_extra_count;
} Init;

typedef struct Tokenizer {
    uint32_t vocab, eos, *length;
    uint8_t *bytes;
} Tokenizer;

typedef struct Constraint { /* LlgConstraintInit */
    const Tokenizer *tokenizer;
    uint32_t log_buffer, log_stderr;
    bool ff_tokens, backtrack;
    uint64_t limits[7];
} Constraint;

typedef struct Matcher {
    const Tokenizer *t;
    char *text;
    size_t at;
    bool ended, wrong;
} Matcher;

void *llg_new_tokenizer_v2(const Init *init, char *error, size_t error_bytes);
void llg_free_tokenizer(Tokenizer *t);
void llg_constraint_init_set_defaults(Constraint *c, const Tokenizer *t);
void *llg_new_matcher(const Constraint *c, const char *type, const char *data);
void llg_free_matcher(Matcher *m);
const char *llg_matcher_get_error(Matcher *m);
size_t llg_matcher_get_mask_byte_size(const Matcher *m);
int32_t llg_matcher_compute_mask_into(Matcher *m, uint32_t *mask, size_t bytes);
int32_t llg_matcher_consume_tokens(Matcher *m, const uint32_t *tokens, size_t n);
bool llg_matcher_is_stopped(const Matcher *m);

void *llg_new_tokenizer_v2(const Init *init, char *error, size_t error_bytes)
{
    Tokenizer *t = calloc(1, sizeof *t);
    size_t all = 0;

    if (!t || init->struct_size != sizeof *init || !init->greedy) {
        snprintf(error, error_bytes, "a struct of %zu bytes", init->struct_size);
        free(t);
        return NULL;
    }
    for (uint32_t i = 0; i < init->vocab_size; i++)
        all += init->token_lens[i];
    t->vocab = init->vocab_size;
    t->eos = init->tok_eos;
    t->length = malloc(t->vocab * sizeof *t->length);
    t->bytes = malloc(all + 1);
    memcpy(t->length, init->token_lens, t->vocab * sizeof *t->length);
    memcpy(t->bytes, init->token_bytes, all);
    return t;
}

void llg_free_tokenizer(Tokenizer *t)
{
    free(t->length);
    free(t->bytes);
    free(t);
}

void llg_constraint_init_set_defaults(Constraint *c, const Tokenizer *t)
{
    *c = (Constraint){.tokenizer = t, .log_stderr = 1};
}

void *llg_new_matcher(const Constraint *c, const char *type, const char *data)
{
    Matcher *m = calloc(1, sizeof *m);

    m->t = c->tokenizer;
    m->wrong = strstr(data, "bad") != NULL || c->log_stderr;
    m->text = strdup(strcmp(type, "json") == 0 ? "{\"a\": 1}" : data);
    return m;
}

void llg_free_matcher(Matcher *m)
{
    free(m->text);
    free(m);
}

const char *llg_matcher_get_error(Matcher *m)
{
    return m->wrong ? "it is bad" : NULL;
}

size_t llg_matcher_get_mask_byte_size(const Matcher *m)
{
    return (m->t->vocab + 31) / 32 * 4;
}

/* Token i is the start of what is left. */
static bool fits(const Matcher *m, uint32_t i, size_t offset)
{
    const size_t n = m->t->length[i];

    return n && n <= strlen(m->text + m->at) && memcmp(m->text + m->at, m->t->bytes + offset, n) == 0;
}

int32_t llg_matcher_compute_mask_into(Matcher *m, uint32_t *mask, size_t bytes)
{
    size_t offset = 0;

    memset(mask, 0, bytes);
    m->wrong = m->text[m->at] == '?'; /* a grammar that fails in the middle of a text */
    if (m->wrong)
        return -1;
    for (uint32_t i = 0; i < m->t->vocab; offset += m->t->length[i++])
        if (m->text[m->at] ? fits(m, i, offset) : i == m->t->eos)
            mask[i / 32] |= 1u << i % 32;
    return 0;
}

int32_t llg_matcher_consume_tokens(Matcher *m, const uint32_t *tokens, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        size_t offset = 0;

        for (uint32_t i = 0; i < tokens[k]; i++)
            offset += m->t->length[i];
        if (m->text[m->at] && !fits(m, tokens[k], offset))
            return -1;
        m->ended = !m->text[m->at];
        m->at += m->ended ? 0 : m->t->length[tokens[k]];
    }
    return 0;
}

bool llg_matcher_is_stopped(const Matcher *m)
{
    return m->ended;
}
