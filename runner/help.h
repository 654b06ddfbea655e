/* help.h - the help text of `run` around its table of options. */
#ifndef FTX_RUNNER_HELP_H
#define FTX_RUNNER_HELP_H

/* artifact: the path of a program with a model inside, or NULL. */
void help_head(const char *artifact); /* how it is called and what it does */
void help_tail(const char *artifact); /* what it prints, examples, exit codes */

#endif
