/* command.h - what every command keeps to: exit codes, and how it speaks of itself. */
#ifndef FTX_RUNNER_COMMAND_H
#define FTX_RUNNER_COMMAND_H

#include <signal.h>

#include "../runtime/ftx.h"

/* Exit codes, in every command. 130 after Ctrl-C, as shells say it. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_MISTAKE = 2, EXIT_BUG = 3, EXIT_INTERRUPTED = 130 };

/* Who speaks: "ftxc", or the name by which a program with a model inside was started. */
extern const char *command_program;

/* Prints "PROGRAM: TEXT" to standard error. */
void command_say(const char *text);

/* Says why a call of the runtime failed; gives EXIT_MISTAKE where what was asked cannot be, else EXIT_FAILED. */
int command_failed(const FtxError *err);

/* Says a mistake on the command line, and where the help is; gives EXIT_MISTAKE. */
int command_mistake(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* p; without it the program says that there is no memory, and ends. */
void *command_must(void *p);

double command_seconds(void); /* of a clock that only runs forward */

/* After command_catch_signals: Ctrl-C or a friendly kill has come. Reads that wait are broken off. */
extern volatile sig_atomic_t command_stopped;
void command_catch_signals(void);

#endif
