/* tiktoken.c - vocabularies of bytes with their ranks: files of tiktoken, and Mistral's tekken.json.
 *
 *   x.tiktoken       aGVsbG8= 15339          base64 and the rank, which is the id
 *   x.tiktoken.json  {"pat_str": "\\p{L}+|...", "special_tokens": {"<|endoftext|>": 100257}}
 *   tekken.json      {"config": {"pattern", "default_vocab_size", "default_num_special_tokens"},
 *                     "vocab": [{"rank", "token_bytes"}], "special_tokens": [{"rank", "token_str"}]}
 *
 * Of all neighbours that are a token together those of the lowest rank merge first, so a merge is listed for each way to
 * cut a token into two. A piece of the pattern that is a token is not merged; text that the pattern does not match is
 * dropped. The ids of tekken.json begin behind its special tokens. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"
#include "../../runtime/base/file.h"
#include "../../runtime/base/utf8.h"

enum { MOST_TOKEN = 512 /* bytes: each way to cut a token is looked up */ };

static bool add_token(Build *b, const char *base64, int64_t id)
{
    size_t n = 0;
    const unsigned char *bytes = build_base64(b->keep, base64, &n);
    const char *text;

    if (!bytes || !n || n > MOST_TOKEN)
        return diag_error(b->d, b->loc, "the token \"%.40s\" is not base64 of 1 to %d bytes", base64, MOST_TOKEN);
    text = build_byte_text(b, bytes, n);
    if (json_object_get(b->vocab, text))
        return diag_error(b->d, b->loc, "the token \"%.40s\" is there twice", base64);
    if (!build_token(b, text, id, 0))
        return false;
    json_object_set_new(b->vocab, text, json_integer(id));
    return true;
}

/* A special token is found in texts as it is written. */
static bool add_special(Build *b, const char *text, json_int_t id)
{
    if (id >= 0 && (size_t)id < b->texts.n && b->texts.at[id].text)
        return diag_error(b->d, b->loc,
                          "the special token \"%.80s\" has the id %" JSON_INTEGER_FORMAT " of another token", text, id);
    if (!build_token(b, build_byte_text(b, text, strlen(text)), id, TOK_SPECIAL))
        return false;
    build_added(b, text, (int32_t)id, 0);
    return true;
}

/* The merges to one token have one rank. */
static void add_merges_to(Build *b, int32_t id, const char *text)
{
    const uint32_t first = (uint32_t)b->merges.n;
    char left[2 * MOST_TOKEN + 1];
    size_t n = strlen(text);

    for (size_t k = 1; k < n; k++) {
        int32_t ids[2];

        if (((unsigned char)text[k] & 0xc0) == 0x80)
            continue;
        memcpy(left, text, k);
        left[k] = '\0';
        ids[0] = build_id(b, left);
        ids[1] = ids[0] < 0 ? -1 : build_id(b, text + k);
        if (ids[1] >= 0)
            *arena_push(b->keep, b->merges) = (TokMerge){ids[0], ids[1], id, first};
    }
}

/* The tokens are in `vocab`. */
static bool add_model(Build *b, const char *pattern)
{
    if (!build_split(b, pattern, PATTERN_RUST, TOK_DROP_BETWEEN))
        return false;
    for (size_t id = 0; id < b->texts.n; id++)
        if (b->texts.at[id].text && !(b->texts.at[id].flags & TOK_SPECIAL))
            add_merges_to(b, (int32_t)id, b->texts.at[id].text);
    build_pairs(b);
    b->facts.flags |= TOK_WHOLE_WORDS;
    build_bytes_model(b);
    for (int i = 0; i < 256; i++)
        if (b->facts.byte_id[i] < 0)
            return diag_error(b->d, b->loc, "no token is the byte 0x%02x alone", i);
    *arena_push(b->keep, b->decode) = (DecodeStep){.kind = DECODE_BYTE_LEVEL, .what = "", .with = ""};
    return read_post_processor(b, NULL); /* the default frame */
}

/* --- tiktoken ----------------------------------------------------------------------------------- */

/* The line at p: base64, a blank, digits. False: it is none of that form. */
static bool read_line(const char *p, const char *end, Arena *keep, const char **base64, int64_t *rank)
{
    const char *blank = memchr(p, ' ', (size_t)(end - p)), *digits = blank ? blank + 1 : end;

    *rank = 0;
    if (!blank || blank == p || digits == end || memchr(p, 0, (size_t)(end - p)))
        return false;
    for (const char *d = digits; d < end; d++) {
        if (*d < '0' || *d > '9' || *rank > MAX_ID)
            return false;
        *rank = *rank * 10 + (*d - '0');
    }
    *base64 = arena_strndup(keep, p, (size_t)(blank - p));
    return true;
}

static const char *line_end(const char *p, const char *end)
{
    const char *at = memchr(p, '\n', (size_t)(end - p));

    return at ? at : end;
}

bool is_tiktoken(const void *p, size_t n)
{
    const char *end = line_end(p, (const char *)p + n), *text = p;
    size_t i = 0;

    while (text + i < end && text[i] &&
           strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=", text[i]))
        i++;
    return i && text + i + 1 < end && text[i] == ' ' && text[i + 1] >= '0' && text[i + 1] <= '9';
}

/* The JSON file beside it has the arguments of tiktoken.Encoding that the file itself lacks. */
static json_t *read_arguments(Build *b, const char *path)
{
    json_t *root;
    json_error_t why;
    const char *text;
    FileMap map;
    FtxError err;
    size_t n;

    if (!file_exists(path)) {
        diag_error(
            b->d, b->loc,
            "is tiktoken's; its pattern is not in it: write %s with {\"pat_str\": PATTERN, \"special_tokens\": {TEXT: "
            "ID, ...}}, the arguments of tiktoken.Encoding",
            path);
        return NULL;
    }
    if (file_map(path, &map, &err)) {
        diag_error(b->d, (Loc){0}, "%s", err.text);
        return NULL;
    }
    text = file_text(&map, &n);
    root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    file_unmap(&map);
    if (!root)
        diag_error(b->d, (Loc){path, 0}, "is not JSON");
    return root;
}

static bool use_arguments(Build *b, const char *path, const json_t *root)
{
    json_t *specials = json_object_get(root, "special_tokens");
    const char *pattern = build_text(root, "pat_str"), *text;
    json_t *id;

    b->loc = (Loc){arena_strdup(b->keep, path), 0};
    if (!pattern || !json_is_object(specials))
        return diag_error(b->d, b->loc, "has no \"pat_str\" or no \"special_tokens\", which may be {}");
    json_object_foreach(specials, text, id)
    {
        if (!json_is_integer(id))
            return diag_error(b->d, b->loc, "\"special_tokens\": \"%.80s\" has no id", text);
        if (!add_special(b, text, json_integer_value(id)))
            return false;
    }
    return add_model(b, pattern);
}

static bool read_lines(Build *b, const char *p, const char *end)
{
    const Loc file = b->loc;

    for (const char *next; p < end; p = next + (next < end)) {
        const char *stop, *base64 = NULL;
        int64_t rank = 0;

        b->loc.line++;
        next = stop = line_end(p, end);
        if (stop > p && stop[-1] == '\r')
            stop--;
        if (stop == p)
            continue;
        if (!read_line(p, stop, b->keep, &base64, &rank))
            return diag_error(b->d, b->loc, "is no token in base64 and its rank");
        if (!add_token(b, base64, rank))
            return false;
    }
    b->loc = file;
    return true;
}

bool read_tiktoken(Build *b, const void *p, size_t n)
{
    const char *path = arena_printf(b->keep, "%s.json", b->loc.file);
    json_t *root = read_arguments(b, path);
    bool ok;

    if (!root)
        return false;
    b->vocab = json_object();
    ok = read_lines(b, p, (const char *)p + n) && use_arguments(b, path, root);
    json_decref(root);
    return ok;
}

/* --- tekken.json -------------------------------------------------------------------------------- */

bool is_tekken(const json_t *root)
{
    return json_is_object(json_object_get(root, "config")) && json_is_array(json_object_get(root, "vocab"));
}

static bool tekken_number(Build *b, const json_t *config, const char *name, json_int_t *value)
{
    *value = json_integer_value(json_object_get(config, name));
    return (*value > 0 && *value < MAX_ID) ||
           diag_error(b->d, b->loc, "\"config\": \"%s\" is not a number of 1 to %d", name, MAX_ID - 1);
}

/* The special tokens that the file names, or those of Mistral's first files, and names for the other ids. */
static bool tekken_specials(Build *b, const json_t *root, json_int_t count)
{
    static const char *const first[] = {
        "<unk>",
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
        "[TOOL_CALLS]",
        "[IMG]",
        "<pad>",
        "[IMG_BREAK]",
        "[IMG_END]",
        "[PREFIX]",
        "[MIDDLE]",
        "[SUFFIX]",
        "[SYSTEM_PROMPT]",
        "[/SYSTEM_PROMPT]",
        "[TOOL_CONTENT]",
    };
    const json_t *list = json_object_get(root, "special_tokens");
    const size_t named = json_array_size(list);
    bool ok = true;

    for (size_t i = 0; i < named; i++) {
        const json_t *o = json_array_get(list, i), *rank = json_object_get(o, "rank");
        const char *text = build_text(o, "token_str");

        if (!text || !*text || !json_is_integer(rank) || json_integer_value(rank) < 0 ||
            json_integer_value(rank) >= count)
            return diag_error(
                b->d, b->loc,
                "\"special_tokens\": entry %zu has no \"token_str\" or no \"rank\" below %" JSON_INTEGER_FORMAT, i,
                count);
        if (!add_special(b, text, json_integer_value(rank)))
            return false;
    }
    for (json_int_t i = 0; i < count && ok; i++)
        if ((size_t)i >= b->texts.n || !b->texts.at[i].text)
            ok = add_special(
                b, !named && i < (json_int_t)LEN(first) ? first[i] : arena_printf(b->keep, "<SPECIAL_%d>", (int)i), i);
    return ok;
}

bool read_tekken(Build *b, const json_t *root)
{
    const json_t *config = json_object_get(root, "config"), *vocab = json_object_get(root, "vocab");
    const char *pattern = build_text(config, "pattern");
    json_int_t size = 0, specials = 0;

    if (!pattern)
        return diag_error(b->d, b->loc, "\"config\" has no \"pattern\"");
    if (!tekken_number(b, config, "default_vocab_size", &size) ||
        !tekken_number(b, config, "default_num_special_tokens", &specials))
        return false;
    if (size <= specials || (size_t)(size - specials) > json_array_size(vocab))
        return diag_error(b->d, b->loc, "\"vocab\" has %zu tokens, \"config\" asks for %" JSON_INTEGER_FORMAT,
                          json_array_size(vocab), size - specials);
    b->vocab = json_object();
    if (!tekken_specials(b, root, specials))
        return false;
    for (json_int_t i = 0; i < size - specials; i++) {
        const json_t *o = json_array_get(vocab, (size_t)i), *rank = json_object_get(o, "rank");
        const char *base64 = build_text(o, "token_bytes");

        if (!base64 || !json_is_integer(rank) || json_integer_value(rank) != i)
            return diag_error(b->d, b->loc,
                              "\"vocab\": entry %" JSON_INTEGER_FORMAT " has no \"token_bytes\" or another \"rank\"",
                              i);
        if (!add_token(b, base64, i + specials))
            return false;
    }
    return add_model(b, pattern);
}
