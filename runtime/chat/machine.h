/* machine.h - runs one function of a compiled template. */
#ifndef FTX_CHAT_MACHINE_H
#define FTX_CHAT_MACHINE_H

#include "chat.h"
#include "value.h"

typedef struct Binding {
    struct Binding *next;
    Value v;
    uint32_t name;
} Binding;

typedef struct Scope {
    struct Scope *outer;
    Binding *first;
} Scope;

struct Macro {
    uint32_t function;
    Scope *scope; /* where it was defined */
};

typedef struct Machine {
    Chat c;
    ChatTable t;
    Value *consts;
    Value *stack;
    size_t n, base;       /* values on the stack; of those, the callers' */
    Scope *scope, *floor; /* the innermost, and that of the function */
    Buffer *out;
    int depth; /* macros that call each other */
} Machine;

void machine_open(Machine *m);
void machine_bind(Machine *m, uint32_t name, Value v);
void machine_run(Machine *m, uint32_t function);

#endif
