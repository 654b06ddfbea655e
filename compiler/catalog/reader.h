/* reader.h - reading one `//@` line: what read.c, read_match.c and read_form.c share. */
#ifndef FTXC_CATALOG_READER_H
#define FTXC_CATALOG_READER_H

#include "contract.h"

typedef struct Reader {
    Arena *keep;
    struct {
        Form *at;
        size_t n, cap;
    } forms;     /* [0] is plain */
    Contract *c; /* the one for which the line is read; NULL before the first `kernel` line */
    struct {
        Contract **at;
        size_t n, cap;
    } all;
    size_t first;       /* those of `all` from here on are variants of the kernel being read */
    const char *kernel; /* its name */
    bool begun;         /* a line other than kernel and variant has been read */
    bool labelled;      /* the line belongs to some variants alone */
    const char *file;   /* as embedded: "rmsnorm.cu" */
    Loc loc;
    const char *at;   /* in the line */
    const char *form; /* of the line, for messages */
    Diag *d;
} Reader;

/* "contract: expected WHAT, found ..."; returns false. */
bool reader_fail(Reader *r, const char *what);

void reader_spaces(Reader *r);
/* Skips blanks, then the token if it stands there. */
bool reader_accept(Reader *r, const char *token);
/* A name, or NULL. */
const char *reader_name(Reader *r);
/* The text up to one of the characters `ends` outside parentheses, without blanks around it. */
const char *reader_text(Reader *r, const char *ends);

/* The end of the label at `at`, a ":" or ","; NULL: there is none. */
const char *reader_label(const char *at, const char **name, size_t *n);
/* A line after its labels; NULL: they do not name the variant. */
const char *reader_line_of(const char *line, const char *variant);

/* FTX_NAMED_x of "x"; -1: runtime/artifact/named.def has no such buffer. */
int reader_named(const char *s);
/* The argument of that name, or -1. */
int reader_arg(const Contract *c, const char *s);
/* A form by its name, which stands next in the line; false: there is none. */
bool reader_form(Reader *r, uint32_t *form);
/* The constant of that name, or NULL. */
ContractConst *reader_const(Contract *c, const char *s);
/* The kind of a constant with this value: type(x) and bf16 are types, op.attr of a number attribute a float, all else an integer. */
bool reader_const_kind(Reader *r, const char *text, ConstKind *kind);

/* shared.c */
bool read_shared(Reader *r);

/* read_match.c: the lines that are compared with the graph. */
bool read_args(Reader *r);
bool read_folded(Reader *r);
bool read_match(Reader *r);

/* read_form.c: the lines of forms, `gives` and `sums`. */
bool read_form(Reader *r);
bool read_instead(Reader *r);
bool read_packed(Reader *r);
bool read_companion(Reader *r);
bool read_gives(Reader *r);
bool read_sums(Reader *r);

#endif
