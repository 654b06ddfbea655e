/* completion.h - a request for text: its prompts, and what was written from each. */
#ifndef FTX_SERVER_COMPLETION_H
#define FTX_SERVER_COMPLETION_H

#include "grammar.h"
#include "server.h"
#include "tools.h"

/* A call of a tool that a text contains. */
typedef struct Call {
    char id[16];
    Text name, args;
} Call;

/* A text that is written from a prompt. */
typedef struct Choice {
    Text text, reason;
    Call *calls; /* [n_calls] */
    size_t n_calls;
    Parser parser;
    bool fed;     /* the parser has begun */
    int32_t *ids; /* [n_ids]: the new tokens */
    float *logprobs;
    FtxTop *tops; /* [n_ids * Completion.top] */
    size_t n_ids, room;
    size_t characters; /* of the text before the next token, for text_offset */
    Matcher *matcher;  /* NULL: any text */
    bool begun, done;
    FtxFinish finish;
} Choice;

/* A prompt, which is a job of the engine. */
typedef struct Part {
    Job job; /* first */
    struct Completion *all;
    int number;
    int32_t *ids; /* [n_ids] */
    size_t n_ids;
    bool counted;    /* its cached tokens */
    float *logprobs; /* [n_ids]: of the prompt, from the second token on; NULL: not asked for */
    FtxTop *tops;    /* [n_ids * Completion.top] */
    char *text;      /* of a prompt that is echoed or, for translators, read; NULL */
    size_t text_bytes;
} Part;

typedef struct Completion {
    Exchange *x;
    Served *m;
    json_t *root; /* holds the texts of `lists` */
    bool chat, stream, usage, usage_each, logprobs, echo, return_ids;
    bool answered;          /* a refusal, or all of it */
    bool responses;         /* in the form of /v1/responses */
    size_t sequence, items; /* of its stream: events and items so far */
    ToolStyle tools;        /* NONE: calls are not looked for */
    bool one_call;          /* further ones are dropped */
    bool reasons, inside;   /* look for reasoning; the prompt begins it */
    Text forced;            /* what the answer begins with, by tool_choice; it stands in the prompt, too */
    int n;                  /* choices of each part */
    Text head;              /* of a stream: completion_print_head */
    Grammar grammar;
    int top;         /* likeliest tokens at each place */
    Part *parts;     /* [n_parts] */
    Choice *choices; /* [n_parts * n] */
    size_t n_parts, open_parts, prompt_tokens, new_tokens, cached_tokens;
    time_t created;
    Lists lists;
} Completion;

/* The answer of a completion that is done, and what a stream says of an event. */
void completion_print(Text *t, const Completion *c);
void completion_print_head(Text *t, const Completion *c);             /* what every chunk of a stream begins with */
void completion_print_start(Text *t, const Completion *c, int index); /* the role, or the echo */
void completion_print_text(Text *t, const Completion *c, int index, const char *text, size_t bytes, size_t first);
/* A piece of a message; `call`: which one. *first becomes SIZE_MAX: tokens are told once. */
void completion_print_piece(Text *t, const Completion *c, int index, Piece piece, size_t call, const char *text,
                            size_t bytes, size_t *first);
void completion_print_finish(Text *t, const Completion *c, int index);
void completion_print_end(Text *t, const Completion *c); /* usage, and the end of the stream */

#endif
