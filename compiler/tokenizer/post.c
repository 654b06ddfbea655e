/* post.c - "post_processor" of tokenizer.json: the tokens around one text, and around a pair.
 *
 *   single   [CLS] A [SEP]               types 0 0 0
 *   pair     [CLS] A [SEP] B [SEP]             0 0 0 1 1 */
#include <inttypes.h>
#include <string.h>

#include "parts.h"

static bool is_token(const Build *b, json_int_t id)
{
    return id >= 0 && (size_t)id < b->texts.n && b->texts.at[id].text;
}

static uint32_t type_id(const json_t *o)
{
    const json_int_t type = json_integer_value(json_object_get(o, "type_id"));

    return type > 0 && type < 1 << 16 ? (uint32_t)type : 0;
}

static bool add_special(Build *b, const json_t *template, const json_t *piece, bool pair)
{
    const char *name = build_text(piece, "id");
    const json_t *ids =
        name ? json_object_get(json_object_get(json_object_get(template, "special_tokens"), name), "ids") : NULL;

    if (!json_array_size(ids))
        return diag_error(b->d, b->loc, "its post-processor adds \"%.80s\", which has no ids", name ? name : "");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_int_t id = json_integer_value(json_array_get(ids, i));

        if (!is_token(b, id))
            return diag_error(b->d, b->loc, "its post-processor adds the id %" JSON_INTEGER_FORMAT, id);
        build_frame(b, (int32_t)id, type_id(piece), pair);
    }
    return true;
}

static bool read_pieces(Build *b, const json_t *template, const char *which, bool pair)
{
    const json_t *list = json_object_get(template, which);
    size_t seen[2] = {0};

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *piece = json_array_get(list, i), *special = json_object_get(piece, "SpecialToken");
        const json_t *text = json_object_get(piece, "Sequence");
        const char *name = build_text(text, "id");
        const bool other = name && strcmp(name, "B") == 0;

        if (special) {
            if (!add_special(b, template, special, pair))
                return false;
        } else if (name && (other || strcmp(name, "A") == 0) && !seen[other]++) {
            build_frame(b, other ? TOK_OTHER_TEXT : TOK_TEXT, type_id(text), pair);
        } else {
            return diag_error(b->d, b->loc, "its post-processor's template has a piece that is not supported");
        }
    }
    return (seen[0] == 1 && seen[1] == pair) ||
           diag_error(b->d, b->loc, "its post-processor's template has no place for the text");
}

static void add_plain_pair(Build *b)
{
    build_frame(b, TOK_TEXT, 0, true);
    build_frame(b, TOK_OTHER_TEXT, 1, true);
}

static bool read_template(Build *b, const json_t *o)
{
    if (!read_pieces(b, o, "single", false))
        return false;
    if (json_array_size(json_object_get(o, "pair")))
        return read_pieces(b, o, "pair", true);
    add_plain_pair(b);
    return true;
}

/* "sep": ["[SEP]", 102] */
static bool read_mark(Build *b, const json_t *o, const char *name, int32_t *id)
{
    const json_t *v = json_array_get(json_object_get(o, name), 1);

    if (!json_is_integer(v) || !is_token(b, json_integer_value(v)))
        return diag_error(b->d, b->loc, "its post-processor's \"%s\" is no token", name);
    *id = (int32_t)json_integer_value(v);
    return true;
}

/* RoBERTa puts two separators between texts, and all tokens have the type 0. */
static bool read_bert(Build *b, const json_t *o, bool roberta)
{
    const uint32_t second = roberta ? 0 : 1;
    int32_t cls, sep;

    if (!read_mark(b, o, "cls", &cls) || !read_mark(b, o, "sep", &sep))
        return false;
    for (int pair = 0; pair < 2; pair++) {
        build_frame(b, cls, 0, pair);
        build_frame(b, TOK_TEXT, 0, pair);
        build_frame(b, sep, 0, pair);
    }
    if (roberta)
        build_frame(b, sep, 0, true);
    build_frame(b, TOK_OTHER_TEXT, second, true);
    build_frame(b, sep, second, true);
    return true;
}

static bool read_step(Build *b, const json_t *o)
{
    const json_t *list = json_object_get(o, "processors");
    const char *type = build_type(o);
    const bool roberta = strcmp(type, "RobertaProcessing") == 0;

    if (strcmp(type, "ByteLevel") == 0) /* changes offsets only */
        return true;
    if (strcmp(type, "Sequence") == 0) {
        for (size_t i = 0; i < json_array_size(list); i++)
            if (!read_step(b, json_array_get(list, i)))
                return false;
        return true;
    }
    if (!roberta && strcmp(type, "TemplateProcessing") != 0 && strcmp(type, "BertProcessing") != 0)
        return diag_error(b->d, b->loc, "its post-processor is %s, which is not supported", type);
    if (b->framed)
        return diag_error(b->d, b->loc, "it has two post-processors that add tokens");
    b->framed = true;
    return strcmp(type, "TemplateProcessing") == 0 ? read_template(b, o) : read_bert(b, o, roberta);
}

bool read_post_processor(Build *b, const json_t *o)
{
    if (o && !json_is_null(o) && !read_step(b, o))
        return false;
    if (!b->framed) {
        build_frame(b, TOK_TEXT, 0, false);
        add_plain_pair(b);
    }
    return true;
}
