/* model.c - "model" of tokenizer.json: BPE over bytes or characters, WordPiece, Unigram. */
#include <inttypes.h>
#include <string.h>

#include "parts.h"
#include "../../runtime/base/hash.h"

enum { WORD_CHARACTERS = 100 /* the limit of tokenizers */, UNKNOWN_PENALTY = 10 };

/* --- BPE ---------------------------------------------------------------------------------------- */

static void read_bytes(Build *b)
{
    for (int c = 0; c < BYTE_CHARACTERS; c++)
        if (b->byte_of[c] >= 0) {
            const char one[] = {(char)c, 0}, two[] = {(char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f)), 0};

            b->facts.byte_id[b->byte_of[c]] = build_id(b, c < 0x80 ? one : two);
        }
}

/* The hash table of tokens that a whole word may be (ignore_merges). Their texts consist of byte characters. */
static void hash_words(Build *b)
{
    const char *text;
    json_t *id;

    b->n_words = build_slots(json_object_size(b->vocab));
    b->words = arena_array(b->keep, uint32_t, b->n_words);
    json_object_foreach(b->vocab, text, id)
    {
        char *bytes = arena_alloc(b->keep, strlen(text) + 1);
        size_t n, i;

        if (!build_token_bytes(b, text, bytes, &n) || !n)
            continue;
        for (i = hash64(bytes, n) & (b->n_words - 1); b->words[i];)
            i = (i + 1) & (b->n_words - 1);
        b->words[i] = (uint32_t)json_integer_value(id) + 1;
    }
}

/* "a b" or ["a", "b"] */
static bool split_merge(const json_t *v, Arena *keep, const char **left, const char **right)
{
    if (json_is_string(v)) {
        const char *text = json_string_value(v), *space = strchr(text, ' ');

        if (!space || strchr(space + 1, ' '))
            return false;
        *left = arena_strndup(keep, text, (size_t)(space - text));
        *right = arena_strdup(keep, space + 1);
        return true;
    }
    *left = json_string_value(json_array_get(v, 0));
    *right = json_string_value(json_array_get(v, 1));
    return json_array_size(v) == 2 && *left && *right;
}

static bool read_merges(Build *b, const json_t *merges)
{
    for (size_t rank = 0; rank < json_array_size(merges); rank++) {
        const char *text[3];
        int32_t id[3];

        if (!split_merge(json_array_get(merges, rank), b->keep, &text[0], &text[1]))
            return diag_error(b->d, b->loc, "merge %zu is not a pair of tokens", rank);
        text[2] = arena_printf(b->keep, "%s%s", text[0], text[1]);
        for (int i = 0; i < 3; i++)
            if ((id[i] = build_id(b, text[i])) < 0)
                return diag_error(b->d, b->loc, "merge %zu: \"%.80s\" is not in the vocabulary", rank, text[i]);
        *arena_push(b->keep, b->merges) = (TokMerge){id[0], id[1], id[2], (uint32_t)rank};
    }
    build_pairs(b);
    return true;
}

static bool is_set(const json_t *v)
{
    return v && !json_is_null(v) && !json_is_false(v) && (!json_is_string(v) || *json_string_value(v)) &&
           (!json_is_number(v) || json_number_value(v) != 0);
}

static bool read_unknown(Build *b, const json_t *model)
{
    const char *text = build_text(model, "unk_token");

    if (text && *text && (b->facts.unknown = build_id(b, text)) < 0)
        return diag_error(b->d, b->loc, "its unknown token \"%.80s\" is not in the vocabulary", text);
    return true;
}

static bool read_bpe_characters(Build *b, const json_t *model)
{
    const char *text;
    json_t *id;

    json_object_foreach(b->vocab, text, id) build_piece(b, text, (int32_t)json_integer_value(id), 0);
    if (build_flag(model, "byte_fallback", false)) {
        b->facts.flags |= TOK_BYTE_FALLBACK;
        build_byte_ids(b);
    }
    if (build_flag(model, "fuse_unk", false))
        b->facts.flags |= TOK_FUSE_UNKNOWN;
    return read_unknown(b, model);
}

static bool read_bpe_bytes(Build *b, const json_t *model)
{
    static const char *const refused[] = {"unk_token", "byte_fallback"};

    read_bytes(b);
    for (size_t i = 0; i < LEN(refused); i++)
        if (is_set(json_object_get(model, refused[i]))) {
            bool all = i == 0; /* an unknown token is never used where every byte is a token */

            for (int k = 0; k < 256 && all; k++)
                all = b->facts.byte_id[k] >= 0;
            if (!all)
                return diag_error(b->d, b->loc, "its byte-level BPE model has \"%s\", which is not supported",
                                  refused[i]);
        }
    if (b->facts.flags & TOK_WHOLE_WORDS)
        hash_words(b);
    return true;
}

static bool read_bpe(Build *b, const json_t *model)
{
    static const char *const refused[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};

    b->facts.model = b->byte_level ? TOK_MODEL_BPE_BYTES : TOK_MODEL_BPE_CHARACTERS;
    for (size_t i = 0; i < LEN(refused); i++)
        if (is_set(json_object_get(model, refused[i])))
            return diag_error(b->d, b->loc, "its BPE model has \"%s\", which is not supported", refused[i]);
    if (build_flag(model, "ignore_merges", false))
        b->facts.flags |= TOK_WHOLE_WORDS;
    return (b->byte_level ? read_bpe_bytes(b, model) : read_bpe_characters(b, model)) &&
           read_merges(b, json_object_get(model, "merges"));
}

/* --- WordPiece ---------------------------------------------------------------------------------- */

/* The trie's node behind the prefix, where pieces inside words begin. Without such pieces: a node without
 * children. */
static void find_tail(Build *b, const char *prefix)
{
    if (!*prefix)
        return;
    b->facts.tail = trie_find(b, prefix);
    if (b->facts.tail)
        return;
    b->facts.tail = (uint32_t)b->trie.n;
    *arena_push(b->keep, b->trie) = (TokNode){UINT32_MAX, UINT32_MAX, 0};
}

static bool read_wordpiece(Build *b, const json_t *model)
{
    const json_t *most = json_object_get(model, "max_input_chars_per_word");
    const char *prefix = build_text(model, "continuing_subword_prefix"), *text;
    json_t *id;

    b->facts.model = TOK_MODEL_WORDPIECE;
    b->facts.max_characters = WORD_CHARACTERS;
    if (most && (!json_is_integer(most) || json_integer_value(most) < 0 || json_integer_value(most) > INT32_MAX))
        return diag_error(b->d, b->loc, "its model's \"max_input_chars_per_word\" is no number of characters");
    if (most)
        b->facts.max_characters = (uint32_t)json_integer_value(most);
    json_object_foreach(b->vocab, text, id) build_piece(b, text, (int32_t)json_integer_value(id), 0);
    build_trie(b);
    find_tail(b, prefix ? prefix : "##");
    return read_unknown(b, model);
}

/* --- Unigram ------------------------------------------------------------------------------------ */

/* [["text", score], ...]: the index is the id. Of equal texts the last one counts. */
static bool read_scored_vocab(Build *b, const json_t *list)
{
    b->vocab = json_object();
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(json_array_get(list, i), 0));

        if (!text || !json_is_number(json_array_get(json_array_get(list, i), 1)))
            return diag_error(b->d, b->loc, "token %zu is not a text and its score", i);
        if (!build_token(b, text, (json_int_t)i, 0))
            return false;
        json_object_set_new(b->vocab, text, json_integer((json_int_t)i));
    }
    return json_object_size(b->vocab) || diag_error(b->d, b->loc, "\"model\" has no \"vocab\"");
}

static bool read_unigram(Build *b, const json_t *model)
{
    const json_t *list = json_object_get(model, "vocab"), *unknown = json_object_get(model, "unk_id");
    double least = 0;

    b->facts.model = TOK_MODEL_UNIGRAM;
    b->facts.flags |= TOK_FUSE_UNKNOWN;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const double score = json_number_value(json_array_get(json_array_get(list, i), 1));

        if (i == 0 || score < least)
            least = score;
        build_piece(b, json_string_value(json_array_get(json_array_get(list, i), 0)), (int32_t)i, score);
    }
    b->facts.unknown_score = least - UNKNOWN_PENALTY;
    if (unknown && !json_is_null(unknown)) {
        if (!json_is_integer(unknown) || json_integer_value(unknown) < 0 ||
            (size_t)json_integer_value(unknown) >= json_array_size(list))
            return diag_error(b->d, b->loc, "its model's \"unk_id\" is no token");
        b->facts.unknown = (int32_t)json_integer_value(unknown);
    }
    for (size_t i = 0; i < b->pieces.n && b->facts.unknown >= 0; i++)
        if (b->pieces.at[i].id == b->facts.unknown)
            b->facts.unknown_piece = (int32_t)i;
    if (build_flag(model, "byte_fallback", false)) {
        b->facts.flags |= TOK_BYTE_FALLBACK;
        build_byte_ids(b);
    }
    return true;
}

/* --- all of it ---------------------------------------------------------------------------------- */

static bool read_vocab(Build *b, json_t *vocab)
{
    const char *text;
    json_t *id;

    if (!json_is_object(vocab) || !json_object_size(vocab))
        return diag_error(b->d, b->loc, "\"model\" has no \"vocab\"");
    b->vocab = json_incref(vocab);
    json_object_foreach(vocab, text, id)
    {
        if (!json_is_integer(id))
            return diag_error(b->d, b->loc, "token \"%.80s\" has no id", text);
        if (!build_token(b, text, json_integer_value(id), 0))
            return false;
    }
    return true;
}

bool read_model(Build *b, const json_t *model)
{
    json_t *vocab = json_object_get(model, "vocab");
    const char *type = json_object_get(model, "type") ? build_type(model) : json_is_array(vocab) ? "Unigram" : "BPE";

    if (!json_is_object(model))
        return diag_error(b->d, b->loc, "has no \"model\"");
    if (strcmp(type, "Unigram") == 0)
        return read_scored_vocab(b, vocab) && read_unigram(b, model);
    if (strcmp(type, "BPE") != 0 && strcmp(type, "WordPiece") != 0)
        return diag_error(b->d, b->loc, "its model is %s; BPE, WordPiece and Unigram are supported", type);
    if (!read_vocab(b, vocab))
        return false;
    return strcmp(type, "BPE") == 0 ? read_bpe(b, model) : read_wordpiece(b, model);
}
