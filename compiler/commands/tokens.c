/* commands/tokens.c - ftxc tokenize, ftxc detokenize: texts to token ids and back, by the tokenizer in an artifact.
 *
 * Only the tokenizer's tables are read, so no device and no weights are needed. Texts become the ids that `ftxc run`
 * makes of a prompt; a list of ids is printed in the form that `--ids` takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "../../runner/json.h"
#include "../../runner/lines.h"
#include "../../runner/options.h"
#include "../../runtime/artifact/artifact.h"
#include "../../runtime/base/arena.h"
#include "../../runtime/base/error.h"
#include "../../runtime/tokenizer/tokenizer.h"

typedef struct Options {
    bool help, batch, keep_newline, literal, no_bos, skip_special, json;
    const char *file;
} Options;

typedef struct Tokens {
    const char *command; /* "tokenize" or "detokenize" */
    Options o;
    Artifact artifact;
    Tokenizer *tokenizer;
} Tokens;

#define AT(field) offsetof(Options, field)
static const Option tokenize_table[] = {
    {"--file", 'f', OPT_TEXT, "FILE", "read the text from FILE, without its last newline (-: standard input)", AT(file),
     0},
    {"--keep-newline", 0, OPT_FLAG, NULL, "keep the last newline of a file or standard input", AT(keep_newline), 0},
    {"--batch", 'b', OPT_FLAG, NULL, "one text a line", AT(batch), 0},
    {"--literal", 0, OPT_FLAG, NULL, "the text of a special token is text and does not become that token", AT(literal),
     0},
    {"--no-bos", 0, OPT_FLAG, NULL, "without the tokens that the tokenizer adds around a text", AT(no_bos), 0},
    {"--json", 0, OPT_FLAG, NULL, "one object for each text: ids, and pieces, the text of each id", AT(json), 0},
    {"--help", 'h', OPT_FLAG, NULL, "this text", AT(help), 0},
};
static const Option detokenize_table[] = {
    {"--file", 'f', OPT_TEXT, "FILE", "read lists of ids from FILE, one a line (-: standard input)", AT(file), 0},
    {"--skip-special", 0, OPT_FLAG, NULL, "leave special tokens out", AT(skip_special), 0},
    {"--json", 0, OPT_FLAG, NULL, "one object for each list: text", AT(json), 0},
    {"--help", 'h', OPT_FLAG, NULL, "this text", AT(help), 0},
};
#undef AT

static void help_tokenize(void)
{
    printf("ftxc tokenize FILE.ftx [TEXT...] [options]\n\n"
           "Prints the token ids of each text as one line, in the form that --ids takes. Without a text, standard\n"
           "input is one text; with --batch each line is one. No device is needed.\n\n");
    options_help(tokenize_table, LEN(tokenize_table));
    printf("\nExamples:\n  ftxc tokenize fable.ftx \"Once upon a time\" \"The king\"\n"
           "  ftxc tokenize fable.ftx --batch --json < prompts.txt\n");
}

static void help_detokenize(void)
{
    printf("ftxc detokenize FILE.ftx [IDS...] [options]\n\n"
           "Prints the text of each list of token ids. A list is numbers with commas between, a JSON array, or a\n"
           "JSON object with the field ids, as `ftxc run --json` and `ftxc tokenize --json` print it. Without IDS,\n"
           "each line of standard input is a list. No device is needed.\n\n");
    options_help(detokenize_table, LEN(detokenize_table));
    printf("\nExamples:\n  ftxc detokenize fable.ftx 48,1527,616,260\n"
           "  ftxc tokenize fable.ftx --batch < prompts.txt | ftxc detokenize fable.ftx --skip-special\n");
}

/* --- one text, one list ------------------------------------------------------------------------------- */

/* The text of each id, as it would be streamed: a character is part of the piece that completes it. */
static FtxStatus pieces_json(const Tokenizer *t, const int32_t *ids, size_t n, json_t **out, FtxError *err)
{
    const size_t room = tokenizer_token_bytes(t) + 16;
    TokenizerStream stream = {.keep_special = true};
    char *piece = command_must(malloc(room));
    FtxStatus s = FTX_OK;
    json_t *list = json_array();

    for (size_t i = 0; i < n && !s; i++) {
        size_t bytes;

        s = tokenizer_stream(t, &stream, ids[i], i + 1 == n, piece, room, &bytes, err);
        if (!s)
            json_array_append_new(list, runner_json_text(piece, bytes));
    }
    free(piece);
    if (s)
        json_decref(list);
    else
        *out = list;
    return s;
}

static FtxStatus print_ids(const Tokens *t, const int32_t *ids, size_t n, FtxError *err)
{
    json_t *list, *pieces;
    FtxStatus s;

    if (!t->o.json) {
        for (size_t i = 0; i < n; i++)
            printf("%s%d", i ? "," : "", ids[i]);
        putchar('\n');
        return FTX_OK;
    }
    s = pieces_json(t->tokenizer, ids, n, &pieces, err);
    if (s)
        return s;
    list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ids[i]));
    runner_json_print(json_pack("{so,so}", "ids", list, "pieces", pieces));
    return FTX_OK;
}

static FtxStatus tokenize(const Tokens *t, const char *text, size_t bytes, FtxError *err)
{
    const TokenizerPair pair = {.text = text, .bytes = bytes, .special = !t->o.no_bos, .literal = t->o.literal};
    TokenizerScratch *scratch;
    int32_t *ids = NULL;
    size_t n = 0;
    FtxStatus s = tokenizer_scratch_open(t->tokenizer, bytes, &scratch, err);

    if (s)
        return s;
    s = tokenizer_encode_pair(t->tokenizer, scratch, &pair, NULL, NULL, 0, &n, err);
    if (!s) {
        ids = command_must(calloc(n + 1, sizeof *ids));
        s = tokenizer_encode_pair(t->tokenizer, scratch, &pair, ids, NULL, n, &n, err);
    }
    if (!s)
        s = print_ids(t, ids, n, err);
    free(ids);
    tokenizer_scratch_close(scratch);
    return s;
}

/* "5,17,9", "[5, 17, 9]" or {"ids": [5, 17, 9]}; the caller frees *ids. */
static FtxStatus parse_ids(const char *text, size_t bytes, int32_t **ids, size_t *n, FtxError *err)
{
    const size_t blank = strspn(text, " \t\r");
    json_t *all, *list;
    bool whole = true;

    *n = 0;
    if (blank == bytes) {
        *ids = command_must(calloc(1, sizeof **ids));
        return FTX_OK;
    }
    if (text[blank] != '[' && text[blank] != '{')
        return strlen(text) == bytes && options_list(text, ids, n)
                   ? FTX_OK
                   : ftx_fail(err, FTX_EINVAL, "expected token ids with commas between, found \"%.200s\"", text);
    all = json_loadb(text, bytes, 0, NULL);
    list = json_is_object(all) ? json_object_get(all, "ids") : all;
    *ids = command_must(calloc(json_array_size(list) + 1, sizeof **ids));
    for (size_t i = 0; i < json_array_size(list) && whole; i++) {
        const json_t *id = json_array_get(list, i);

        whole = json_is_integer(id) && json_integer_value(id) >= 0 && json_integer_value(id) <= INT32_MAX;
        (*ids)[(*n)++] = (int32_t)json_integer_value(id);
    }
    whole = whole && json_is_array(list);
    json_decref(all);
    return whole ? FTX_OK
                 : ftx_fail(err, FTX_EINVAL, "expected a JSON array of token ids, or an object with such a field ids");
}

static FtxStatus detokenize(const Tokens *t, const char *line, size_t line_bytes, FtxError *err)
{
    const uint32_t vocab = t->artifact.facts->vocab;
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n, bytes = 0;
    FtxStatus s = parse_ids(line, line_bytes, &ids, &n, err);

    for (size_t i = 0; i < n && !s; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= vocab)
            s = ftx_fail(err, FTX_EINVAL, "%d is no token id (0 to %u)", ids[i], vocab - 1);
    if (!s)
        s = tokenizer_decode(t->tokenizer, ids, n, t->o.skip_special, NULL, 0, &bytes, err);
    if (!s) {
        text = command_must(malloc(bytes + 1));
        s = tokenizer_decode(t->tokenizer, ids, n, t->o.skip_special, text, bytes, &bytes, err);
    }
    if (!s && t->o.json) {
        runner_json_print(json_pack("{so}", "text", runner_json_text(text, bytes)));
    } else if (!s) {
        fwrite(text, 1, bytes, stdout);
        putchar('\n');
    }
    free(text);
    free(ids);
    return s;
}

/* --- all of them -------------------------------------------------------------------------------------- */

typedef FtxStatus OneText(const Tokens *t, const char *text, size_t bytes, FtxError *err);

static int run_lines(const Tokens *t, OneText *one, Lines *lines)
{
    FtxError err;
    char *line;
    size_t bytes;
    int code = EXIT_DONE;

    for (size_t number = 1; (line = lines_next(lines, true, &bytes)); number++) {
        if (one(t, line, bytes, &err)) {
            ftx_context(&err, err.status, "line %zu", number);
            code = command_failed(&err);
            if (t->o.json) /* the others keep their places */
                runner_json_print(json_pack("{so}", "error", runner_json_text(err.text, strlen(err.text))));
            else
                putchar('\n');
        }
        fflush(stdout);
        free(line);
    }
    return lines->failed ? EXIT_FAILED : code;
}

static int run_whole(const Tokens *t, OneText *one, Lines *lines)
{
    FtxError err;
    size_t bytes;
    char *text = lines_rest(lines, &bytes);
    int code;

    if (!text)
        return EXIT_FAILED;
    if (bytes && text[bytes - 1] == '\n' && !t->o.keep_newline)
        bytes--;
    code = one(t, text, bytes, &err) ? command_failed(&err) : EXIT_DONE;
    free(text);
    return code;
}

static int run_all(const Tokens *t, OneText *one, const TextList *rest)
{
    FtxError err;
    Lines lines;
    int code = EXIT_DONE;

    for (size_t i = 1; i < rest->n; i++)
        if (one(t, rest->at[i], strlen(rest->at[i]), &err))
            code = command_failed(&err);
    if (rest->n > 1)
        return code;
    if (!t->o.file && isatty(0))
        return command_mistake(t->command, "nothing to read: give an argument, --file, or standard input");
    if (!lines_open(&lines, t->o.file))
        return EXIT_FAILED;
    code = t->o.batch ? run_lines(t, one, &lines) : run_whole(t, one, &lines);
    lines_close(&lines);
    return code;
}

static int run_tokens(Tokens *t, OneText *one, const TextList *rest)
{
    FtxError err = {0};
    int code;

    if (rest->n < 1)
        return command_mistake(t->command, "expected an artifact, and perhaps what to %s", t->command);
    if (t->o.file && rest->n > 1)
        return command_mistake(t->command, "--file takes the place of arguments, and one is given too");
    if (t->o.batch && t->o.keep_newline)
        return command_mistake(t->command, "--keep-newline: with --batch each line is a text, so none has a newline");
    if (artifact_open(rest->at[0], &t->artifact, &err))
        return command_failed(&err);
    if (!t->artifact.tokenizer)
        ftx_fail(&err, FTX_EINVAL, "%s has no tokenizer", rest->at[0]);
    else
        tokenizer_open(t->artifact.tokenizer, t->artifact.tokenizer_bytes, &t->tokenizer, &err);
    code = err.status ? command_failed(&err) : run_all(t, one, rest);
    tokenizer_close(t->tokenizer);
    artifact_close(&t->artifact);
    return code;
}

int command_tokenize(int argc, char **argv)
{
    Tokens t = {.command = "tokenize"};
    TextList rest = {0};
    char error[300];

    if (!options_parse(tokenize_table, LEN(tokenize_table), argc, argv, &t.o, &rest, error, sizeof error))
        return command_mistake("tokenize", "%s", error);
    if (t.o.help) {
        help_tokenize();
        return EXIT_DONE;
    }
    return run_tokens(&t, tokenize, &rest);
}

int command_detokenize(int argc, char **argv)
{
    Tokens t = {.command = "detokenize"};
    TextList rest = {0};
    char error[300];

    if (!options_parse(detokenize_table, LEN(detokenize_table), argc, argv, &t.o, &rest, error, sizeof error))
        return command_mistake("detokenize", "%s", error);
    if (t.o.help) {
        help_detokenize();
        return EXIT_DONE;
    }
    t.o.batch = true; /* each line is a list */
    return run_tokens(&t, detokenize, &rest);
}
