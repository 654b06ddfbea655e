/* command.h - what all commands share: exit codes, messages, the clock and signals. */
#ifndef FTX_RUNNER_COMMAND_H
#define FTX_RUNNER_COMMAND_H

#include <signal.h>
#include <stdio.h>

#include "../runtime/ftx.h"

typedef enum ExitCode {
#define EXIT(name, code, what) EXIT_##name = code,
#include "exit.def"
#undef EXIT
} ExitCode;

/* The exit code for a status of the runtime. */
ExitCode command_exit(FtxStatus s);

/* Prints the table of exit codes to standard output. */
void command_help_exit(void);

/* The name that messages begin with: "ftxc", or the name by which a program with a model inside was started. */
extern const char *command_program;

/* Writes n bytes. Control characters but newlines and tabs, and invalid UTF-8, appear as \xNN, so that no file name,
 * option, artifact or model can send commands to the terminal. */
void command_write(FILE *to, const char *text, size_t n);

/* Prints to standard error, as command_write does. */
void command_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints "PROGRAM: TEXT" to standard error. */
void command_say(const char *text);

/* Prints why a call of the runtime failed; returns its exit code. */
int command_failed(const FtxError *err);

/* Ranks that are processes (docs/parallel.md): in one above 0 runs its part of the model to the end. True: the command is done,
 * *code is its exit code. */
bool command_rank(const char *artifact, const FtxOptions *open, int *code);

/* Prints a mistake on the command line and how to get help; returns EXIT_MISTAKE. */
int command_mistake(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns p. If p is NULL, the program prints "out of memory" and ends with EXIT_INTERNAL. */
void *command_must(void *p);

double command_seconds(void); /* of a monotonic clock */

/* After command_catch_signals: the number of the signal, SIGINT or SIGTERM, that has come; 0: none. A read that waits
 * returns. */
extern volatile sig_atomic_t command_stopped;
void command_catch_signals(void);

#endif
