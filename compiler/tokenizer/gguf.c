/* gguf.c - the tokenizer in the keys of a GGUF file.
 *
 *   tokenizer.ggml.model       llama: SentencePiece's BPE with scores; gpt2: BPE over bytes with merges
 *   tokenizer.ggml.tokens      [V] texts; scores [V], token_type [V] (SentencePiece's types), merges: "left right"
 *   tokenizer.ggml.pre         of gpt2: the name of its pattern and normaliser
 *   tokenizer.ggml.add_bos_token, add_eos_token, add_space_prefix, bos_token_id, eos_token_id
 *
 * Texts become the ids that the tokenizer.json of these models gives. Control tokens, and tokens of the user in brackets
 * (<|user|>), are found in a text as they are written, as added tokens. */
#include <string.h>

#include "parts.h"
#include "../gguf/gguf.h"

#define LETTERS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORDS(digits) ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" REST
#define CASED(ending, digits) \
    "[^\\r\\n\\p{L}\\p{N}]?" LETTERS "*" SMALL "+" ending "|[^\\r\\n\\p{L}\\p{N}]?" LETTERS "+" SMALL "*" ending \
    "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" REST

/* What tokenizer.ggml.pre names, as the tokenizer.json of its models has it. */
static const struct {
    const char *name;
    const char *pattern; /* NULL: GPT-2's */
    bool digits;         /* each digit alone, before the pattern */
    bool nfc, ignore_merges, bos;
} kinds[] = {
    {"gpt-2", NULL, false, false, false, false},
    {"gpt2", NULL, false, false, false, false},
    {"phi-2", NULL, false, false, false, false},
    {"starcoder", NULL, true, false, false, false},
    {"refact", NULL, true, false, false, false},
    {"smollm", NULL, true, false, false, false},
    {"command-r", NULL, true, true, false, false},
    {"llama3", WORDS("\\p{N}{1,3}"), false, false, true, true},
    {"llama-v3", WORDS("\\p{N}{1,3}"), false, false, true, true},
    {"llama-bpe", WORDS("\\p{N}{1,3}"), false, false, true, true},
    {"dbrx", WORDS("\\p{N}{1,3}"), false, false, false, false},
    {"smaug-bpe", WORDS("\\p{N}{1,3}"), false, false, false, false},
    {"qwen2", WORDS("\\p{N}"), false, true, false, false},
    {"deepseek-r1-qwen", WORDS("\\p{N}"), false, true, false, false},
    {"tekken", CASED("", "\\p{N}"), false, false, true, true},
    {"gpt-4o", CASED(ENDINGS "?", "\\p{N}{1,3}"), false, false, false, false},
};

typedef struct Keys {
    Build *b;
    const Gguf *g;
    const GgufKey *tokens, *types, *scores,
        *merges; /* types, scores: NULL if they are missing, else of as many elements */
} Keys;

static bool refuse(const Keys *k, const char *key, const char *why)
{
    return diag_error(k->b->d, k->b->loc, "key \"tokenizer.ggml.%s\" %s", key, why);
}

static bool read_arrays(Keys *k)
{
    Diag *d = k->b->d;

    if (!gguf_array(k->g, "tokenizer.ggml.tokens", true, &k->tokens, d) ||
        !gguf_array(k->g, "tokenizer.ggml.token_type", false, &k->types, d) ||
        !gguf_array(k->g, "tokenizer.ggml.scores", false, &k->scores, d) ||
        !gguf_array(k->g, "tokenizer.ggml.merges", true, &k->merges, d))
        return false;
    if (!k->tokens || !k->tokens->n || k->tokens->n >= MAX_ID)
        return refuse(k, "tokens", "is missing, or has no tokens or too many");
    if (k->types && (k->types->n != k->tokens->n || !gguf_is_integer(k->types)))
        return refuse(k, "token_type", "has not one whole number for each token");
    if (k->scores && k->scores->n != k->tokens->n)
        return refuse(k, "scores", "has not one number for each token");
    return true;
}

static int64_t type_of(const Keys *k, uint64_t i)
{
    return k->types ? gguf_integer(k->types, i) : SPM_NORMAL;
}

/* Whether a token is found in a text as it is written. */
static bool is_added(const Keys *k, uint64_t i)
{
    const GgufText *t = &k->tokens->texts[i];
    const int64_t type = type_of(k, i);

    if (type != SPM_USER_DEFINED || t->n < 2)
        return type == SPM_CONTROL;
    return (t->at[0] == '<' && t->at[t->n - 1] == '>') || (t->at[0] == '[' && t->at[t->n - 1] == ']');
}

static const char *text_of(const Keys *k, uint64_t i)
{
    return arena_strndup(k->b->keep, k->tokens->texts[i].at, k->tokens->texts[i].n);
}

static void add_added(const Keys *k)
{
    for (uint64_t i = 0; i < k->tokens->n; i++)
        if (is_added(k, i))
            build_added(k->b, text_of(k, i), (int32_t)i, 0);
}

/* --- llama: SentencePiece ------------------------------------------------------------------------ */

static bool read_pieces(const Keys *k)
{
    Build *b = k->b;
    SpmPiece *pieces = arena_array(b->keep, SpmPiece, k->tokens->n);
    bool dummy = true, squeeze = false;

    if (!k->scores)
        return refuse(k, "scores", "is missing; the model llama has scores");
    for (uint64_t i = 0; i < k->tokens->n; i++) {
        const int64_t type = type_of(k, i);

        pieces[i] = (SpmPiece){text_of(k, i), (float)gguf_number(k->scores, i),
                               is_added(k, i) ? SPM_CONTROL : (uint32_t)type, (int32_t)i};
        if (!*pieces[i].text || type < SPM_NORMAL || type > SPM_BYTE || pieces[i].score != pieces[i].score)
            return diag_error(b->d, b->loc, "token %u has no text, no score or a type that is not 1 to 6", (unsigned)i);
    }
    if (!gguf_flag(k->g, "tokenizer.ggml.add_space_prefix", &dummy, b->d) ||
        !gguf_flag(k->g, "tokenizer.ggml.remove_extra_whitespaces", &squeeze, b->d) ||
        !build_sentencepiece(b, pieces, k->tokens->n, dummy, squeeze))
        return false;
    for (uint64_t i = 0; i < k->tokens->n; i++) /* a token of the user in brackets is not hidden in the output */
        if (type_of(k, i) == SPM_USER_DEFINED && is_added(k, i))
            b->texts.at[i].flags &= ~(uint32_t)TOK_SPECIAL;
    return true;
}

/* --- gpt2: BPE over bytes ------------------------------------------------------------------------- */

/* The pattern, as a pre_tokenizer of tokenizer.json. */
static json_t *pre_tokenizer(size_t kind)
{
    json_t *steps = json_array();

    if (kinds[kind].digits)
        json_array_append_new(steps, json_pack("{ss,sb}", "type", "Digits", "individual_digits", 1));
    if (kinds[kind].pattern)
        json_array_append_new(steps, json_pack("{ss,s{ss},ss}", "type", "Split", "pattern", "Regex",
                                               kinds[kind].pattern, "behavior", "Isolated"));
    json_array_append_new(
        steps, json_pack("{ss,sb,sb}", "type", "ByteLevel", "add_prefix_space", 0, "use_regex", !kinds[kind].pattern));
    return json_pack("{ss,so}", "type", "Sequence", "pretokenizers", steps);
}

/* Vocabulary and merges, as a model of tokenizer.json. Added tokens stay outside. */
static json_t *model_of(const Keys *k, size_t kind)
{
    json_t *vocab = json_object(), *merges = json_array();

    for (uint64_t i = 0; i < k->tokens->n; i++)
        if (!is_added(k, i))
            json_object_set_new(vocab, text_of(k, i), json_integer((json_int_t)i));
    for (uint64_t i = 0; i < k->merges->n; i++)
        json_array_append_new(merges, json_stringn(k->merges->texts[i].at, k->merges->texts[i].n));
    return json_pack("{ss,so,so,sb}", "type", "BPE", "vocab", vocab, "merges", merges, "ignore_merges",
                     kinds[kind].ignore_merges);
}

/* *kind: the entry of `kinds`. */
static bool find_kind(const Keys *k, size_t *kind)
{
    const char *pre = NULL, *known = "";

    if (!gguf_text(k->g, "tokenizer.ggml.pre", k->b->keep, &pre, k->b->d))
        return false;
    for (size_t i = 0; i < LEN(kinds); i++) {
        known = arena_printf(k->b->keep, "%s%s%s", known, i ? ", " : "", kinds[i].name);
        if (pre && strcmp(pre, kinds[i].name) == 0) {
            *kind = i;
            return true;
        }
    }
    return diag_error(
        k->b->d, k->b->loc,
        "key \"tokenizer.ggml.pre\" is %s%.80s%s, it must name the pattern that splits texts: %s; or give the "
        "model's tokenizer: -D tokenizer=DIR/tokenizer.json",
        pre ? "\"" : "", pre ? pre : "missing", pre ? "\"" : "", known);
}

static bool read_bytes_model(const Keys *k, size_t kind)
{
    Build *b = k->b;
    json_t *root;
    bool ok;

    if (!k->merges)
        return refuse(k, "merges", "is missing; the model gpt2 has merges");
    root = json_pack("{so?,so,s{ss},so}", "normalizer", kinds[kind].nfc ? json_pack("{ss}", "type", "NFC") : NULL,
                     "pre_tokenizer", pre_tokenizer(kind), "decoder", "type", "ByteLevel", "model", model_of(k, kind));
    ok = read_normalizer(b, json_object_get(root, "normalizer")) &&
         read_pre_tokenizer(b, json_object_get(root, "pre_tokenizer")) &&
         read_decoder(b, json_object_get(root, "decoder")) && read_model(b, json_object_get(root, "model"));
    json_decref(root);
    for (uint64_t i = 0; ok && i < k->tokens->n; i++)
        if (is_added(k, i))
            ok = build_token(b, text_of(k, i), (json_int_t)i, type_of(k, i) == SPM_CONTROL ? TOK_SPECIAL : 0);
    return ok;
}

/* --- the tokens around a text ---------------------------------------------------------------------- */

/* The id of a key if `add` asks for it, or -1. */
static bool find_mark(const Keys *k, const char *add, const char *key, bool otherwise, int32_t *id)
{
    Arena *keep = k->b->keep;
    bool asked = otherwise;

    *id = -1;
    if (!gguf_flag(k->g, arena_printf(keep, "tokenizer.ggml.%s", add), &asked, k->b->d) ||
        !gguf_id(k->g, arena_printf(keep, "tokenizer.ggml.%s", key), id, k->b->d))
        return false;
    if (asked && (*id < 0 || (uint64_t)*id >= k->tokens->n))
        return refuse(k, key, "is no token, but one is put at each text");
    if (!asked)
        *id = -1;
    return true;
}

static bool add_frame(const Keys *k, bool begins)
{
    Build *b = k->b;
    int32_t first, last;

    if (!find_mark(k, "add_bos_token", "bos_token_id", begins, &first) ||
        !find_mark(k, "add_eos_token", "eos_token_id", false, &last))
        return false;
    b->framed = true;
    for (int pair = 0; pair < 2; pair++) {
        if (first >= 0)
            build_frame(b, first, 0, pair);
        build_frame(b, TOK_TEXT, 0, pair);
        if (pair)
            build_frame(b, TOK_OTHER_TEXT, 0, true);
        if (last >= 0)
            build_frame(b, last, 0, pair);
    }
    return true;
}

bool read_gguf(Build *b, const void *p, size_t n)
{
    Gguf g = {0};
    Keys k = {.b = b, .g = &g};
    const char *model = "missing";
    bool begins = true;
    size_t kind = 0;

    if (!gguf_read(b->loc.file, p, n, b->keep, &g, b->d) ||
        !gguf_text(&g, "tokenizer.ggml.model", b->keep, &model, b->d))
        return false;
    if (strcmp(model, "llama") != 0 && strcmp(model, "gpt2") != 0)
        return diag_error(
            b->d, b->loc,
            "key \"tokenizer.ggml.model\" is %.80s; llama and gpt2 are read. Or give the model's tokenizer: -D "
            "tokenizer=DIR/tokenizer.json",
            model);
    if (!read_arrays(&k))
        return false;
    if (strcmp(model, "llama") == 0) {
        if (!read_pieces(&k))
            return false;
    } else {
        if (!find_kind(&k, &kind) || !read_bytes_model(&k, kind))
            return false;
        begins = kinds[kind].bos;
    }
    add_added(&k);
    return add_frame(&k, begins);
}
