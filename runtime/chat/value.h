/* value.h - the values of chat templates, and the memory of one rendering.
 *
 * Everything lives in one block and is never freed before the rendering ends. What goes wrong is raised: chat_raise
 * leaves the rendering at once (longjmp), which is safe because nothing but the block is held. Lists, dicts and texts
 * never change once they are made (Jinja's immutable sandbox); namespaces do.
 *
 * A text knows for each byte whether it came with the request (the users') or from the template. In users' text no
 * special token is recognised. */
#ifndef FTX_CHAT_VALUE_H
#define FTX_CHAT_VALUE_H

#include <setjmp.h>
#include <stdbool.h>
#include <time.h>

#include "../base/error.h"
#include "format.h"
#include "names.h"

typedef struct Text {
    size_t n;
    const char *at;
    const unsigned char *user; /* [n]: not 0: a byte of the users'; NULL: all are the template's */
    bool safe;                 /* of the filter `safe`: + escapes for HTML what is added */
} Text;

typedef struct List List;
typedef struct Dict Dict;
typedef struct Loop Loop;
typedef struct Macro Macro;
typedef struct Method Method;

typedef enum Kind {
    V_MISSING, /* an argument that is not given */
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STRING,
    V_LIST,
    V_TUPLE,
    V_DICT,
    V_NAMESPACE,
    V_LOOP, /* the variable `loop`, and an iterator on the stack */
    V_MACRO,
    V_METHOD,
    V_GLOBAL, /* a function, by its number */
} Kind;

typedef struct Value {
    Kind kind;
    union {
        int64_t i; /* V_BOOL, V_INT, V_GLOBAL */
        double f;
        const Text *text; /* V_STRING; V_UNDEFINED: its name, or NULL */
        const List *list; /* V_LIST, V_TUPLE */
        Dict *dict;       /* V_DICT, V_NAMESPACE */
        Loop *loop;
        const Macro *macro;
        const Method *method;
    } as;
} Value;

struct List {
    Value *at;
    size_t n, cap;
};

struct Dict { /* in the order of insertion */
    Value *keys, *values;
    size_t n, cap;
};

struct Loop {
    Value *at;
    size_t n, next;
    bool ran; /* an iteration came to its end, without break or continue */
    List kept;
};

struct Method {
    Value self;
    int id;
};

/* A text that grows. */
typedef struct Buffer Buffer;
struct Buffer {
    char *at;
    unsigned char *user; /* NULL: no byte is the users' */
    size_t n, cap;
    Buffer *outer; /* the output that this one interrupts */
};

typedef struct Chat {
    char *block;
    size_t at, size;
    uint64_t steps; /* that are left */
    int line;       /* of the instruction that runs */
    jmp_buf escape;
    FtxStatus status; /* of what was raised */
    FtxError *err;
    struct tm now; /* strftime_now */
} Chat;

enum { CHAT_MOST_NESTING = 100 };

_Noreturn void chat_raise(Chat *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void chat_raise_status(Chat *c, FtxStatus status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void *chat_alloc(Chat *c, size_t count, size_t bytes); /* zeroed; raises where the block is full */
void chat_spend(Chat *c, size_t work);                 /* counts steps; raises when there are too many */

static inline Value value_of(Kind kind)
{
    return (Value){.kind = kind};
}
static inline Value value_bool(bool b)
{
    return (Value){.kind = V_BOOL, .as.i = b};
}
static inline Value value_int(int64_t i)
{
    return (Value){.kind = V_INT, .as.i = i};
}
static inline Value value_float(double f)
{
    return (Value){.kind = V_FLOAT, .as.f = f};
}
Value value_text(Chat *c, const char *at, const unsigned char *user, size_t n);
Value value_literal(Chat *c, const char *text); /* a constant of C, not copied */
Value value_list(Chat *c, Kind kind, const List *list);
Value value_dict(Chat *c);

void list_push(Chat *c, List *l, Value v);
const Value *dict_find(Chat *c, const Dict *d, Value key); /* NULL: there is none */
void dict_set(Chat *c, Dict *d, Value key, Value v);

void buffer_put(Chat *c, Buffer *b, const char *at, const unsigned char *user, size_t n);
void buffer_mark(Chat *c, Buffer *b, const char *at, size_t n, bool user);
void buffer_text(Chat *c, Buffer *b, const char *text);
Value buffer_value(Chat *c, const Buffer *b);

/* --- Python's meaning of values ------------------------------------------------------------------ */

const char *value_type(Value v); /* "str", for messages */
bool value_true(Value v);
bool value_is_number(Value v); /* a bool, too */
bool value_same(Chat *c, Value a, Value b);
int value_order(Chat *c, Value a, Value b);             /* -1, 0, 1; 2: one is no number */
bool value_in(Chat *c, Value item, Value in);           /* item in `in` */
const Text *value_str(Chat *c, Value v);                /* str(v) */
void value_repr(Chat *c, Buffer *b, Value v, int deep); /* repr(v) */
List value_items(Chat *c, Value v);                     /* what iteration gives */
double value_number(Value v);                           /* of a number */
size_t value_length(Chat *c, Value v);

/* text.c: strings by characters (code points). */
size_t text_length(const Text *t);
size_t text_step(const char *p, size_t n); /* bytes of the first character; n > 0 */
uint32_t text_code(const char *p, size_t n);
bool text_is_space(uint32_t code);                                       /* str.isspace */
size_t text_find(Chat *c, const Text *t, const Text *what, size_t from); /* a byte; SIZE_MAX: not there */
Value text_slice(Chat *c, const Text *t, size_t from, size_t to);        /* bytes */
Value text_at(Chat *c, const Text *t, int64_t index);                    /* undefined: out of range */
Value text_trim(Chat *c, const Text *t, const Text *chars, bool left, bool right);
Value text_replace(Chat *c, const Text *t, const Text *old, const Text *with, int64_t most);
Value text_split(Chat *c, const Text *t, const Text *at, int64_t most, bool from_right);
Value text_lines(Chat *c, const Text *t, bool keep_ends);
typedef enum TextCase { TEXT_UPPER, TEXT_LOWER, TEXT_CAPITAL, TEXT_TITLE, TEXT_FILTER_TITLE } TextCase;
Value text_case(Chat *c, const Text *t, TextCase how);
Value text_join(Chat *c, const Text *between, const List *items); /* of any values, by value_str */

/* json.c: JSON to values, all of whose texts are the users', and back as Python's json.dumps writes it. */
Value json_read(Chat *c, const char *what, const char *text, size_t n);
typedef struct JsonForm {
    bool ascii, sort;
    const Text *indent; /* NULL: one line */
    const Text *comma, *colon;
} JsonForm;
void json_write(Chat *c, Buffer *b, Value v, const JsonForm *form, int deep);

/* lookup.c: attributes, items, slices. */
Value lookup_attr(Chat *c, Value v, Value name); /* v.name */
Value lookup_item(Chat *c, Value v, Value key);  /* v[key] */
Value lookup_slice(Chat *c, Value v, Value start, Value stop, Value step);

/* filters.c, methods.c: args[0] is the value, MISSING what is not given. */
Value filter_run(Chat *c, uint32_t filter, Value *args, size_t n);
bool test_run(Chat *c, uint32_t test, Value *args, size_t n);
Value method_run(Chat *c, const Method *m, Value *args, size_t n);
Value global_run(Chat *c, int64_t id, Value *args, size_t n, const Value *names, size_t n_names);
int method_find(Kind kind, const Text *name); /* -1: there is none */
int filter_find(const Text *name);
int test_find(const Text *name);

Value arithmetic(Chat *c, ChatBinary op, Value a, Value b);
Value value_negate(Chat *c, Value v);

#endif
