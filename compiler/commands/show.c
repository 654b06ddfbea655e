/* commands/show.c - ftxc show: what is in an artifact. */
#include <stdio.h>

#include "command.h"
#include "../../runner/options.h"
#include "../explain/explain.h"
#include "../../runtime/base/arena.h"

typedef struct Options {
    bool help;
    ShowOptions show;
} Options;

#define AT(field) offsetof(Options, field)
static const Option table[] = {
    {"--memory", 'm', OPT_FLAG, NULL, "memory map: which buffer is where, and during which launches", AT(show.memory),
     0},
    {"--kernels", 'k', OPT_FLAG, NULL, "kernels with their registers, shared memory and spills", AT(show.kernels), 0},
    {"--verify", 0, OPT_FLAG, NULL, "also check the checksum of the weights", AT(show.verify), 0},
    {"--json", 0, OPT_FLAG, NULL, "one object with everything", AT(show.json), 0},
    {"--help", 'h', OPT_FLAG, NULL, "this text", AT(help), 0},
};
#undef AT

int command_show(int argc, char **argv)
{
    Options o = {0};
    TextList rest = {0};
    FtxError err = {0};
    char error[300];

    if (!options_parse(table, LEN(table), argc, argv, &o, &rest, error, sizeof error))
        return command_mistake("show", "%s", error);
    if (o.help) {
        printf(
            "ftxc show FILE.ftx [options]\n\nWhat an artifact holds: facts, limits, sections, weights, programs.\n\n");
        options_help(table, LEN(table));
        printf("\nExamples:\n  ftxc show fable.ftx --memory\n"
               "  ftxc show fable.ftx --verify --json\n");
        return EXIT_DONE;
    }
    if (rest.n != 1)
        return command_mistake("show", "expected one artifact, found %zu arguments", rest.n);
    return explain_show(rest.at[0], &o.show, stdout, &err) ? command_failed(&err) : EXIT_DONE;
}
