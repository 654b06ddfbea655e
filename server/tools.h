/* tools.h - finds tool calls and reasoning in a text as it is written.
 *
 *     style     what a model writes for a call
 *     HERMES    <tool_call>{"name": ..., "arguments": {...}}</tool_call>, repeated (Hermes, Qwen 2.5 and 3)
 *     LLAMA     {"name": ..., "parameters": {...}} as the whole answer or behind <|python_tag|>; more behind ';'
 *     MISTRAL   [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...], or [TOOL_CALLS]name[ARGS]{...}
 *
 * Reasoning stands between <think> and </think> at the start. The bytes of arguments are passed on as they come; they are
 * not parsed and printed again. What turns out to be no call is text. */
#ifndef FTX_SERVER_TOOLS_H
#define FTX_SERVER_TOOLS_H

#include <stdbool.h>

#include "text.h"

typedef enum ToolStyle { TOOLS_NONE, TOOLS_HERMES, TOOLS_LLAMA, TOOLS_MISTRAL } ToolStyle;

typedef enum Piece {
    PIECE_TEXT,
    PIECE_REASON,
    PIECE_CALL, /* the name of a call, whole */
    PIECE_ARGS  /* bytes of its arguments */
} Piece;

/* Begin with zero, then parser_open. */
typedef struct Parser {
    ToolStyle style;
    enum { PARSE_START, PARSE_REASON, PARSE_TEXT, PARSE_CALL, PARSE_NAME, PARSE_ARGS, PARSE_BETWEEN } state;
    bool reasons;
    Text held;    /* read, and not passed on yet */
    size_t given; /* of a call in `held`: bytes of the arguments that were passed on */
    bool named;   /* its name was passed on */
    int calls;    /* passed on so far */
    bool closed;  /* reasoning or a call stands before: blanks at the start of the text go */
} Parser;

typedef void (*PieceSink)(void *user, Piece piece, const char *text, size_t bytes);

/* reasons: look for <think>; inside: the prompt ends inside of it. */
void parser_open(Parser *p, ToolStyle style, bool reasons, bool inside);
/* Takes a part of the text; last: nothing follows. */
void parser_feed(Parser *p, const char *text, size_t bytes, bool last, PieceSink sink, void *user);
void parser_close(Parser *p);

#endif
