/* command.h - the commands of ftxc. Each takes the arguments after its name and returns the exit code. */
#ifndef FTXC_COMMAND_H
#define FTXC_COMMAND_H

#include "../../runner/command.h"

int command_compile(int argc, char **argv);
int command_score(int argc, char **argv);
int command_tune(int argc, char **argv);
int command_tokenize(int argc, char **argv);
int command_detokenize(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_show(int argc, char **argv);
int command_page(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_opt(int argc, char **argv);
int command_why(int argc, char **argv);
int command_ops(int argc, char **argv);
int command_help(int argc, char **argv);

#endif
