/* run.h - prompts in, text out: `ftxc run`, and every program that has a model inside. */
#ifndef FTX_RUNNER_RUN_H
#define FTX_RUNNER_RUN_H

/* artifact: the model, when the program has one inside; NULL: the first argument names it. Takes
 * options and prompts, gives an exit code. */
int run(const char *artifact, int argc, char **argv);

#endif
