/* command.c - how commands speak of themselves. */
#include "command.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *command_program = "ftxc";

void command_say(const char *text)
{
    fprintf(stderr, "%s: %s\n", command_program, text);
}

int command_failed(const FtxError *err)
{
    command_say(err->text);
    return err->status == FTX_EINVAL || err->status == FTX_EFULL ? EXIT_MISTAKE : EXIT_FAILED;
}

int command_mistake(const char *command, const char *format, ...)
{
    const bool ftxc = strcmp(command_program, "ftxc") == 0;
    va_list ap;

    fprintf(stderr, "%s%s%s: ", command_program, ftxc ? " " : "", ftxc ? command : "");
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fprintf(stderr, ftxc ? "\ntry: ftxc help %s\n" : "\ntry: %s --help\n", ftxc ? command : command_program);
    return EXIT_MISTAKE;
}

void *command_must(void *p)
{
    if (!p) {
        command_say("out of memory");
        exit(EXIT_BUG);
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

/* The step that runs ends first; who asks twice does not wait for it. */
static void stop(int sig)
{
    (void)sig;
    if (command_stopped)
        _exit(EXIT_INTERRUPTED);
    command_stopped = 1;
}

void command_catch_signals(void)
{
    const struct sigaction a = {.sa_handler = stop};

    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}
