/* pretokenizer.c - "pre_tokenizer" of tokenizer.json, as the steps of runtime/tokenizer/pretokenize.c. */
#include <string.h>

#include "parts.h"
#include "../../runtime/base/utf8.h"

enum { MOST_LENGTH = 65535 /* of a repeat in PCRE2 */ };

/* GPT-2's pattern, the built-in pattern of ByteLevel. Radford et al. 2019. */
static const char *const GPT2_PATTERN =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static const char *const WORD_PATTERN = "\\w+|[^\\w\\s]+"; /* of Whitespace, in Rust's syntax */

static void add_step(Build *b, TokStepKind kind, const char *text, uint32_t flags)
{
    *arena_push(b->keep, b->steps) = (TokStep){kind, (uint32_t)b->bytes.n, (uint32_t)strlen(text), flags};
    build_append(b, text, strlen(text));
}

bool build_split(Build *b, const char *pattern, PatternSyntax syntax, uint32_t flags)
{
    const char *translated;

    if (!pattern_translate(pattern, syntax, b->loc, b->keep, &translated, b->d))
        return false;
    add_step(b, TOK_STEP_SPLIT, translated, flags);
    return true;
}

static bool add_pattern(Build *b, const char *pattern, uint32_t flags)
{
    return build_split(b, pattern, PATTERN_ONIGURUMA, flags);
}

/* What becomes of the matches of a splitting step. invert: what is between the matches counts as matches. */
static bool read_behavior(Build *b, const json_t *o, const char *otherwise, bool invert, uint32_t *flags)
{
    static const struct {
        const char *name;
        uint32_t flags[2]; /* as it is, inverted */
    } behaviors[] = {
        {"Isolated", {0, 0}},
        {"Removed", {TOK_DROP_MATCHES, TOK_DROP_BETWEEN}},
        {"MergedWithPrevious", {TOK_JOIN_PREVIOUS, TOK_JOIN_NEXT}},
        {"MergedWithNext", {TOK_JOIN_NEXT, TOK_JOIN_PREVIOUS}},
        {"Contiguous", {TOK_JOIN_ALIKE, TOK_JOIN_ALIKE}},
    };
    const char *name = build_text(o, "behavior");

    if (!name)
        name = otherwise;
    for (size_t i = 0; i < LEN(behaviors); i++)
        if (strcmp(name, behaviors[i].name) == 0) {
            *flags = behaviors[i].flags[invert];
            return true;
        }
    return diag_error(b->d, b->loc, "its pre-tokenizer's %s has the \"behavior\" \"%.40s\", which is not supported",
                      build_type(o), name);
}

static bool read_split(Build *b, const json_t *o)
{
    const json_t *pattern = json_object_get(o, "pattern");
    const char *regex = build_text(pattern, "Regex"), *text = build_text(pattern, "String");
    uint32_t flags;

    if (!read_behavior(b, o, "", build_flag(o, "invert", false), &flags))
        return false;
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
        if (b->steps.at[i].kind == TOK_STEP_METASPACE || b->steps.at[i].kind == TOK_STEP_SPACE)
            return diag_error(b->d, b->loc, "its pre-tokenizer has Metaspace after %s, which is not supported",
                              b->steps.at[i].kind == TOK_STEP_SPACE ? "ByteLevel with \"add_prefix_space\""
                                                                    : "Metaspace");
    add_step(b, TOK_STEP_METASPACE, mark, flags);
    return true;
}

static bool read_byte_level(Build *b, const json_t *o)
{
    bool ok;

    for (size_t i = 0; i < b->steps.n; i++)
        if (b->steps.at[i].kind == TOK_STEP_METASPACE)
            return diag_error(b->d, b->loc, "its pre-tokenizer has ByteLevel after Metaspace, which is not supported");
    if (b->byte_level)
        return diag_error(b->d, b->loc, "its pre-tokenizer has ByteLevel twice, which is not supported");
    b->byte_level = true;
    if (build_flag(o, "add_prefix_space", true))
        add_step(b, TOK_STEP_SPACE, "", 0);
    ok = !build_flag(o, "use_regex", true) || add_pattern(b, GPT2_PATTERN, 0);
    add_step(b, TOK_STEP_BYTES, "", 0);
    return ok;
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
    return build_split(b, WORD_PATTERN, PATTERN_RUST, TOK_DROP_BETWEEN);
}

static bool read_marks(Build *b, const json_t *o)
{
    uint32_t flags;

    if (!read_behavior(b, o, "Isolated", false, &flags))
        return false;
    add_step(b, TOK_STEP_MARKS, "", flags);
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

static bool read_lengths(Build *b, const json_t *o)
{
    const json_t *length = json_object_get(o, "length");

    if (!json_is_integer(length) || json_integer_value(length) < 1 || json_integer_value(length) > MOST_LENGTH)
        return diag_error(b->d, b->loc, "its pre-tokenizer's FixedLength has no \"length\" of 1 to %d", MOST_LENGTH);
    add_step(b, TOK_STEP_SPLIT, arena_printf(b->keep, "(?s:.{1,%d})", (int)json_integer_value(length)), 0);
    return true;
}

static bool read_scripts(Build *b, const json_t *o)
{
    (void)o;
    add_step(b, TOK_STEP_SPLIT, scripts_pattern(b), TOK_DROP_BETWEEN);
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
        {"FixedLength", read_lengths},   {"UnicodeScripts", read_scripts},
    };
    const json_t *list = json_object_get(o, "pretokenizers");
    const char *type = build_type(o);

    if (strcmp(type, "Sequence") == 0) {
        for (size_t i = 0; i < json_array_size(list); i++)
            if (!read_step(b, json_array_get(list, i)))
                return false;
        return true;
    }
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
