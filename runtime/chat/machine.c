/* machine.c - the instructions of ops.def, one after another.
 *
 * The code comes from a file: what chat_open cannot check (how many values are on the stack, of what kind) is checked
 * here. A variable is looked up from the innermost scope outwards; scopes of macros lead to where they were defined. */
#include "machine.h"

#include <string.h>

enum { MOST_VALUES = 4096, MOST_DEPTH = 64, MOST_PARAMS = 8 };

static Value constant(Machine *m, const ChatConst *k)
{
    double f;

    switch ((ChatConstKind)k->kind) {
    case CHAT_FALSE:
    case CHAT_TRUE: return value_bool(k->kind == CHAT_TRUE);
    case CHAT_INT: return value_int((int64_t)k->word);
    case CHAT_FLOAT: memcpy(&f, &k->word, sizeof f); return value_float(f);
    case CHAT_STRING: return value_text(&m->c, m->t.bytes + k->word, NULL, k->bytes);
    case CHAT_NONE:
    case CHAT_CONST_COUNT: break;
    }
    return value_of(V_NONE);
}

static void open_scope(Machine *m, Scope *outer)
{
    Scope *s = chat_alloc(&m->c, 1, sizeof *s);

    s->outer = outer;
    m->scope = s;
}

void machine_open(Machine *m)
{
    m->stack = chat_alloc(&m->c, MOST_VALUES, sizeof *m->stack);
    m->consts = chat_alloc(&m->c, m->t.head->consts, sizeof *m->consts);
    for (uint32_t i = 0; i < m->t.head->consts; i++)
        m->consts[i] = constant(m, &m->t.consts[i]);
    open_scope(m, NULL);
    m->floor = m->scope;
}

/* --- stack and scopes ------------------------------------------------------------------------------- */

static void push(Machine *m, Value v)
{
    if (m->n == MOST_VALUES)
        chat_raise_status(&m->c, FTX_EFULL, "more than %d values at once", MOST_VALUES);
    m->stack[m->n++] = v;
}

/* The last n values, which are taken off; valid until the next push. */
static Value *take_values(Machine *m, size_t n)
{
    if (n > m->n - m->base)
        chat_raise_status(&m->c, FTX_EFORMAT, "an instruction lacks values");
    m->n -= n;
    return m->stack + m->n;
}

static Value pop(Machine *m)
{
    return *take_values(m, 1);
}

static Value *top(Machine *m)
{
    take_values(m, 1);
    return &m->stack[m->n++];
}

static Loop *top_loop(Machine *m)
{
    if (top(m)->kind != V_LOOP)
        chat_raise_status(&m->c, FTX_EFORMAT, "an instruction lacks its loop");
    return top(m)->as.loop;
}

void machine_bind(Machine *m, uint32_t name, Value v)
{
    Binding *b = m->scope->first;

    while (b && b->name != name)
        b = b->next;
    if (!b) {
        b = chat_alloc(&m->c, 1, sizeof *b);
        b->next = m->scope->first;
        b->name = name;
        m->scope->first = b;
    }
    b->v = v;
}

static Value load(Machine *m, uint32_t name)
{
    for (const Scope *s = m->scope; s; s = s->outer) {
        chat_spend(&m->c, 1);
        for (const Binding *b = s->first; b; b = b->next)
            if (b->name == name)
                return b->v.kind != V_MISSING ? b->v : (Value){.kind = V_UNDEFINED, .as.text = m->consts[name].as.text};
    }
    return (Value){.kind = V_UNDEFINED, .as.text = m->consts[name].as.text};
}

static void close_scope(Machine *m)
{
    if (m->scope == m->floor)
        chat_raise_status(&m->c, FTX_EFORMAT, "a scope ends that never began");
    m->scope = m->scope->outer;
}

/* --- loops ---------------------------------------------------------------------------------------- */

static void push_loop(Machine *m, List items)
{
    Loop *l = chat_alloc(&m->c, 1, sizeof *l);

    l->at = items.at;
    l->n = items.n;
    push(m, (Value){.kind = V_LOOP, .as.loop = l});
}

/* The next item goes on the stack, in a new scope. False: there is none. */
static bool next_item(Machine *m, bool with_loop)
{
    Loop *l = top_loop(m);

    if (l->next == l->n)
        return false;
    open_scope(m, m->scope);
    if (with_loop && m->t.head->loop != UINT32_MAX)
        machine_bind(m, m->t.head->loop, (Value){.kind = V_LOOP, .as.loop = l});
    push(m, l->at[l->next++]);
    return true;
}

static void keep_item(Machine *m)
{
    const Value *v = take_values(m, 2);
    const Value item = v[0];
    const bool want = value_true(v[1]);

    if (want)
        list_push(&m->c, &top_loop(m)->kept, item);
    close_scope(m);
}

static void unpack(Machine *m, size_t n)
{
    const List l = value_items(&m->c, pop(m));

    if (l.n != n)
        chat_raise(&m->c,
                   l.n < n ? "not enough values to unpack (expected %zu, got %zu)"
                           : "too many values to unpack (expected %zu, got %zu)",
                   n, l.n);
    for (size_t i = n; i-- > 0;)
        push(m, l.at[i]);
}

/* --- calls ---------------------------------------------------------------------------------------- */

static bool is_named(const Machine *m, uint32_t name, Value v)
{
    const Text *t = m->consts[name].as.text;

    return v.kind == V_STRING && v.as.text->n == t->n && memcmp(v.as.text->at, t->at, t->n) == 0;
}

static void bind_arguments(Machine *m, const ChatFunction *f, const Value *args, size_t n, const Value *names,
                           size_t n_names)
{
    if (n > f->n_params)
        chat_raise(&m->c, "a macro takes at most %u argument%s", f->n_params, f->n_params == 1 ? "" : "s");
    for (uint32_t i = 0; i < f->n_params; i++)
        machine_bind(m, m->t.params[f->first_param + i], i < n ? args[i] : value_of(V_MISSING));
    for (size_t k = 0; k < n_names; k++) {
        uint32_t i = 0;

        while (i < f->n_params && !is_named(m, m->t.params[f->first_param + i], names[2 * k]))
            i++;
        if (i == f->n_params || i < n)
            chat_raise(&m->c, "a macro takes no keyword argument like this, or twice");
        machine_bind(m, m->t.params[f->first_param + i], names[2 * k + 1]);
    }
}

static Value call_macro(Machine *m, const Macro *macro, const Value *args, size_t n, const Value *names, size_t n_names)
{
    Scope *const scope = m->scope, *const ground = m->floor;
    Buffer *const outer = m->out, text = {0};
    const size_t base = m->base, values = m->n;
    const int line = m->c.line;
    Buffer *out = chat_alloc(&m->c, 1, sizeof *out);

    if (++m->depth > MOST_DEPTH)
        chat_raise_status(&m->c, FTX_EFULL, "macros call each other more than %d deep", MOST_DEPTH);
    *out = text;
    m->out = out;
    m->n += n + 1 + 2 * n_names; /* the arguments stay below the macro's own values */
    m->base = m->n;
    open_scope(m, macro->scope);
    m->floor = m->scope;
    bind_arguments(m, &m->t.functions[macro->function], args, n, names, n_names);
    machine_run(m, macro->function);
    m->n = values;
    m->base = base;
    m->scope = scope;
    m->floor = ground;
    m->out = outer;
    m->depth--;
    m->c.line = line;
    return buffer_value(&m->c, out);
}

static Value call_method(Machine *m, const Method *method, const Value *args, size_t n, const Value *names,
                         size_t n_names)
{
    const ChatName *row = &chat_methods[method->id];
    Value a[MOST_PARAMS];
    size_t most = n;

    if (n > MOST_PARAMS)
        chat_raise(&m->c, "%s() takes at most %d values", row->name, MOST_PARAMS);
    for (size_t i = 0; i < MOST_PARAMS; i++)
        a[i] = i < n ? args[i] : value_of(V_MISSING);
    for (size_t k = 0; k < n_names; k++) {
        const Text *name = value_str(&m->c, names[2 * k]);
        const int at = chat_param_find(row->params, name->at, name->n);

        if (at < 0 || (size_t)at < n)
            chat_raise(&m->c, "%s() got an unexpected keyword argument", row->name);
        a[at] = names[2 * k + 1];
        most = (size_t)at + 1 > most ? (size_t)at + 1 : most;
    }
    return method_run(&m->c, method, a, most);
}

static void call_value(Machine *m, size_t n, size_t n_names)
{
    Value *args = take_values(m, n + 2 * n_names + 1) + 1;
    const Value f = args[-1], *names = args + n;
    Value v;

    if (f.kind == V_MACRO)
        v = call_macro(m, f.as.macro, args, n, names, n_names);
    else if (f.kind == V_METHOD)
        v = call_method(m, f.as.method, args, n, names, n_names);
    else if (f.kind == V_GLOBAL)
        v = global_run(&m->c, f.as.i, args, n, names, n_names);
    else if (f.kind == V_UNDEFINED && f.as.text)
        chat_raise(&m->c, "'%.*s' is undefined", (int)(f.as.text->n < 200 ? f.as.text->n : 200), f.as.text->at);
    else
        chat_raise(&m->c, "'%s' object is not callable", value_type(f));
    push(m, v);
}

/* --- instructions ----------------------------------------------------------------------------------- */

static Value make_dict(Machine *m, size_t n)
{
    const Value v = value_dict(&m->c), *pairs = take_values(m, 2 * n);

    for (size_t i = 0; i < n; i++)
        dict_set(&m->c, v.as.dict, pairs[2 * i], pairs[2 * i + 1]);
    return v;
}

static Value make_list(Machine *m, Kind kind, size_t n)
{
    const Value *items = take_values(m, n);
    List l = {0};

    for (size_t i = 0; i < n; i++)
        list_push(&m->c, &l, items[i]);
    return value_list(&m->c, kind, &l);
}

static Value concat(Machine *m, size_t n)
{
    static const Text no_text = {0, "", NULL, false};
    List l = {take_values(m, n), n, n};

    return text_join(&m->c, &no_text, &l);
}

static bool compare(Machine *m, ChatCompare op, Value a, Value b)
{
    Chat *c = &m->c;

    switch (op) {
    case CHAT_EQ: return value_same(c, a, b);
    case CHAT_NE: return !value_same(c, a, b);
    case CHAT_LT: return value_order(c, a, b) == -1;
    case CHAT_LE: return value_order(c, a, b) <= 0;
    case CHAT_GT: return value_order(c, a, b) == 1;
    case CHAT_GE: return value_order(c, a, b) == 0 || value_order(c, a, b) == 1;
    case CHAT_IN: return value_in(c, a, b);
    case CHAT_NOT_IN:
    case CHAT_COMPARE_COUNT: break;
    }
    return !value_in(c, a, b);
}

static void set_attribute(Machine *m, Value name)
{
    const Value *v = take_values(m, 2);

    if (v[1].kind != V_NAMESPACE)
        chat_raise(&m->c, "cannot assign attribute on non-namespace object");
    dict_set(&m->c, v[1].as.dict, name, v[0]);
}

static void write_value(Machine *m, Value v)
{
    const Text *t = value_str(&m->c, v);

    buffer_put(&m->c, m->out, t->at, t->user, t->n);
}

static void capture(Machine *m)
{
    Buffer *b = chat_alloc(&m->c, 1, sizeof *b);

    b->outer = m->out;
    m->out = b;
}

static void end_capture(Machine *m)
{
    Buffer *b = m->out;

    if (!b->outer)
        chat_raise_status(&m->c, FTX_EFORMAT, "a text ends that never began");
    m->out = b->outer;
    push(m, buffer_value(&m->c, b));
}

/* Instructions that move values only: pushes the result. */
static void run_value(Machine *m, const ChatInstr *i)
{
    Chat *c = &m->c;
    Value v, *a;

    switch ((ChatOp)i->op) {
    case CHAT_CONST: push(m, m->consts[i->arg]); return;
    case CHAT_LOAD: push(m, load(m, i->arg)); return;
    case CHAT_UNDEFINED: push(m, value_of(V_UNDEFINED)); return;
    case CHAT_MISSING: push(m, value_of(V_MISSING)); return;
    case CHAT_COPY: push(m, *top(m)); return;
    case CHAT_TUCK:
        a = take_values(m, 2);
        v = a[0];
        a[0] = a[1];
        m->n++;
        push(m, v);
        push(m, a[0]);
        return;
    case CHAT_ATTR: *top(m) = lookup_attr(c, *top(m), m->consts[i->arg]); return;
    case CHAT_ITEM:
        a = take_values(m, 2);
        push(m, lookup_item(c, a[0], a[1]));
        return;
    case CHAT_SLICE:
        a = take_values(m, 4);
        push(m, lookup_slice(c, a[0], a[1], a[2], a[3]));
        return;
    case CHAT_LIST:
    case CHAT_TUPLE: push(m, make_list(m, i->op == CHAT_LIST ? V_LIST : V_TUPLE, i->arg)); return;
    case CHAT_DICT: push(m, make_dict(m, i->arg)); return;
    case CHAT_BINARY:
        a = take_values(m, 2);
        push(m, arithmetic(c, (ChatBinary)i->arg, a[0], a[1]));
        return;
    case CHAT_CONCAT: push(m, concat(m, i->arg)); return;
    case CHAT_COMPARE:
        a = take_values(m, 2);
        push(m, value_bool(compare(m, (ChatCompare)i->arg, a[0], a[1])));
        return;
    case CHAT_NOT: *top(m) = value_bool(!value_true(*top(m))); return;
    case CHAT_NEGATE: *top(m) = value_negate(c, *top(m)); return;
    case CHAT_PLUS: *top(m) = value_negate(c, value_negate(c, *top(m))); return;
    case CHAT_FILTER:
        a = take_values(m, i->n);
        push(m, filter_run(c, i->arg, a, i->n));
        return;
    case CHAT_TEST:
        a = take_values(m, i->n);
        push(m, value_bool(test_run(c, i->arg, a, i->n)));
        return;
    case CHAT_CALL: call_value(m, i->n, i->arg); return;
    case CHAT_ABSENT: {
        const Binding *b = m->scope->first;

        while (b && b->name != i->arg)
            b = b->next;
        push(m, value_bool(b && b->v.kind == V_MISSING));
        return;
    }
    case CHAT_MACRO: {
        Macro *macro = chat_alloc(c, 1, sizeof *macro);

        *macro = (Macro){i->arg, m->scope};
        push(m, (Value){.kind = V_MACRO, .as.macro = macro});
        return;
    }
    default: break;
    }
    chat_raise_status(c, FTX_EFORMAT, "an unknown instruction");
}

/* Where the code goes on: at the instruction's target (true) or behind it. */
static bool jumps(Machine *m, const ChatInstr *i)
{
    bool is;

    switch ((ChatOp)i->op) {
    case CHAT_JUMP: return true;
    case CHAT_JUMP_FALSE: return !value_true(pop(m));
    case CHAT_AND:
    case CHAT_OR:
        is = value_true(*top(m)) == (i->op == CHAT_OR);
        if (!is)
            pop(m);
        return is;
    case CHAT_CHAIN:
        if (value_true(pop(m)))
            return false;
        *top(m) = value_bool(false);
        return true;
    case CHAT_NEXT: return !next_item(m, i->n);
    default: break;
    }
    is = top_loop(m)->ran; /* END_LOOP */
    pop(m);
    return is;
}

void machine_run(Machine *m, uint32_t function)
{
    const ChatInstr *i = m->t.code + m->t.functions[function].first;
    Value v;

    for (;; i++) {
        m->c.line = i->line;
        chat_spend(&m->c, 1);
        switch ((ChatOp)i->op) {
        case CHAT_RETURN: return;
        case CHAT_JUMP:
        case CHAT_JUMP_FALSE:
        case CHAT_AND:
        case CHAT_OR:
        case CHAT_CHAIN:
        case CHAT_NEXT:
        case CHAT_END_LOOP:
            if (jumps(m, i))
                i = m->t.code + i->arg - 1;
            break;
        case CHAT_STORE: machine_bind(m, i->arg, pop(m)); break;
        case CHAT_SET_ATTR: set_attribute(m, m->consts[i->arg]); break;
        case CHAT_UNPACK: unpack(m, i->arg); break;
        case CHAT_OUT: write_value(m, pop(m)); break;
        case CHAT_TEXT: write_value(m, m->consts[i->arg]); break;
        case CHAT_ITER: push_loop(m, value_items(&m->c, pop(m))); break;
        case CHAT_KEEP: keep_item(m); break;
        case CHAT_KEPT:
            v = (Value){.kind = V_LOOP, .as.loop = top_loop(m)};
            pop(m);
            push_loop(m, v.as.loop->kept);
            break;
        case CHAT_RAN: top_loop(m)->ran = true; break;
        case CHAT_SCOPE: open_scope(m, m->scope); break;
        case CHAT_END_SCOPE: close_scope(m); break;
        case CHAT_CAPTURE: capture(m); break;
        case CHAT_END_CAPTURE: end_capture(m); break;
        default: run_value(m, i); break;
        }
    }
}
