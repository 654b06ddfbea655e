/* parts.h - what the files of this room share: tokens, the tree, the parser's and the writer's state.
 *
 *   template --lex.c--> texts and tokens --parse.c, expression.c--> tree --code.c--> section */
#ifndef FTXC_CHAT_PARTS_H
#define FTXC_CHAT_PARTS_H

#include "chat.h"
#include "../../runtime/chat/format.h"

typedef enum TokenKind {
    T_END,
    T_DATA,  /* text between tags */
    T_PRINT, /* {{ */
    T_BLOCK, /* {% */
    T_CLOSE, /* }} or %} */
    T_NAME,
    T_STRING, /* its escapes are resolved */
    T_INTEGER,
    T_FLOAT,
    T_OPERATOR
} TokenKind;

typedef struct Token {
    TokenKind kind;
    int line;
    const char *text; /* NUL-terminated; a string may contain NULs, too */
    size_t n;
    int64_t i;
    double f;
} Token;

typedef struct Tokens {
    Token *at;
    size_t n, cap;
} Tokens;

typedef enum NodeKind {
    /* expressions: what text, i, f and kids are */
    N_CONST, /* constant */
    N_NAME,  /* text */
    N_ATTR,  /* text; 0 the value */
    N_ITEM,  /* 0 the value, 1 the key */
    N_SLICE, /* 0 the value, 1 to 3 the bounds, NULL where absent */
    N_LIST,
    N_TUPLE,
    N_DICT,   /* key, value, key, value ... */
    N_BINARY, /* i: ChatBinary */
    N_CONCAT,
    N_COMPARE, /* 0 the first; then a N_OPERAND each */
    N_OPERAND, /* i: ChatCompare; 0 the value */
    N_NOT,
    N_NEGATE,
    N_PLUS,
    N_AND,
    N_OR,
    N_IF_ELSE, /* 0 the value, 1 the condition, 2 the other or NULL */
    N_CALL,    /* 0 what is called, then arguments */
    N_FILTER,  /* text; 0 the value (NULL: of a filter block), then arguments */
    N_TEST,    /* text; 0 the value, then arguments */
    N_NAMED,   /* an argument with a name: text; 0 the value */
    /* statements */
    N_BODY,
    N_DATA,       /* text */
    N_PRINT,      /* 0 */
    N_IF,         /* 0 the condition, 1 the body, 2 the other body or NULL */
    N_FOR,        /* 0 target, 1 the items, 2 the condition or NULL, 3 body, 4 the other body or NULL */
    N_SET,        /* 0 target, 1 the value */
    N_SET_TEXT,   /* 0 target, 1 body, 2 filters or NULL */
    N_WRITE_TEXT, /* 0 body, 1 filters or NULL: a filter block, a generation block */
    N_MACRO,      /* text; 0 body, then parameters: N_NAMED, 0 the default or NULL */
    N_BREAK,
    N_CONTINUE
} NodeKind;

typedef struct Node Node;
typedef struct Nodes {
    Node **at;
    size_t n, cap;
} Nodes;

struct Node {
    NodeKind kind;
    int line;
    const char *text;
    size_t n_text;
    ChatConstKind constant; /* N_CONST */
    int64_t i;
    double f;
    Nodes kids;
};

typedef struct Parser {
    Tokens tokens;
    size_t at;
    int deep; /* of expressions and statements */
    const char *file;
    Arena *keep;
    Diag *d;
} Parser;

/* lex.c */
bool lex(const ChatSource *source, Arena *keep, Tokens *tokens, Diag *d);

/* expression.c: NULL: d says why. */
Node *parse_expression(Parser *p);
Node *parse_tuple(Parser *p, bool with_condition, bool names_only); /* "a, b" without parentheses, or one expression */
Node *parse_filters(Parser *p, Node *value);                        /* "trim | upper": the first without its bar */
Node *node_new(Parser *p, NodeKind kind, int line);
bool node_add(Parser *p, Node *n, Node *kid); /* false if kid is NULL */
const Token *token_now(const Parser *p);
bool token_is(const Parser *p, TokenKind kind, const char *text);
bool token_take(Parser *p, TokenKind kind, const char *text);
bool token_need(Parser *p, TokenKind kind, const char *text); /* says what is missing */
bool parse_fail(Parser *p, const char *what);                 /* "... , not 'endif'" */
bool parse_deeper(Parser *p);

/* parse.c */
Node *parse_template(Parser *p);

#endif
