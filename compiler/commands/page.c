/* commands/page.c - ftxc page: a plan and how it came about, as one page of HTML. */
#include "../compile.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"
#include "../../runner/options.h"
#include "../../runtime/base/file.h"
#include "../explain/explain.h"

typedef struct Options {
    bool help;
    const char *out, *targets, *measured;
    TextList defines;
} Options;

#define AT(field) offsetof(Options, field)
static const Option table[] = {
    {"--output", 'o', OPT_TEXT, "FILE", "the page to write (default: page.html)", AT(out), 0},
    {"--target", 't', OPT_TEXT, "LIST", targets_help, AT(targets), 0},
    {"--define", 'D', OPT_LIST, "FIELD=VALUE", "set a field of the spec: -D limits.context=256", AT(defines), 0},
    {"--measured", 'm', OPT_TEXT, "FILE",
     "also show measured times: lines of `ftxc bench --json`, of steps or with --profile of kernels, or a timeline "
     "that --trace wrote",
     AT(measured), 0},
    {"--help", 'h', OPT_FLAG, NULL, "this text", AT(help), 0},
};
#undef AT

/* A spec is a .lua file and a checkout a folder; every other file must be an artifact. */
static bool is_artifact(const char *path)
{
    const size_t n = strlen(path);
    struct stat st;

    return !(n > 4 && strcmp(path + n - 4, ".lua") == 0) && !(stat(path, &st) == 0 && S_ISDIR(st.st_mode));
}

static int write_page(const Options *o, const char *path, Arena *keep)
{
    const char *out = o->out ? o->out : "page.html", *text;
    Override overrides[LEN(o->defines.at)];
    PageOptions page = {.path = path,
                        .artifact = is_artifact(path),
                        .measured = o->measured,
                        .overrides = overrides,
                        .n_overrides = o->defines.n};
    FtxError err;
    Diag d = {0};
    size_t bytes;

    if (page.artifact && (o->targets || o->defines.n))
        return command_mistake("page", "-t and -D are for specs: an artifact has the plans that it was compiled with");
    for (size_t i = 0; i < o->defines.n; i++)
        overrides[i].text = o->defines.at[i];
    if ((!page.artifact && !targets_parse(o->targets ? o->targets : options_targets(keep), &page.targets, &d)) ||
        !explain_page(&page, keep, &text, &bytes, &d)) {
        command_print("ftxc: %s\n", d.text);
        return d.machine ? EXIT_FAILED : EXIT_MISTAKE;
    }
    if (file_write_whole(out, text, bytes, &err))
        return command_failed(&err);
    printf("%s: %.1f KB; open it in a browser\n", out, (double)bytes * 1e-3);
    return EXIT_DONE;
}

int command_page(int argc, char **argv)
{
    Options o = {0};
    TextList rest = {0};
    char error[300];
    Arena *keep;
    int code;

    if (!options_parse(table, LEN(table), argc, argv, &o, &rest, error, sizeof error))
        return command_mistake("page", "%s", error);
    if (o.help) {
        printf(
            "ftxc page SPEC|DIR|FILE.ftx [options]\n\n"
            "Writes one HTML file to look at: the graph after each pass beside the one before, the kernels that could\n"
            "compute each value with their costs, the launches of a step as a timeline, and what lives where in\n"
            "memory, and when. The file needs no network. Costs are estimates: they order candidates and predict no\n"
            "times. An artifact holds no graph and no candidates; the page of its spec shows them.\n\n");
        options_help(table, LEN(table));
        printf("\nExamples:\n  ftxc page specs/fable.lua -t sm_90a -o fable.html\n"
               "  ftxc page fable.ftx\n"
               "  ftxc run fable.ftx \"Once upon a time\" -d cpu --trace fable.json\n"
               "  ftxc page specs/fable.lua -t cpu -m fable.json\n");
        return EXIT_DONE;
    }
    if (rest.n != 1)
        return command_mistake("page", "expected one spec, folder or artifact, found %zu arguments", rest.n);
    keep = arena_open();
    code = write_page(&o, rest.at[0], keep);
    arena_close(keep);
    return code;
}
