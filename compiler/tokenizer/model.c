/* model.c - "model" of tokenizer.json: BPE over bytes or characters, WordPiece, WordLevel, Unigram. */
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

/* drop: bytes that the right part loses, its prefix. */
static bool read_merges(Build *b, const json_t *merges, size_t drop)
{
    for (size_t rank = 0; rank < json_array_size(merges); rank++) {
        const char *text[3];
        int32_t id[3];

        if (!split_merge(json_array_get(merges, rank), b->keep, &text[0], &text[1]))
            return diag_error(b->d, b->loc, "merge %zu is not a pair of tokens", rank);
        text[2] = arena_printf(b->keep, "%s%s", text[0], text[1] + (strlen(text[1]) < drop ? strlen(text[1]) : drop));
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

/* Pieces of a word that are not its first begin with the prefix, which no merge repeats; its last ends with the
 * suffix. */
static bool read_word_ends(Build *b, const json_t *model, const char *prefix)
{
    const char *suffix = build_text(model, "end_of_word_suffix");

    if (suffix && *suffix) {
        b->facts.suffix_offset = (uint32_t)b->bytes.n;
        b->facts.suffix_bytes = (uint32_t)strlen(suffix);
        build_append(b, suffix, strlen(suffix));
    }
    if ((b->facts.suffix_bytes || *prefix) && (b->facts.flags & TOK_BYTE_FALLBACK))
        return diag_error(b->d, b->loc,
                          "its BPE model has \"byte_fallback\" beside \"%s\", which is not supported; without the one "
                          "or the other it is",
                          *prefix ? "continuing_subword_prefix" : "end_of_word_suffix");
    build_trie(b);
    find_tail(b, prefix);
    return true;
}

static bool read_bpe_characters(Build *b, const json_t *model, const char *prefix)
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
    return read_unknown(b, model) && read_word_ends(b, model, prefix);
}

/* Whether a piece is merged from its bytes: ByteLevel comes last, and nothing asks for the characters that bytes are
 * written as. */
static bool merges_bytes(Build *b, const json_t *model)
{
    static const char *const asks[] = {"continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"};
    bool all = true;

    if (!b->byte_level || b->steps.at[b->steps.n - 1].kind != TOK_STEP_BYTES)
        return false;
    for (size_t i = 0; i < LEN(asks); i++)
        if (is_set(json_object_get(model, asks[i])))
            return false;
    read_bytes(b);
    for (int i = 0; i < 256; i++)
        all &= b->facts.byte_id[i] >= 0;
    return (all || !is_set(json_object_get(model, "unk_token"))) &&
           (b->bytes_decode || !(b->facts.flags & TOK_WHOLE_WORDS));
}

void build_bytes_model(Build *b)
{
    b->facts.model = TOK_MODEL_BPE_BYTES;
    read_bytes(b);
    if (b->facts.flags & TOK_WHOLE_WORDS)
        hash_words(b);
}

static bool read_bpe(Build *b, const json_t *model)
{
    const char *prefix = build_text(model, "continuing_subword_prefix");

    if (is_set(json_object_get(model, "dropout")))
        return diag_error(b->d, b->loc, "its BPE model has \"dropout\", which is not supported: set it to null");
    if (!prefix)
        prefix = "";
    if (build_flag(model, "ignore_merges", false))
        b->facts.flags |= TOK_WHOLE_WORDS;
    if (merges_bytes(b, model)) {
        b->steps.n--;
        build_bytes_model(b);
    } else {
        b->facts.model = TOK_MODEL_BPE_CHARACTERS;
        for (int i = 0; i < 256; i++)
            b->facts.byte_id[i] = -1;
        if (!read_bpe_characters(b, model, prefix))
            return false;
    }
    return read_merges(b, json_object_get(model, "merges"), strlen(prefix));
}

/* --- WordPiece ---------------------------------------------------------------------------------- */

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

/* A text is encoded without an unknown token if all its words are tokens. */
static bool read_wordlevel(Build *b, const json_t *model)
{
    const char *unknown = build_text(model, "unk_token"), *text;
    json_t *id;

    b->facts.model = TOK_MODEL_WORDLEVEL;
    b->facts.unknown = build_id(b, unknown ? unknown : "<unk>");
    json_object_foreach(b->vocab, text, id) build_piece(b, text, (int32_t)json_integer_value(id), 0);
    return true;
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
    if (strcmp(type, "BPE") != 0 && strcmp(type, "WordPiece") != 0 && strcmp(type, "WordLevel") != 0)
        return diag_error(b->d, b->loc, "its model is %s; BPE, WordPiece, Unigram and WordLevel are supported", type);
    if (!read_vocab(b, vocab))
        return false;
    return strcmp(type, "BPE") == 0         ? read_bpe(b, model)
           : strcmp(type, "WordPiece") == 0 ? read_wordpiece(b, model)
                                            : read_wordlevel(b, model);
}
