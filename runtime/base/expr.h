/* expr.h - launch expressions: integer arithmetic over a few names, parsed once, run often.
 *
 *     expr   := cond ('?' expr ':' expr)?
 *     cond   := sum (('==' | '!=' | '<' | '<=' | '>' | '>=') sum)?   joined by '&&', '||'
 *     sum    := product (('+' | '-') product)*
 *     product:= unary (('*' | '/' | '%' | '/^') unary)*       '/^' divides and rounds up
 *     unary  := '-' unary | '!' unary | number | name | name '(' expr (',' expr)* ')' | '(' expr ')'
 *     functions: min max ceil_div(a,b) round_up(a,b) pow2(a)  (least power of two >= a)
 *
 * Names may hold dots (`glu.kind`). Any other function takes one name and is itself looked up as
 * a name, "sizeof(X)" or "has(b)". Of `? :`, `&&` and `||` only the side that counts is run, so
 * `N ? T / N : 0` is safe.
 *
 * The compiled form is a postfix list of 64-bit words: an opcode, and for PUSH, LOAD and forward
 * jumps an operand after it. Division by zero, overflow, unknown words and deep stacks are
 * errors, never undefined: an artifact is untrusted. */
#ifndef FTX_BASE_EXPR_H
#define FTX_BASE_EXPR_H

#include "error.h"

enum { EXPR_MAX_WORDS = 128 };

typedef struct Expr {
    int64_t words[EXPR_MAX_WORDS];
    uint32_t n;
} Expr;

/* How a name is resolved while parsing: to a constant, or to a variable's number. Returns false for an unknown name. */
typedef enum ExprKind { EXPR_CONSTANT, EXPR_VARIABLE } ExprKind;
typedef bool ExprLookup(void *user, const char *name, ExprKind *kind, int64_t *value);

/* Constants are folded, so an expression without variables compiles to one PUSH. */
FtxStatus expr_parse(const char *text, ExprLookup *lookup, void *user, Expr *out, FtxError *err);

/* Checks a list that came from a file: known opcodes, stack depth, variables below n_variables. */
FtxStatus expr_check(const int64_t *words, size_t n, size_t n_variables, FtxError *err);

FtxStatus expr_run(const int64_t *words, size_t n, const int64_t *variables, size_t n_variables, int64_t *value,
                   FtxError *err);

/* Variables of launch expressions, by number. */
enum { VAR_T, VAR_S, VAR_SMS, VAR_COUNT };

#endif
