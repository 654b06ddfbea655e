/* pretokenizer.c - "pre_tokenizer" of tokenizer.json, as the steps of runtime/tokenizer/pretokenize.c. */
#include <string.h>

#include "parts.h"
#include "../../runtime/base/utf8.h"

/* GPT-2's pattern, the built-in pattern of ByteLevel. Radford et al. 2019. */
static const char *const GPT2_PATTERN =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static const char *const WORD_PATTERN = "\\w+|[^\\w\\s]+"; /* of Whitespace */

static void add_step(Build *b, TokStepKind kind, const char *text, uint32_t flags)
{
    *arena_push(b->keep, b->steps) = (TokStep){kind, (uint32_t)b->bytes.n, (uint32_t)strlen(text), flags};
    build_append(b, text, strlen(text));
}

static bool add_pattern(Build *b, const char *pattern, uint32_t flags)
{
    const char *translated;

    if (!pattern_translate(pattern, b->loc, b->keep, &translated, b->d))
        return false;
    add_step(b, TOK_STEP_SPLIT, translated, flags);
    return true;
}

static bool read_split(Build *b, const json_t *o)
{
    const json_t *pattern = json_object_get(o, "pattern");
    const char *regex = build_text(pattern, "Regex"), *text = build_text(pattern, "String");
    const char *behavior = build_text(o, "behavior");
    const bool removed = behavior && strcmp(behavior, "Removed") == 0;
    const uint32_t flags = !removed ? 0 : build_flag(o, "invert", false) ? TOK_DROP_BETWEEN : TOK_DROP_MATCHES;

    if (!behavior || (!removed && strcmp(behavior, "Isolated") != 0))
        return diag_error(b->d, b->loc,
                          "its pre-tokenizer splits with the behavior %s; Isolated and Removed are "
                          "supported",
                          behavior ? behavior : "(none)");
    if (regex)
        return add_pattern(b, regex, flags);
    if (!text || !*text)
        return diag_error(b->d, b->loc, "its pre-tokenizer splits by no pattern");
    add_step(b, TOK_STEP_SPLIT, pattern_quote(text, b->keep), flags);
    return true;
}

/* Old files say add_prefix_space, younger ones prepend_scheme. */
static bool read_metaspace(Build *b, const json_t *o)
{
    const char *mark = build_text(o, "replacement"), *scheme = build_text(o, "prepend_scheme");
    uint32_t flags = build_flag(o, "split", true) ? TOK_SPLIT : 0, code;
    size_t bytes;

    if (!scheme)
        scheme = build_flag(o, "add_prefix_space", true) ? "always" : "never";
    if (strcmp(scheme, "always") == 0)
        flags |= TOK_PREPEND;
    else if (strcmp(scheme, "first") == 0)
        flags |= TOK_PREPEND_FIRST;
    else if (strcmp(scheme, "never") != 0)
        return diag_error(b->d, b->loc, "its pre-tokenizer's \"prepend_scheme\" is %s", scheme);
    if (!mark || !*mark)
        mark = VISIBLE_SPACE;
    utf8_next((const unsigned char *)mark, strlen(mark), &bytes, &code);
    if (mark[bytes])
        return diag_error(b->d, b->loc, "its pre-tokenizer's \"replacement\" is no single character: \"%.40s\"", mark);
    for (size_t i = 0; i < b->steps.n; i++)
        if (b->steps.at[i].kind == TOK_STEP_METASPACE)
            return diag_error(b->d, b->loc, "its pre-tokenizer has Metaspace twice");
    add_step(b, TOK_STEP_METASPACE, mark, flags);
    return true;
}

static bool read_byte_level(Build *b, const json_t *o)
{
    for (size_t i = 0; i < b->steps.n; i++)
        if (b->steps.at[i].kind == TOK_STEP_METASPACE)
            return diag_error(b->d, b->loc, "its pre-tokenizer has ByteLevel after Metaspace, which is not supported");
    b->byte_level = true;
    if (build_flag(o, "add_prefix_space", true))
        add_step(b, TOK_STEP_SPACE, "", 0);
    return !build_flag(o, "use_regex", true) || add_pattern(b, GPT2_PATTERN, 0);
}

static bool read_digits(Build *b, const json_t *o)
{
    return add_pattern(b, build_flag(o, "individual_digits", false) ? "\\p{N}" : "\\p{N}+", 0);
}

static bool read_blanks(Build *b, const json_t *o)
{
    (void)o;
    add_step(b, TOK_STEP_BLANKS, "", 0);
    return true;
}

static bool read_words(Build *b, const json_t *o)
{
    (void)o;
    return add_pattern(b, WORD_PATTERN, TOK_DROP_BETWEEN);
}

static bool read_marks(Build *b, const json_t *o)
{
    const char *behavior = build_text(o, "behavior");

    if (behavior && strcmp(behavior, "Isolated") != 0)
        return diag_error(b->d, b->loc, "its pre-tokenizer's Punctuation has the behavior %s; Isolated is supported",
                          behavior);
    add_step(b, TOK_STEP_MARKS, "", 0);
    return true;
}

static bool read_bert(Build *b, const json_t *o)
{
    (void)o;
    add_step(b, TOK_STEP_BLANKS, "", 0);
    add_step(b, TOK_STEP_MARKS, "", 0);
    return true;
}

static bool read_delimiter(Build *b, const json_t *o)
{
    const char *text = build_text(o, "delimiter");

    if (!text || !*text)
        return diag_error(b->d, b->loc, "its pre-tokenizer splits by no character");
    add_step(b, TOK_STEP_SPLIT, pattern_quote(text, b->keep), TOK_DROP_MATCHES);
    return true;
}

static bool read_step(Build *b, const json_t *o)
{
    static const struct {
        const char *type;
        bool (*read)(Build *b, const json_t *o);
    } steps[] = {
        {"Split", read_split},           {"Digits", read_digits},          {"ByteLevel", read_byte_level},
        {"Metaspace", read_metaspace},   {"WhitespaceSplit", read_blanks}, {"Whitespace", read_words},
        {"BertPreTokenizer", read_bert}, {"Punctuation", read_marks},      {"CharDelimiterSplit", read_delimiter},
    };
    const json_t *list = json_object_get(o, "pretokenizers");
    const char *type = build_type(o);

    if (strcmp(type, "Sequence") == 0) {
        for (size_t i = 0; i < json_array_size(list); i++)
            if (!read_step(b, json_array_get(list, i)))
                return false;
        return true;
    }
    if (b->byte_level)
        return diag_error(b->d, b->loc, "its pre-tokenizer has %s after ByteLevel, which is not supported", type);
    for (size_t i = 0; i < LEN(steps); i++)
        if (strcmp(type, steps[i].type) == 0)
            return steps[i].read(b, o);
    return diag_error(b->d, b->loc, "its pre-tokenizer has %s, which is not supported", type);
}

bool read_pre_tokenizer(Build *b, const json_t *o)
{
    if (!json_is_object(o))
        return true;
    if (!read_step(b, o))
        return false;
    return b->steps.n <= TOK_MAX_STEPS ||
           diag_error(b->d, b->loc, "its pre-tokenizer has %zu steps, at most %d are supported", b->steps.n,
                      TOK_MAX_STEPS);
}
