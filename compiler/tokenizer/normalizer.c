/* normalizer.c - "normalizer" of tokenizer.json, as the steps of runtime/tokenizer/normalize.c. */
#include <string.h>

#include "parts.h"

/* --- the steps ---------------------------------------------------------------------------------- */

/* StripAccents removes nonspacing marks, which are separate in decomposed text alone. */
static bool read_bert(Build *b, const json_t *o)
{
    const bool lower = build_flag(o, "lowercase", true);

    if (build_flag(o, "clean_text", true))
        build_norm(b, TOK_NORM_CLEAN, 0, "", "");
    if (build_flag(o, "handle_chinese_chars", true))
        build_norm(b, TOK_NORM_IDEOGRAPH, 0, "", "");
    if (build_flag(o, "strip_accents", lower)) {
        build_norm(b, TOK_NORM_NFD, 0, "", "");
        build_norm(b, TOK_NORM_NONSPACING, 0, "", "");
    }
    if (lower)
        build_norm(b, TOK_NORM_LOWER, 0, "", "");
    return true;
}

static bool read_charsmap(Build *b, const json_t *o)
{
    const char *text = build_text(o, "precompiled_charsmap");

    if (b->charsmap)
        return diag_error(b->d, b->loc, "its normalizer has two maps of characters");
    if (!text || !*text)
        return true;
    b->charsmap = build_base64(b->keep, text, &b->n_charsmap);
    if (!b->charsmap)
        return diag_error(b->d, b->loc, "its normalizer's map of characters is not base64");
    build_norm(b, TOK_NORM_CHARSMAP, 0, "", "");
    return true;
}

static bool read_replace(Build *b, const json_t *o)
{
    const json_t *pattern = json_object_get(o, "pattern");
    const char *text = build_text(pattern, "String"), *regex = build_text(pattern, "Regex");
    const char *with = build_text(o, "content");

    if (!with || (!text && !regex) || (text && !*text))
        return diag_error(b->d, b->loc, "its normalizer's Replace has no \"pattern\" or no \"content\"");
    if (text) {
        build_norm(b, TOK_NORM_REPLACE, 0, text, with);
        return true;
    }
    if (!pattern_translate(regex, PATTERN_ONIGURUMA, b->loc, b->keep, &regex, b->d))
        return false;
    build_norm(b, TOK_NORM_PATTERN, 0, regex, with);
    return true;
}

static bool read_strip(Build *b, const json_t *o)
{
    build_norm(b, TOK_NORM_STRIP,
               (build_flag(o, "strip_left", true) ? TOK_LEFT : 0u) |
                   (build_flag(o, "strip_right", true) ? TOK_RIGHT : 0u),
               "", "");
    return true;
}

static bool read_prepend(Build *b, const json_t *o)
{
    const char *with = build_text(o, "prepend");

    if (!with)
        return diag_error(b->d, b->loc, "its normalizer's Prepend has no \"prepend\"");
    build_norm(b, TOK_NORM_PREPEND, 0, "", with);
    return true;
}

static bool read_step(Build *b, const json_t *o)
{
    static const struct {
        const char *type;
        TokNormKind kind;
    } plain[] = {
        {"NFC", TOK_NORM_NFC},   {"NFD", TOK_NORM_NFD},         {"NFKC", TOK_NORM_NFKC},
        {"NFKD", TOK_NORM_NFKD}, {"Lowercase", TOK_NORM_LOWER}, {"StripAccents", TOK_NORM_MARKS},
        {"Nmt", TOK_NORM_NMT},
    };
    static const struct {
        const char *type;
        bool (*read)(Build *b, const json_t *o);
    } others[] = {
        {"BertNormalizer", read_bert}, {"Precompiled", read_charsmap}, {"Replace", read_replace},
        {"Strip", read_strip},         {"Prepend", read_prepend},
    };
    const json_t *list = json_object_get(o, "normalizers");
    const char *type = build_type(o);

    if (strcmp(type, "Sequence") == 0) {
        for (size_t i = 0; i < json_array_size(list); i++)
            if (!read_step(b, json_array_get(list, i)))
                return false;
        return true;
    }
    for (size_t i = 0; i < LEN(plain); i++)
        if (strcmp(type, plain[i].type) == 0) {
            build_norm(b, plain[i].kind, 0, "", "");
            return true;
        }
    for (size_t i = 0; i < LEN(others); i++)
        if (strcmp(type, others[i].type) == 0)
            return others[i].read(b, o);
    return diag_error(b->d, b->loc, "its normalizer is %s, which is not supported", type);
}

bool read_normalizer(Build *b, const json_t *o)
{
    if (!json_is_object(o))
        return true;
    if (!read_step(b, o))
        return false;
    return b->norms.n <= TOK_MAX_NORMS ||
           diag_error(b->d, b->loc, "its normalizer has %zu steps, at most %d are supported", b->norms.n,
                      TOK_MAX_NORMS);
}
