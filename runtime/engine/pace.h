/* pace.h - how many tokens a step may have to end within a target time, by a table of measured times: pure functions. */
#ifndef FTX_PACE_H
#define FTX_PACE_H

enum {
    PACE_SIZES = 20, /* entries of the table */
    PACE_LEAST = 8,  /* a step has room for an eighth of its most tokens of prompts in any case: they must not starve */
};

typedef struct Pace {
    double target_us;             /* of a step; 0: none, the table is empty */
    double token_us;              /* a token of a prompt adds this to a step, */
    double prompt_us;             /* and any part of a prompt this */
    double decode_us[PACE_SIZES]; /* a step in which so many rows decode: */
    int rows[PACE_SIZES];         /* ascending */
    int n;
} Pace;

double pace_step_us(const Pace *p, int rows, int tokens); /* a step of so many rows that decode and tokens of prompts */
int pace_tokens(const Pace *p, int rows, int most);       /* tokens of a step with so many rows that decode */
/* How many decode steps may be enqueued: those that end within a quarter of the target, because what arrives waits for
 * them; and at least two, so that one is there when the other ends. */
int pace_runs(const Pace *p, int rows, int most);

#endif
