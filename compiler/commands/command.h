/* command.h - the commands of ftxc. Each takes what follows its name and gives the exit code. */
#ifndef FTXC_COMMAND_H
#define FTXC_COMMAND_H

/* Exit codes, in every command. 130 after Ctrl-C, as shells say it. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_MISTAKE = 2, EXIT_BUG = 3, EXIT_INTERRUPTED = 130 };

int command_compile(int argc, char **argv);
int command_run(int argc, char **argv);
int command_score(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_show(int argc, char **argv);
int command_opt(int argc, char **argv);
int command_why(int argc, char **argv);
int command_ops(int argc, char **argv);
int command_help(int argc, char **argv);

/* Says a mistake on the command line, and where the help is; gives EXIT_MISTAKE. */
int command_mistake(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
