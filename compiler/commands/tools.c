/* commands/tools.c - ftxc opt, why and ops: looks inside the compiler. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "../../runner/options.h"
#include "../compile.h"
#include "../../runtime/base/file.h"

int command_ops(int argc, char **argv)
{
    if (argc > 0 && strcmp(argv[0], "--help") != 0 && strcmp(argv[0], "-h") != 0)
        return command_mistake("ops", "it takes no arguments, found \"%s\"", argv[0]);
    for (int op = OP_NONE + 1; op < OP_COUNT; op++)
        printf("%-13s %-26s -> %s\n%s%s%s", ir_op_name((Op)op), ir_op_args((Op)op), ir_op_result((Op)op),
               *ir_op_attrs((Op)op) ? "              {" : "", ir_op_attrs((Op)op), *ir_op_attrs((Op)op) ? "}\n" : "");
    return EXIT_DONE;
}

/* --- opt -------------------------------------------------------------------------------------------- */

typedef struct OptOptions {
    bool help;
    const char *pass, *weights, *compute;
} OptOptions;

static const Option opt_table[] = {
    {"--pass", 'p', OPT_TEXT, "NAME[,NAME]", "passes to run, in this order", offsetof(OptOptions, pass), 0},
    {"--weights", 0, OPT_TEXT, "TYPE", "storage type of matrices: fp32, fp16 or bf16 (default bf16)",
     offsetof(OptOptions, weights), 0},
    {"--compute", 0, OPT_TEXT, "TYPE", "type of activations: fp32, fp16 or bf16 (default fp32)",
     offsetof(OptOptions, compute), 0},
    {"--help", 'h', OPT_FLAG, NULL, "this text", offsetof(OptOptions, help), 0},
};

int command_opt(int argc, char **argv)
{
    OptOptions o = {0};
    TextList rest = {0};
    Precision precision = {.weights = DT_BF16, .compute = DT_FP32};
    FileMap file;
    FtxError err;
    Diag d = {0};
    const char *in_file;
    char error[300], *names, *text;
    size_t bytes;
    Graph *g;
    bool ok;

    if (!options_parse(opt_table, LEN(opt_table), argc, argv, &o, &rest, error, sizeof error))
        return command_mistake("opt", "%s", error);
    if (o.help) {
        printf("ftxc opt FILE.ir --pass=NAME[,NAME]\n\nRuns passes over a graph in text form and prints the graph they "
               "leave.\n\n");
        options_help(opt_table, LEN(opt_table));
        printf("\nPasses:\n");
#define PASS(key, name, needs, gives, what) printf("  %c %-10s  leaves the graph with %s\n", key, #name, what);
#include "../passes/passes.def"
#undef PASS
        printf("\nStages after the passes, for each target; `ftxc compile --dump` takes their letters, too:\n");
#define STAGE(key, name, what) printf("  %c %-10s  leaves %s\n", key, #name, what);
#include "../passes/passes.def"
#undef STAGE
        printf("\nExamples:\n  ftxc compile specs/fable.lua --dump S && ftxc opt 02-simplify.ir --pass=precision\n"
               "  ftxc opt 02-simplify.ir --pass=simplify,precision --weights fp16\n");
        return EXIT_DONE;
    }
    if (rest.n != 1)
        return command_mistake("opt", "expected one graph file, found %zu arguments", rest.n);
    if (o.weights && !(precision.weights = dtype_parse(o.weights)))
        return command_mistake("opt", "--weights: no type \"%s\"", o.weights);
    if (o.compute && !(precision.compute = dtype_parse(o.compute)))
        return command_mistake("opt", "--compute: no type \"%s\"", o.compute);
    if (file_map(rest.at[0], &file, &err)) {
        command_print("ftxc: %s\n", err.text);
        return EXIT_FAILED;
    }
    in_file = file_text(&file, &bytes);
    if (memchr(in_file, '\0', bytes)) {
        command_print("ftxc: %s: not a text file: it has a byte of value 0\n", rest.at[0]);
        file_unmap(&file);
        return EXIT_MISTAKE;
    }
    text = strndup(in_file, bytes);
    names = strdup(o.pass ? o.pass : "");
    if (!text || !names)
        die("out of memory");
    g = ir_parse(rest.at[0], text, &d);
    ok = g != NULL;
    for (char *save = NULL, *w = strtok_r(names, ",", &save); ok && w; w = strtok_r(NULL, ",", &save))
        ok = passes_run_one(g, w, &precision, &d);
    if (ok)
        ir_print(g, stdout);
    else
        command_print("ftxc: %s\n", d.text);
    if (g)
        ir_graph_close(g);
    free(names);
    free(text);
    file_unmap(&file);
    return ok ? EXIT_DONE : EXIT_MISTAKE;
}

/* --- why -------------------------------------------------------------------------------------------- */

typedef struct WhyOptions {
    bool help;
    const char *target, *tune;
    TextList defines;
} WhyOptions;

static const Option why_table[] = {
    {"--target", 't', OPT_TEXT, "NAME", "one target, such as cpu, sm_80 or h200 (default cpu)",
     offsetof(WhyOptions, target), 0},
    {"--tune", 0, OPT_TEXT, "FILE", "constants measured by ftxc tune on a GPU (default: files that are found; none)",
     offsetof(WhyOptions, tune), 0},
    {"--define", 'D', OPT_LIST, "FIELD=VALUE", "set a field of the spec", offsetof(WhyOptions, defines), 0},
    {"--help", 'h', OPT_FLAG, NULL, "this text", offsetof(WhyOptions, help), 0},
};

/* Which values `%20`, `20` or the name of a weight stands for; NULL: none. */
static bool *find_values(const Graph *g, const char *word, Arena *keep, Diag *d)
{
    const char *v = word + (*word == '%');
    char *end;
    const unsigned long id = strtoul(v, &end, 10);
    const bool is_number = end != v && !*end;
    bool *values = passes_values_of(g, is_number ? "" : word, keep), found = false;

    if (is_number && id > 0 && id < g->values.n)
        values[id] = true;
    for (Id i = 1; i < g->values.n; i++)
        found |= values[i];
    if (!found)
        diag_error(
            d, (Loc){0},
            "no value \"%s\"; the graph has %%1 to %%%zu, and no weight with these parts in its name: `ftxc why SPEC` "
            "prints it",
            word, g->values.n - 1);
    return found ? values : NULL;
}

int command_why(int argc, char **argv)
{
    WhyOptions o = {0};
    TextList rest = {0};
    Override overrides[LEN(o.defines.at)];
    Targets targets = {.n = 1};
    Catalog catalog;
    Spec spec = {0};
    Diag d = {0};
    Arena *keep;
    char error[300];
    bool ok;

    if (!options_parse(why_table, LEN(why_table), argc, argv, &o, &rest, error, sizeof error))
        return command_mistake("why", "%s", error);
    if (o.help) {
        printf(
            "ftxc why SPEC|DIR [%%VALUE|NAME]\n\nWithout a value: prints the graph after its passes. With one: the "
            "kernels that could\n"
            "compute it, the cost of each, and why it was taken or not. NAME stands for the values that are computed\n"
            "with a weight; parts of its name may be left out.\n\n");
        options_help(why_table, LEN(why_table));
        printf("\nExamples:\n  ftxc why specs/fable.lua\n"
               "  ftxc why specs/fable.lua %%20 -t sm_90a\n"
               "  ftxc why specs/fable.lua layers.3.down_proj -t sm_90a\n");
        return EXIT_DONE;
    }
    if (rest.n < 1 || rest.n > 2)
        return command_mistake("why", "expected a spec and at most one value, found %zu arguments", rest.n);
    keep = arena_open();
    for (size_t i = 0; i < o.defines.n; i++)
        overrides[i].text = o.defines.at[i];
    ok = target_parse(o.target ? o.target : "cpu", &targets.at[0], &d) &&
         spec_read(rest.at[0], overrides, o.defines.n, keep, &spec, &d);
    ok = ok && passes_run_graph(spec.graph, &spec.precision, &(Dump){0}, &d) && catalog_open(keep, &catalog, &d) &&
         tunings_find(o.tune, false, &spec, &targets, keep, &d);
    if (ok && rest.n == 1)
        ir_print(spec.graph, stdout);
    if (ok && rest.n == 2) {
        bool *values = find_values(spec.graph, rest.at[1], keep, &d);

        ok = values != NULL;
        for (Id v = 1; ok && v < spec.graph->values.n; v++)
            if (values[v])
                ok = passes_why(spec.graph, &catalog, targets.at[0], &spec.precision, v, stdout, &d);
    }
    if (!ok)
        command_print("ftxc: %s\n", d.text);
    if (spec.graph)
        ir_graph_close(spec.graph);
    arena_close(keep);
    return ok ? EXIT_DONE : d.machine ? EXIT_FAILED : EXIT_MISTAKE;
}
