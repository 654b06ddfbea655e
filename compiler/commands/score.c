/* commands/score.c - ftxc score: how likely a model finds a text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "../../runner/device.h"
#include "../../runner/json.h"
#include "../../runner/options.h"
#include "../../runtime/base/arena.h"
#include "../../runtime/base/file.h"

typedef struct Options {
    bool help, json;
    const char *device, *ids;
    int threads;
} Options;

#define AT(field) offsetof(Options, field)
static const Option table[] = {
    {"--ids", 0, OPT_TEXT, "5,17,9", "token ids in place of a text", AT(ids), 0},
    {"--json", 0, OPT_FLAG, NULL, "one object: ids, logprobs, mean loss, perplexity", AT(json), 0},
    {"--device", 'd', OPT_TEXT, "NAME", "cpu, cuda, cuda:N or auto", AT(device), 0},
    {"--threads", 0, OPT_INT, "N", "CPU threads", AT(threads), 0},
    {"--help", 'h', OPT_FLAG, NULL, "this text", AT(help), 0},
};
#undef AT

static void print(const Options *o, const int32_t *ids, const float *logprobs, size_t n)
{
    json_t *list, *values;
    double sum = 0.0;

    for (size_t i = 0; i + 1 < n; i++)
        sum -= (double)logprobs[i];
    sum /= (double)(n - 1);
    if (!o->json) {
        printf("%zu tokens, mean loss %.5f nats, perplexity %.3f\n", n, sum, exp(sum));
        return;
    }
    list = json_array();
    values = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ids[i]));
    for (size_t i = 0; i + 1 < n; i++)
        json_array_append_new(values, runner_json_number((double)logprobs[i]));
    runner_json_print(json_pack("{so,so,so,so}", "ids", list, "logprobs", values, "loss", runner_json_number(sum),
                                "perplexity", runner_json_number(exp(sum))));
}

int command_score(int argc, char **argv)
{
    Options o = {0};
    TextList rest = {0};
    FtxOptions open;
    FtxModelInfo info;
    FtxModel *model = NULL;
    FtxEngine *engine = NULL;
    FtxError err = {0};
    FileMap file = {0};
    char error[300];
    int32_t *ids = NULL;
    float *logprobs = NULL;
    size_t n = 0;
    int code = EXIT_FAILED;

    if (!options_parse(table, LEN(table), argc, argv, &o, &rest, error, sizeof error))
        return command_mistake("score", "%s", error);
    if (o.help) {
        printf("ftxc score FILE.ftx TEXTFILE\n\nMean loss and perplexity of a text (at most the model's context) under "
               "the model.\n\n");
        options_help(table, LEN(table));
        printf("\nExamples:\n  ftxc score fable.ftx tale.txt\n"
               "  ftxc score fable.ftx --ids 0,5,17,9 --json\n");
        return EXIT_DONE;
    }
    if (rest.n != (o.ids ? 1u : 2u))
        return command_mistake("score", "expected an artifact and a text file, or --ids");
    if (!device_parse(o.device, o.threads, 0, &open, error, sizeof error))
        return command_mistake("score", "%s", error);
    if (ftx_model_open(rest.at[0], &open, &model, &err) || ftx_engine_open(model, &open, &engine, &err))
        goto end;
    ftx_model_info(model, &info);
    ids = calloc((size_t)info.context + 1, sizeof *ids);
    logprobs = calloc((size_t)info.context + 1, sizeof *logprobs);
    if (!ids || !logprobs) {
        snprintf(err.text, sizeof err.text, "out of memory");
        goto end;
    }
    if (o.ids) {
        if (!options_numbers(o.ids, ids, (size_t)info.context + 1, &n)) {
            code = command_mistake("score", "--ids: expected numbers with commas between, at most %d", info.context);
            err.text[0] = '\0';
            goto end;
        }
    } else if (file_map(rest.at[1], &file, &err) ||
               ftx_tokenize(model, file.at ? file.at : "", file.bytes, true, ids, (size_t)info.context + 1, &n, &err)) {
        goto end;
    }
    if (ftx_engine_score(engine, ids, n, logprobs, &err))
        goto end;
    print(&o, ids, logprobs, n);
    code = EXIT_DONE;
end:
    if (code != EXIT_DONE && err.text[0])
        code = command_failed(&err);
    file_unmap(&file);
    free(ids);
    free(logprobs);
    ftx_engine_close(engine);
    ftx_model_close(model);
    return code;
}
