/* commands/compile.c - ftxc compile: a spec or a checkout to an artifact. */
#include "../compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calibrate.h"
#include "command.h"
#include "progress.h"
#include "../embed.h"
#include "../gguf/gguf.h"
#include "../../runner/json.h"
#include "../../runner/lines.h"
#include "../../runner/options.h"
#include "../../runtime/base/file.h"

typedef struct Options {
    bool help, no_weights, sidecar, exe, quiet, json;
    const char *out, *targets, *tune, *calibrate, *emit, *dump, *dump_dir;
    TextList defines, adapters;
} Options;

#define AT(field) offsetof(Options, field)
static const Option table[] = {
    {"--output", 'o', OPT_TEXT, "FILE",
     "the artifact to write (default: NAME.ftx, or NAME with --exe, by the name of the spec or folder)", AT(out), 0},
    {"--target", 't', OPT_TEXT, "LIST", targets_help, AT(targets), 0},
    {"--tune", 0, OPT_TEXT, "FILE", "constants measured by ftxc tune on a GPU (default: files that are found; none)",
     AT(tune), 0},
    {"--define", 'D', OPT_LIST, "FIELD=VALUE",
     "set a field of the spec: -D limits.context=256; with -D precision.sums=fixed a GPU gives a request the same bits "
     "whatever runs beside it, with -D limits.masks=true it applies grammars at hardly any cost",
     AT(defines), 0},
    {"--lora", 0, OPT_LIST, "DIR", "merge a LoRA adapter of PEFT into the weights; several: in their order",
     AT(adapters), 0},
    {"--calibrate", 0, OPT_TEXT, "FILE",
     "choose the codes of int4 weights for what they multiply on these texts, which the unquantised model reads first "
     "(-: "
     "standard input)",
     AT(calibrate), 0},
    {"--exe", 0, OPT_FLAG, NULL, "write a program that needs nothing else: ./NAME \"Once upon a time\"", AT(exe), 0},
    {"--sidecar", 0, OPT_FLAG, NULL, "write the weights to FILE.ftxw beside the artifact", AT(sidecar), 0},
    {"--no-weights", 0, OPT_FLAG, NULL, "store no weights: run and bench need --random-weights", AT(no_weights), 0},
    {"--emit-cuda", 0, OPT_TEXT, "DIR", "write every generated kernel as a file that compiles alone", AT(emit), 0},
    {"--dump", 0, OPT_TEXT, "LETTERS", "write the graph after these passes (ftxc help opt lists them)", AT(dump), 0},
    {"--dump-dir", 0, OPT_TEXT, "DIR", "folder of the dumps (default: the current folder)", AT(dump_dir), 0},
    {"--json", 0, OPT_FLAG, NULL, "print the summary as JSON", AT(json), 0},
    {"--quiet", 'q', OPT_FLAG, NULL, "no progress, no summary", AT(quiet), 0},
    {"--help", 'h', OPT_FLAG, NULL, "this text", AT(help), 0},
};
#undef AT

/* The last part of a path; for "." and ".." the name of that folder. */
static const char *last_part(const char *path, Arena *keep)
{
    size_t n = strlen(path);
    const char *base;
    char *real;

    while (n > 1 && path[n - 1] == '/')
        n--;
    path = arena_strndup(keep, path, n);
    base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    if (strcmp(base, ".") != 0 && strcmp(base, "..") != 0)
        return base;
    real = realpath(path, NULL);
    base = real ? arena_strdup(keep, strrchr(real, '/') + 1) : base;
    free(real);
    return base;
}

/* specs/fable.lua -> fable.ftx in the current folder, or fable with --exe */
static const char *default_out(const char *spec, bool exe, Arena *keep)
{
    const char *base = last_part(spec, keep);
    size_t n = gguf_stem(base);

    if (n > 4 && strcmp(base + n - 4, ".lua") == 0)
        n -= 4;
    return arena_printf(keep, "%.*s%s", (int)n, base, exe ? "" : ".ftx");
}

/* Checked before the work, which may take minutes. */
static bool can_write(const char *path)
{
    FtxError err;
    FileOut *out;

    if (file_create(path, &out, &err)) {
        command_say(err.text);
        return false;
    }
    file_abort(out);
    return true;
}

/* The texts of --calibrate. NULL: they cannot be read, and the reason has been printed. */
static char *read_texts(const char *file, size_t *bytes)
{
    Lines lines;
    char *text;

    if (!lines_open(&lines, file))
        return NULL;
    text = lines_rest(&lines, bytes);
    lines_close(&lines);
    return text;
}

/* What an engine takes beside the weights. */
/* Without the KV cache, whose size is decided when an engine opens. */
static uint64_t engine_bytes(const FtxPlan *p)
{
    const uint64_t *bytes = p->space_bytes;

    return bytes[FTX_SPACE_STATE] + bytes[FTX_SPACE_IO] + bytes[FTX_SPACE_WORK] + bytes[FTX_SPACE_OUT];
}

/* Of all tokens that the limits can use. */
static uint64_t kv_bytes(const CompileResult *r, size_t plan)
{
    return r->kv_pages * r->plans[plan].space_bytes[FTX_SPACE_PAGES];
}

/* The largest engine on the CPU, or on a GPU. */
static void print_engine(const CompileResult *r, bool gpu)
{
    size_t most = r->targets.n;
    double bytes, work;

    for (size_t i = 0; i < r->targets.n; i++)
        if ((r->targets.at[i].id != FTX_TARGET_CPU) == gpu &&
            (most == r->targets.n || engine_bytes(&r->plans[most]) < engine_bytes(&r->plans[i])))
            most = i;
    if (most == r->targets.n)
        return;
    bytes = (double)engine_bytes(&r->plans[most]);
    work = (double)r->plans[most].space_bytes[FTX_SPACE_WORK];
    printf(", engine%s%s %.1f MB: state %.1f, workspace %.1f (the lower bound %.1f)", r->targets.n > 1 ? " on " : "",
           r->targets.n > 1 ? r->targets.at[most].name : "", bytes * 1e-6, (bytes - work) * 1e-6, work * 1e-6,
           (double)r->plans[most].lower_bound * 1e-6);
    if (kv_bytes(r, most)) /* a model without attention has none */
        printf(", KV cache of up to %llu tokens %.1f MB", (unsigned long long)r->kv_pages * r->kv_block,
               (double)kv_bytes(r, most) * 1e-6);
}

static void print_summary(const char *out, const char *path, const CompileResult *r, double seconds)
{
    printf("%s: %s from the %s %s, for", out, r->name, r->kind, path);
    for (size_t i = 0; i < r->targets.n; i++)
        printf("%s %s", i ? "," : "", r->targets.at[i].name);
    printf("; %zu kernels, weights %.1f MB", r->n_instances, (double)r->weight_bytes * 1e-6);
    print_engine(r, false);
    print_engine(r, true);
    printf("; %.2f s\n", seconds);
}

static void print_notes(const CompileResult *r)
{
    for (size_t i = 0; i < LEN(r->notes); i++)
        if (r->notes[i])
            command_say(r->notes[i]);
}

static void print_json(const char *out, const char *path, const CompileResult *r, double seconds)
{
    json_t *targets = json_array();

    for (size_t i = 0; i < r->targets.n; i++)
        json_array_append_new(targets, json_pack("{ss,sI,sI,sI}", "target", r->targets.at[i].name, "engine_bytes",
                                                 (json_int_t)engine_bytes(&r->plans[i]), "work_bytes",
                                                 (json_int_t)r->plans[i].space_bytes[FTX_SPACE_WORK],
                                                 "work_lower_bound", (json_int_t)r->plans[i].lower_bound));
    runner_json_print(json_pack("{so,so,ss,so,so,sI,sI,sf}", "artifact", runner_json_text(out, strlen(out)), "name",
                                runner_json_text(r->name, strlen(r->name)), "kind", r->kind, "path",
                                runner_json_text(path, strlen(path)), "targets", targets, "kernels",
                                (json_int_t)r->n_instances, "weight_bytes", (json_int_t)r->weight_bytes, "seconds",
                                seconds));
}

int command_compile(int argc, char **argv)
{
    Options o = {0};
    TextList rest = {0};
    Override overrides[LEN(o.defines.at)];
    CompileOptions c = {0};
    CompileResult r = {0};
    Calibration calibration = {0};
    ProgressLine progress = {0};
    Diag d = {0};
    char error[300];
    const double start = command_seconds();
    char *texts = NULL;
    size_t bytes = 0;
    Arena *keep;
    int code = EXIT_DONE;

    if (!options_parse(table, LEN(table), argc, argv, &o, &rest, error, sizeof error))
        return command_mistake("compile", "%s", error);
    if (o.help) {
        printf("ftxc compile SPEC|DIR|FILE.gguf [options]\n\nCompiles a model spec (model.lua), a folder with a "
               "Hugging Face "
               "checkout\n"
               "(config.json, safetensors, tokenizer.json), or a GGUF file into one artifact.\n\n");
        options_help(table, LEN(table));
        printf("\nExamples:\n  ftxc compile specs/fable.lua -o fable.ftx\n"
               "  ftxc compile ~/models/Llama-3.2-1B -t sm_90a -D limits.context=8192 -D precision.weights=bf16\n"
               "  ftxc compile ~/models/Llama-3.2-1B --lora ~/adapters/pirate -o pirate.ftx\n"
               "  ftxc compile specs/fable.lua --exe -o story && ./story \"Once upon a time\"\n");
        return EXIT_DONE;
    }
    if (rest.n != 1)
        return command_mistake("compile", "expected one spec or folder, found %zu arguments", rest.n);
    if (o.exe && (o.sidecar || o.no_weights))
        return command_mistake("compile", "--exe writes one file that needs nothing else: leave %s out",
                               o.sidecar ? "--sidecar" : "--no-weights");
    if (o.sidecar && o.no_weights)
        return command_mistake(
            "compile", "--sidecar writes the weights to a second file, --no-weights stores none: give one of them");
    if (o.calibrate && o.no_weights)
        return command_mistake("compile",
                               "--calibrate runs the model, and --no-weights stores no weights: leave one out");
    keep = arena_open();
    for (size_t i = 0; i < o.defines.n; i++)
        overrides[i].text = o.defines.at[i];
    c = (CompileOptions){
        .spec = rest.at[0],
        .out = o.out ? o.out : default_out(rest.at[0], o.exe, keep),
        .targets = o.targets,
        .tune = o.tune,
        .overrides = overrides,
        .n_overrides = o.defines.n,
        .adapters = o.adapters.at,
        .n_adapters = o.adapters.n,
        .no_weights = o.no_weights,
        .calibration = o.calibrate ? &calibration : NULL,
        .calibrated_with = o.calibrate,
        .sidecar = o.sidecar,
        .progress = o.quiet || !isatty(2) ? NULL : progress_line,
        .user = &progress,
        .program = o.exe ? embedded_runner : NULL,
        .program_bytes = o.exe ? (uintptr_t)embedded_runner_end - (uintptr_t)embedded_runner : 0,
        .emit = o.emit,
        .dump = {o.dump, o.dump_dir ? o.dump_dir : "."},
    };
    if (!can_write(c.out) || (o.calibrate && !(texts = read_texts(o.calibrate, &bytes)))) {
        code = EXIT_FAILED;
    } else if ((texts && !calibrate(&c, texts, bytes, keep, &calibration, &d)) || !compile(&c, keep, &r, &d)) {
        command_print("ftxc: %s\n", d.text);
        code = d.machine ? EXIT_FAILED : EXIT_MISTAKE;
    } else if (o.json) {
        print_notes(&r);
        print_json(c.out, c.spec, &r, command_seconds() - start);
    } else if (!o.quiet) {
        print_notes(&r);
        print_summary(c.out, c.spec, &r, command_seconds() - start);
    }
    free(texts);
    arena_close(keep);
    return code;
}
