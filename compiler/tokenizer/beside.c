/* beside.c - tokenizer_config.json beside a tokenizer.model: tokens that the SentencePiece file lacks, or that are found in
 * texts as they are written.
 *
 *   {"added_tokens_decoder": {"1": {"content": "<s>", "special": true}, "32000": {"content": "<|im_start|>", ...}},
 *    "legacy": false, "tokenizer_class": "LlamaTokenizer"}
 *
 * As in transformers the text between two such tokens is one for SentencePiece with its own space before it, unless
 * "legacy" is false. ChatGLM's tokens stand in no file: they follow the pieces, and two of them come before a text. Those of
 * ChatGLM-6B are pieces, and two of them come behind a text, whose line ends, tabs and runs of spaces are pieces, too. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"
#include "../../runtime/base/file.h"

static bool add_token_of(Build *b, const char *id_text, const json_t *o)
{
    char *end;
    const long id = strtol(id_text, &end, 10);
    const char *content = build_text(o, "content");
    const bool special = build_flag(o, "special", false);

    if (*end || end == id_text || id < 0 || id >= MAX_ID || !content || !*content)
        return diag_error(b->d, b->loc, "\"added_tokens_decoder\": \"%.40s\" is no id of a token with \"content\"",
                          id_text);
    if (build_id(b, content) == id) /* a piece */
        b->texts.at[id].flags |= special ? TOK_SPECIAL : 0;
    else if (!build_token(b, content, id, special ? TOK_SPECIAL : 0))
        return false;
    build_added(b, content, (int32_t)id,
                (build_flag(o, "lstrip", false) ? TOK_ADDED_LSTRIP : 0u) |
                    (build_flag(o, "rstrip", false) ? TOK_ADDED_RSTRIP : 0u) |
                    (build_flag(o, "single_word", false) ? TOK_ADDED_WORD : 0u));
    return true;
}

/* A text that stands for another in the pieces of ChatGLM-6B. */
static void add_stand_in(Build *b, const char *text, const char *piece)
{
    build_norm(b, TOK_NORM_REPLACE, 0, text, piece);
    *arena_push(b->keep, b->decode) = (DecodeStep){.kind = DECODE_REPLACE, .what = piece, .with = text};
}

/* ChatGLM-6B: longer runs of spaces are replaced first. */
static bool add_chatglm_6b(Build *b, const json_t *root)
{
    enum { MOST_SPACES = 80 };
    static const char *const special[] = {"[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>"};
    const json_t *images = json_object_get(root, "num_image_tokens");
    const int32_t end = build_id(b, "<eop>");

    if (!json_is_integer(images) || json_integer_value(images))
        return diag_error(b->d, b->loc, "num_image_tokens must be 0: ids of images are not read");
    for (size_t i = 0; i < LEN(special); i++) {
        const int32_t id = build_id(b, special[i]);

        if (id < 0)
            continue;
        b->texts.at[id].flags |= TOK_SPECIAL;
        build_added(b, special[i], id, 0);
    }
    add_stand_in(b, "\n", "<n>");
    add_stand_in(b, "\t", "<|tab|>");
    for (int n = MOST_SPACES; n > 1; n--)
        add_stand_in(b, arena_printf(b->keep, "%*s", n, ""), arena_printf(b->keep, "<|blank_%d|>", n));
    for (int pair = 0; pair < 2; pair++) {
        build_frame(b, TOK_TEXT, 0, pair);
        build_frame(b, build_id(b, "[gMASK]"), 0, pair);
        build_frame(b, build_id(b, "<sop>"), 0, pair);
    }
    build_frame(b, TOK_OTHER_TEXT, 0, true);
    if (end >= 0)
        build_frame(b, end, 0, true);
    b->framed = true;
    return true;
}

/* ChatGLM2 and ChatGLM3; `first` is the id behind the pieces. */
static bool add_chatglm(Build *b, int32_t first)
{
    static const char *const names[] = {"[MASK]",   "[gMASK]",       "[sMASK]",        "sop", "eop", "<|system|>",
                                        "<|user|>", "<|assistant|>", "<|observation|>"};
    const int32_t end = build_id(b, "</s>");

    bool ok = true;

    for (int32_t i = 0; i < (int32_t)LEN(names); i++) {
        ok = ok && build_token(b, names[i], first + i, TOK_SPECIAL);
        build_added(b, names[i], first + i, 0);
    }
    for (int pair = 0; pair < 2; pair++) {
        build_frame(b, first + 1, 0, pair);
        build_frame(b, first + 3, 0, pair);
        build_frame(b, TOK_TEXT, 0, pair);
    }
    build_frame(b, TOK_OTHER_TEXT, 0, true);
    if (end >= 0)
        build_frame(b, end, 0, true);
    b->framed = true;
    return ok;
}

static bool use_config(Build *b, json_t *root, int32_t pieces, bool *apart)
{
    json_t *added = json_object_get(root, "added_tokens_decoder"), *o;
    const char *class = build_text(root, "tokenizer_class"), *id;

    const bool chatglm = class && strcmp(class, "ChatGLMTokenizer") == 0;
    const bool first = build_id(b, "[gMASK]") >= 0 && build_id(b, "<sop>") >= 0;
    bool ok = !chatglm || (first ? add_chatglm_6b(b, root) : add_chatglm(b, pieces));

    *apart = build_flag(root, "legacy", true);
    json_object_foreach(added, id, o) ok = ok && add_token_of(b, id, o);
    return ok;
}

bool read_tokenizer_config(Build *b, const char *path, int32_t pieces, bool *apart)
{
    const Loc file = b->loc;
    json_error_t why;
    const char *text;
    FileMap map;
    FtxError err;
    json_t *root;
    size_t n;
    bool ok;

    if (file_map(path, &map, &err))
        return diag_error(b->d, (Loc){0}, "%s", err.text);
    text = file_text(&map, &n);
    root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    file_unmap(&map);
    b->loc = (Loc){path, 0};
    ok = json_is_object(root) ? use_config(b, root, pieces, apart) : diag_error(b->d, b->loc, "is no JSON object");
    json_decref(root);
    if (ok)
        b->loc = file;
    return ok;
}
