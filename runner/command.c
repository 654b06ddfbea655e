/* command.c - what all commands share: exit codes, messages, the clock and signals. */
#include "command.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../runtime/base/utf8.h"

const char *command_program = "ftxc";

void command_write(FILE *to, const char *text, size_t n)
{
    size_t length;

    for (size_t i = 0; i < n; i += length) {
        uint32_t code;
        const Utf8Kind kind = utf8_next((const unsigned char *)text + i, n - i, &length, &code);
        const bool control = (code < ' ' && code != '\n' && code != '\t') || (code >= 0x7f && code < 0xa0);

        if (kind == UTF8_CHARACTER && !control)
            fwrite(text + i, 1, length, to);
        else
            for (size_t k = 0; k < length; k++)
                fprintf(to, "\\x%02x", (unsigned char)text[i + k]);
    }
}

static void print_arguments(const char *format, va_list ap)
{
    char *text;

    if (vasprintf(&text, format, ap) < 0) {
        fprintf(stderr, "%s: out of memory\n", command_program);
        return;
    }
    command_write(stderr, text, strlen(text));
    free(text);
}

void command_print(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    print_arguments(format, ap);
    va_end(ap);
}

void command_say(const char *text)
{
    command_print("%s: %s\n", command_program, text);
}

ExitCode command_exit(FtxStatus s)
{
    switch (s) {
    case FTX_OK: return EXIT_DONE;
    case FTX_EINVAL:
    case FTX_EFULL: return EXIT_MISTAKE;
    case FTX_ENOMEM: return EXIT_INTERNAL;
    case FTX_EFORMAT:
    case FTX_EIO:
    case FTX_EDEVICE:
    case FTX_ENODEVICE:
    case FTX_EVERSION: return EXIT_FAILED;
    }
    return EXIT_INTERNAL;
}

void command_help_exit(void)
{
    printf("\nExit codes:\n");
#define EXIT(name, code, what) printf("  %-4d  %s\n", code, what);
#include "exit.def"
#undef EXIT
}

int command_failed(const FtxError *err)
{
    command_say(err->text);
    return command_exit(err->status);
}

bool command_rank(const char *artifact, const FtxOptions *open, int *code)
{
    FtxError err = {0};
    int rank;
    const FtxStatus s = ftx_rank_run(artifact, open, &rank, &err);

    *code = s ? command_failed(&err) : EXIT_DONE;
    return s || rank > 0;
}

int command_mistake(const char *command, const char *format, ...)
{
    const bool ftxc = strcmp(command_program, "ftxc") == 0;
    va_list ap;

    command_print("%s%s%s: ", command_program, ftxc ? " " : "", ftxc ? command : "");
    va_start(ap, format);
    print_arguments(format, ap);
    va_end(ap);
    command_print(ftxc ? "\ntry: ftxc help %s\n" : "\ntry: %s --help\n", ftxc ? command : command_program);
    return EXIT_MISTAKE;
}

void *command_must(void *p)
{
    if (!p) {
        command_say("out of memory");
        exit(EXIT_INTERNAL);
    }
    return p;
}

double command_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

volatile sig_atomic_t command_stopped;

/* The current step ends first. A second signal ends the program at once. */
static void stop(int sig)
{
    if (command_stopped)
        _exit(EXIT_INTERRUPTED);
    command_stopped = sig;
}

void command_catch_signals(void)
{
    const struct sigaction a = {.sa_handler = stop};

    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}
