/* main.c - ftxc: finds the command and runs it. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "commands/command.h"
#include "../runner/chat.h"
#include "../runner/run.h"
#include "../server/load.h"
#include "../server/serve.h"
#include "../runtime/base/arena.h"
#include "../runtime/base/file.h"

static int run_artifact(int argc, char **argv)
{
    return run(NULL, argc, argv);
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *args, *what;
} commands[] = {
    {"compile", command_compile, "SPEC|DIR|FILE.gguf -o FILE.ftx",
     "compile a model spec, a Hugging Face checkout or a GGUF file"},
    {"run", run_artifact, "FILE.ftx [PROMPT]", "write text with a compiled model"},
    {"chat", chat, "FILE.ftx", "talk with a compiled chat model"},
    {"serve", serve, "FILE.ftx [FILE.ftx...]", "answer HTTP requests, as OpenAI's interface describes them"},
    {"load", load, "", "send requests to a server and time its answers"},
    {"score", command_score, "FILE.ftx [TEXTFILE]", "loss and perplexity of a text under a model"},
    {"tokenize", command_tokenize, "FILE.ftx [TEXT...]", "token ids of texts"},
    {"detokenize", command_detokenize, "FILE.ftx [IDS...]", "texts of token ids"},
    {"bench", command_bench, "FILE.ftx", "time decode and prompt steps"},
    {"tune", command_tune, "SPEC|DIR|FILE.ftx", "find the constants with which a model is fastest on this GPU"},
    {"show", command_show, "FILE.ftx", "what is in an artifact: facts, memory map, kernels"},
    {"page", command_page, "SPEC|DIR|FILE.ftx", "graph, candidates, launches and memory as a page of HTML"},
    {"doctor", command_doctor, "", "what of this machine can be used, what is missing"},
    {"opt", command_opt, "FILE.ir --pass=NAME", "run one pass over a graph's text"},
    {"why", command_why, "SPEC|DIR %VALUE", "candidates of a group and the reason for the choice"},
    {"ops", command_ops, "", "the ops a graph is made of"},
    {"help", command_help, "[COMMAND|env]", "this text, a command's options, environment variables"},
};

static int find(const char *name)
{
    for (size_t i = 0; i < LEN(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return (int)i;
    return -1;
}

static int no_command(const char *name)
{
    command_print("ftxc: no command \"%s\"\ntry: ftxc help\n", name);
    return EXIT_MISTAKE;
}

int command_help(int argc, char **argv)
{
    char *help[] = {"--help"};

    if (argc > 0) {
        const int i = find(argv[0]);

        if (i >= 0 && commands[i].run != command_help)
            return commands[i].run(1, help);
        if (strcmp(argv[0], "env") == 0) {
#define ENV(name, what) printf("  %-12s  %s\n", #name, what);
#include "../runtime/base/env.def"
#undef ENV
            return EXIT_DONE;
        }
        if (i < 0)
            return no_command(argv[0]);
    }
    printf("ftxc compiles a transformer's spec into fused kernels and one artifact, and runs it.\n\n");
    for (size_t k = 0; k < LEN(commands); k++) {
        const int n = printf("  ftxc %s %s", commands[k].name, commands[k].args);

        printf("%*s%s\n", n < 40 ? 42 - n : 2, "", commands[k].what);
    }
    printf("\nFirst steps:\n"
           "  ftxc compile specs/fable.lua -o fable.ftx\n"
           "  ftxc run fable.ftx \"Once upon a time\"\n");
    command_help_exit();
    return EXIT_DONE;
}

/* Ctrl-C or a terminal that closes, unless a command handles them itself: removes files that are half written. */
static void interrupted(int sig)
{
    (void)sig;
    file_abort_all();
    _exit(EXIT_INTERRUPTED);
}

int main(int argc, char **argv)
{
    struct sigaction act = {.sa_handler = interrupted}, old;
    int i;

    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    if (!sigaction(SIGHUP, NULL, &old) && old.sa_handler != SIG_IGN) /* nohup has asked to ignore it */
        sigaction(SIGHUP, &act, NULL);
    signal(SIGXFSZ, SIG_IGN); /* beyond a size limit write() fails instead */
    if (argc < 2)
        return command_help(0, NULL) == EXIT_DONE ? EXIT_MISTAKE : EXIT_INTERNAL;
    if (strcmp(argv[1], "--version") == 0) {
        printf("ftxc %d.%d\n", FTX_VERSION_MAJOR, FTX_VERSION_MINOR);
        return EXIT_DONE;
    }
    i = find(strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ? "help" : argv[1]);
    if (i < 0)
        return no_command(argv[1]);
    i = commands[i].run(argc - 2, argv + 2);
    if (fflush(stdout) || ferror(stdout)) {
        command_print("ftxc: standard output could not be written\n");
        return EXIT_FAILED;
    }
    return i;
}
