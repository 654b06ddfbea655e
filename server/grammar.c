/* grammar.c - llguidance: its functions by dlsym, a model's vocabulary, and a matcher for each text.
 *
 * A mask takes the library some 50 us, at times more than 1 ms. As soon as a text has a new token, a thread of the
 * vocabulary computes the mask for the token after it, so several texts' masks are made at once and beside the engine's
 * step, which begins at the same time. The engine asks for the mask while the step runs.
 *
 * Declarations follow parser/llguidance.h of llguidance 1.x. Its structs may grow at their ends: they are zeroed, and
 * LlgConstraintInit has room behind it. */
#include "grammar.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text.h"
#include "workers.h"
#include "../runner/command.h"
#include "../runtime/base/arena.h"

enum {
    MOST_GRAMMAR = 64 << 10, /* bytes */
    MOST_THREADS = 8,        /* for the masks of a model's texts */
};

typedef struct LlgTokenizerInit {
    size_t struct_size;
    uint32_t vocab_size, tok_eos;
    const uint32_t *token_lens;
    const uint8_t *token_bytes;
    const char *tokenizer_json;
    bool tokenize_assumes_string;
    void *tokenize_fn;
    bool use_approximate_greedy_tokenize_fn;
    const void *tokenize_user_data;
    const char *const *slices;
    const uint32_t *tok_eos_extra;
    uint32_t tok_eos_extra_count;
} LlgTokenizerInit; /* LlgTokenizerInitV2 */

typedef struct LlgConstraintInit {
    const void *tokenizer;
    uint32_t log_buffer_level, log_stderr_level;
    char rest[504]; /* two flags, limits, and what later versions add */
} LlgConstraintInit;

/* The library's functions that are used here. */
#define LLG_FUNCTIONS(X) \
    X(void *, new_tokenizer_v2, (const LlgTokenizerInit *init, char *error, size_t error_bytes)) \
    X(void, free_tokenizer, (void *tokenizer)) \
    X(void, constraint_init_set_defaults, (LlgConstraintInit * init, const void *tokenizer)) \
    X(void *, new_matcher, (const LlgConstraintInit *init, const char *type, const char *data)) \
    X(void, free_matcher, (void *matcher)) \
    X(const char *, matcher_get_error, (void *matcher)) \
    X(size_t, matcher_get_mask_byte_size, (const void *matcher)) \
    X(int32_t, matcher_compute_mask_into, (void *matcher, uint32_t *mask, size_t bytes)) \
    X(int32_t, matcher_consume_tokens, (void *matcher, const uint32_t *tokens, size_t n)) \
    X(bool, matcher_is_stopped, (const void *matcher))

struct GrammarLibrary {
    void *handle; /* open until the program ends */
#define X(result, name, arguments) result(*name) arguments;
    LLG_FUNCTIONS(X)
#undef X
};

struct Vocabulary {
    const GrammarLibrary *l;
    void *tokenizer;
    size_t mask_bytes;
    Workers *threads;
};

struct Matcher {
    const Vocabulary *v;
    void *matcher;
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool working; /* a thread computes the mask; what follows is its own until it is done */
    uint32_t id;  /* the token that it begins with */
    size_t consumed;
    bool made;       /* the mask of the token after those that are consumed: */
    bool goes_on;    /* the text does not end here */
    const char *why; /* of a library that has failed */
    uint32_t *bits;  /* [mask_bytes] */
};

const GrammarLibrary *grammar_load(const char *file, char *error, size_t error_bytes)
{
    static GrammarLibrary l;
    const char *missing = NULL;

    l.handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!l.handle) {
        snprintf(error, error_bytes, "--grammar-lib: %.250s", dlerror());
        return NULL;
    }
#define X(result, name, arguments) \
    *(void **)&l.name = dlsym(l.handle, "llg_" #name); \
    missing = l.name ? missing : "llg_" #name;
    LLG_FUNCTIONS(X)
#undef X
    if (!missing)
        return &l;
    snprintf(error, error_bytes, "--grammar-lib: %.150s has no function %s: llguidance 1.9 or newer is needed", file,
             missing);
    dlclose(l.handle);
    return NULL;
}

/* --- a vocabulary ------------------------------------------------------------------------------------------ */

/* The bytes of all tokens, one after another. Special tokens begin with 0xff, so that no text of a grammar is one. */
static void list_tokens(const Served *m, Text *all, uint32_t *lengths)
{
    for (int32_t id = 0; id < m->info.vocab; id++) {
        size_t n;
        bool special;
        const char *bytes = ftx_token_bytes(m->model, id, &n, &special);

        text_add(all, "\xff", special);
        text_add(all, bytes, n);
        lengths[id] = (uint32_t)(n + special);
    }
}

static Workers *open_threads(void)
{
    const long n = sysconf(_SC_NPROCESSORS_ONLN);

    return workers_open(n < 1 ? 1 : n < MOST_THREADS ? (int)n : MOST_THREADS);
}

Vocabulary *grammar_open(const GrammarLibrary *l, const Served *m, char *error, size_t error_bytes)
{
    const uint32_t n = (uint32_t)m->info.vocab;
    uint32_t *lengths = command_must(calloc(n, sizeof *lengths));
    Vocabulary *v = command_must(calloc(1, sizeof *v));
    char why[150] = "it has no end of text, or no tokenizer";
    Text bytes = {0};
    const bool done = m->info.end_ids_count && m->info.has_tokenizer;

    if (done)
        list_tokens(m, &bytes, lengths);
    v->l = l;
    v->threads = done ? open_threads() : NULL;
    v->mask_bytes = (n + 31) / 32 * sizeof(uint32_t);
    if (done)
        v->tokenizer =
            l->new_tokenizer_v2(&(LlgTokenizerInit){.struct_size = sizeof(LlgTokenizerInit),
                                                    .vocab_size = n,
                                                    .tok_eos = (uint32_t)m->info.end_ids[0],
                                                    .token_lens = lengths,
                                                    .token_bytes = (const uint8_t *)bytes.at,
                                                    .use_approximate_greedy_tokenize_fn = true,
                                                    .tok_eos_extra = (const uint32_t *)m->info.end_ids + 1,
                                                    .tok_eos_extra_count = (uint32_t)m->info.end_ids_count - 1},
                                why, sizeof why);
    free(lengths);
    text_free(&bytes);
    if (v->tokenizer && v->threads)
        return v;
    snprintf(error, error_bytes, "no grammars for %.100s: %.150s", m->name,
             done && !v->threads ? "no thread can be started" : why);
    grammar_close(v);
    return NULL;
}

void grammar_close(Vocabulary *v)
{
    if (!v)
        return;
    if (v->threads)
        workers_close(v->threads);
    if (v->tokenizer)
        v->l->free_tokenizer(v->tokenizer);
    free(v);
}

/* --- what a request asks for ----------------------------------------------------------------------------------- */

static bool set(Grammar *g, const char *field, const char *type, char *data, Fault *f)
{
    g->type = type;
    g->data = command_must(data);
    if (strlen(data) <= MOST_GRAMMAR)
        return true;
    return fault(f, field, "%s: more than %d bytes", field, MOST_GRAMMAR);
}

/* A JSON schema, as an object or as its text. */
static bool set_schema(Grammar *g, const char *field, const json_t *v, Fault *f)
{
    if (json_is_string(v))
        return set(g, field, "json", strdup(json_string_value(v)), f);
    if (!json_is_object(v) && !json_is_boolean(v))
        return fault(f, field, "%s: expected a JSON schema", field);
    return set(g, field, "json", json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY), f);
}

static bool set_text(Grammar *g, const char *field, const char *type, const json_t *v, Fault *f)
{
    if (!json_is_string(v))
        return fault(f, field, "%s: expected a string", field);
    return set(g, field, type, strdup(json_string_value(v)), f);
}

/* One of several texts: a regular expression in which all but letters and digits is escaped. */
static bool set_choice(Grammar *g, const char *field, const json_t *list, Fault *f)
{
    Text t = {0};
    const json_t *v;
    size_t i;

    json_array_foreach(list, i, v)
    {
        const char *s = json_string_value(v);

        text_put(&t, i ? "|" : "(");
        for (; s && *s; s++)
            text_printf(&t, strchr("\\.+*?()|[]{}^$#&-~/", *s) ? "\\%c" : "%c", *s);
        if (!s) {
            text_free(&t);
            return fault(f, field, "%s: expected a list of strings", field);
        }
    }
    if (!t.n)
        return fault(f, field, "%s: expected a list of strings", field);
    text_put(&t, ")");
    return set(g, field, "regex", t.at, f);
}

/* vLLM's fields: structured_outputs {json, regex, choice, grammar}, before that guided_json and so on. */
static bool read_vllm(const json_t *root, Grammar *g, Fault *f)
{
    const json_t *options = body_field(root, "structured_outputs");
    static const char *const kinds[] = {"json", "regex", "choice", "grammar", "json_object"};

    if (options && !json_is_object(options))
        return fault(f, "structured_outputs", "structured_outputs: expected an object");
    for (size_t i = 0; i < LEN(kinds); i++) {
        char field[40], older[40];
        const json_t *v = body_field(options, kinds[i]);

        snprintf(older, sizeof older, "guided_%s", kinds[i]);
        snprintf(field, sizeof field, v ? "structured_outputs.%s" : "guided_%s", kinds[i]);
        v = v ? v : body_field(root, older);
        if (!v || json_is_false(v))
            continue;
        if (g->type)
            return fault(f, field, "%s: there is another grammar in the request", field);
        if (!(i == 0   ? set_schema(g, field, v, f)
              : i == 1 ? set_text(g, field, "regex", v, f)
              : i == 2 ? set_choice(g, field, v, f)
              : i == 3 ? set_text(g, field, "lark", v, f)
                       : set(g, field, "json", strdup("{\"type\":\"object\"}"), f)))
            return false;
    }
    return true;
}

bool grammar_read(const json_t *root, Grammar *g, Fault *f)
{
    const json_t *format = body_field(root, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    const json_t *schema = json_object_get(json_object_get(format, "json_schema"), "schema");

    *g = (Grammar){0};
    if (!read_vllm(root, g, f))
        return false;
    if (!format || (type && strcmp(type, "text") == 0))
        return true;
    if (g->type)
        return fault(f, "response_format", "response_format: there is another grammar in the request");
    if (type && strcmp(type, "json_object") == 0)
        return set(g, "response_format", "json", strdup("{\"type\":\"object\"}"), f);
    if (type && strcmp(type, "json_schema") == 0)
        return set_schema(g, "response_format.json_schema.schema", schema, f);
    return fault(f, "response_format", "response_format.type: expected text, json_object or json_schema");
}

void grammar_free(Grammar *g)
{
    free(g->data);
    *g = (Grammar){0};
}

/* --- a text ------------------------------------------------------------------------------------------------- */

/* Takes the text's next n tokens; the mask of the one after them. */
static void make_mask(Matcher *m, const uint32_t *ids, size_t n)
{
    const GrammarLibrary *l = m->v->l;
    bool fails = n && l->matcher_consume_tokens(m->matcher, ids, n);

    m->consumed += n;
    m->made = true;
    m->goes_on = false;
    m->why = NULL;
    if (!fails && l->matcher_is_stopped(m->matcher))
        return;
    if (fails || l->matcher_compute_mask_into(m->matcher, m->bits, m->v->mask_bytes)) {
        m->why = l->matcher_get_error(m->matcher);
        m->why = m->why ? m->why : "no reason is given";
    }
    m->goes_on = !m->why;
}

Matcher *matcher_open(const Vocabulary *v, const Grammar *g, Fault *f)
{
    const GrammarLibrary *l = v->l;
    LlgConstraintInit init = {0};
    void *matcher;
    const char *why;

    l->constraint_init_set_defaults(&init, v->tokenizer);
    init.log_stderr_level = 0;
    matcher = l->new_matcher(&init, g->type, g->data);
    why = matcher ? l->matcher_get_error(matcher) : "out of memory";
    if (!why && l->matcher_get_mask_byte_size(matcher) != v->mask_bytes)
        why = "the library has another idea of the vocabulary's size";
    if (why) {
        fault(f, "response_format", "The grammar cannot be used: %.500s", why);
        l->free_matcher(matcher);
        return NULL;
    }

    Matcher *m = command_must(calloc(1, sizeof *m));

    *m = (Matcher){.v = v, .matcher = matcher, .bits = command_must(calloc(1, v->mask_bytes))};
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->done, NULL);
    make_mask(m, NULL, 0);
    return m;
}

/* Until no thread computes its mask. */
static void await_mask(Matcher *m)
{
    pthread_mutex_lock(&m->lock);
    while (m->working)
        pthread_cond_wait(&m->done, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

void matcher_close(Matcher *m)
{
    if (!m)
        return;
    await_mask(m);
    m->v->l->free_matcher(m->matcher);
    pthread_cond_destroy(&m->done);
    pthread_mutex_destroy(&m->lock);
    free(m->bits);
    free(m);
}

/* A task of the vocabulary's threads. */
static void work_ahead(void *matcher, void *unused)
{
    Matcher *m = matcher;

    (void)unused;
    make_mask(m, &m->id, 1);
    pthread_mutex_lock(&m->lock);
    m->working = false;
    pthread_cond_signal(&m->done);
    pthread_mutex_unlock(&m->lock);
}

void matcher_follow(Matcher *m, int32_t id, size_t count)
{
    await_mask(m);
    if (!m->made || !m->goes_on || m->consumed + 1 != count)
        return; /* matcher_mask does it all */
    m->id = (uint32_t)id;
    m->working = true;
    workers_add(m->v->threads, work_ahead, m, NULL);
}

bool matcher_mask(Matcher *m, const int32_t *ids, size_t count, uint32_t *bits, const char **why)
{
    await_mask(m);
    if (!m->made || m->consumed != count)
        make_mask(m, (const uint32_t *)ids + m->consumed, count - m->consumed);
    *why = m->why;
    if (m->goes_on)
        memcpy(bits, m->bits, m->v->mask_bytes);
    return m->goes_on;
}
