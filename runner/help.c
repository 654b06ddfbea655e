/* help.c - the help text of `run` around its table of options. */
#include "help.h"

#include <stdio.h>
#include <string.h>

#include "command.h"

/* The call is `ftxc run FILE.ftx`, `ftx-run FILE.ftx`, or `story` with the artifact inside. */
static void print_call(const char *artifact, const char *file)
{
    printf("%s%s%s%s", command_program, strcmp(command_program, "ftxc") == 0 ? " run" : "", artifact ? "" : " ",
           artifact ? "" : file);
}

void help_head(const char *artifact)
{
    print_call(artifact, "FILE.ftx");
    printf(" [PROMPT] [options]\n\n"
           "Runs a compiled model%s. The prompt is an argument, a file or standard input.\n\n"
           "A decoder goes on from the prompt. A translator takes one source a line from standard input and prints\n"
           "one line for each; an empty line stays empty. An encoder prints the vector of one text, or the cosine\n"
           "similarities of several texts (arguments, or lines with --batch). A classifier prints its labels and\n"
           "their scores, one of tokens a line for each token.\n\n",
           artifact ? ", which is inside this program" : "");
}

void help_tail(const char *artifact)
{
    printf("\nWith --json, one object for each prompt:\n"
           "  text, ids, logprobs  what was written; log-probabilities are those of the raw logits\n"
           "  finish               end (an end token), length (--max-new or the context), stop, cancel (Ctrl-C), nan\n"
           "                       (its logits were not finite numbers)\n"
           "  prompt_tokens        tokens of the prompt or source that the model read\n"
           "  cached_tokens        with --prefix-cache: tokens of the prompt that needed no computing\n"
           "  seed                 this prompt alone with --seed N gives the same text; only if tokens are drawn\n"
           "  samples              with --samples: text, ids, logprobs and finish of each\n"
           "  hypotheses           with --beams: the --n-best best ones\n"
           "  logits               with --logits\n"
           "  timings              of this prompt: first_token_ms and total_ms since it was submitted;\n"
           "                       decode_tokens_per_second: tokens after the first, by the time they took\n"
           "  error                why the prompt was refused; such an object has no other field\n"
           "With --stream, one for each piece of a text:\n"
           "  line, text           the prompt's number from 1; what comes next of its text\n"
           "  sample               with --samples: of which\n"
           "  finish, prompt_tokens, new_tokens  in the last piece of a text\n"
           "An encoder's objects have tokens, first, mean, pooled and labels. Of a classifier of tokens they have\n"
           "tokens, and labels: the token, its id and the scores of all labels, for each token.\n"
           "\nThe last line, on standard error, is about the whole run: tokens written for all prompts, seconds,\n"
           "throughput (all tokens by all seconds, the reading of prompts included), and the seed of the first\n"
           "prompt. Prompt number i of a batch, counted from 0, has that seed + i.\n"
           "\nExamples:\n  ");
    print_call(artifact, "fable.ftx");
    printf(" \"Once upon a time\" --seed 7\n  ");
    print_call(artifact, "fable.ftx");
    printf(" --batch --json --greedy < prompts.txt\n");
    command_help_exit();
}
