/* lookup.c - v.name, v[key], v[start:stop:step] and operators, as Jinja's sandbox resolves them. */
#include "value.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static _Noreturn void refuse_operand(Chat *c, Value v, const char *what)
{
    if (v.kind == V_UNDEFINED && v.as.text)
        chat_raise(c, "'%.*s' is undefined", (int)(v.as.text->n < 200 ? v.as.text->n : 200), v.as.text->at);
    chat_raise(c, "%s of '%s'", what, value_type(v));
}

static Value loop_attr(Chat *c, const Loop *l, const Text *name)
{
    const int64_t index = (int64_t)l->next - 1;
    const struct {
        const char *name;
        int64_t value;
        bool flag;
    } rows[] = {
        {"index", index + 1, false},
        {"index0", index, false},
        {"first", index == 0, true},
        {"last", l->next == l->n, true},
        {"length", (int64_t)l->n, false},
        {"revindex", (int64_t)l->n - index, false},
        {"revindex0", (int64_t)l->n - index - 1, false},
        {"depth", 1, false}, /* of loops that do not call themselves */
        {"depth0", 0, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strlen(rows[i].name) == name->n && memcmp(rows[i].name, name->at, name->n) == 0)
            return rows[i].flag ? value_bool(rows[i].value) : value_int(rows[i].value);
    if (name->n == 8 && memcmp(name->at, "previtem", 8) == 0 && index > 0)
        return l->at[index - 1];
    if (name->n == 8 && memcmp(name->at, "nextitem", 8) == 0 && l->next < l->n)
        return l->at[l->next];
    (void)c;
    return (Value){.kind = V_UNDEFINED, .as.text = name};
}

static Value bound_method(Chat *c, Value self, const Text *name)
{
    const int id = method_find(self.kind == V_TUPLE ? V_LIST : self.kind, name);
    Method *m;

    if (id < 0)
        return (Value){.kind = V_UNDEFINED, .as.text = name};
    m = chat_alloc(c, 1, sizeof *m);
    *m = (Method){self, id};
    return (Value){.kind = V_METHOD, .as.method = m};
}

/* The item of a container; undefined: there is none. */
static Value item_of(Chat *c, Value v, Value key)
{
    const Value *found = NULL;

    if ((v.kind == V_DICT || v.kind == V_NAMESPACE) && key.kind != V_LIST && key.kind != V_DICT)
        found = dict_find(c, v.as.dict, key);
    if (found)
        return *found;
    if ((key.kind == V_INT || key.kind == V_BOOL) && v.kind == V_STRING)
        return text_at(c, v.as.text, key.as.i);
    if ((key.kind == V_INT || key.kind == V_BOOL) && (v.kind == V_LIST || v.kind == V_TUPLE)) {
        const int64_t n = (int64_t)v.as.list->n, i = key.as.i < 0 ? key.as.i + n : key.as.i;

        if (i >= 0 && i < n)
            return v.as.list->at[i];
    }
    return value_of(V_UNDEFINED);
}

static Value lookup(Chat *c, Value v, Value key, bool attribute_first)
{
    Value found = value_of(V_UNDEFINED);

    if (v.kind == V_UNDEFINED)
        refuse_operand(c, v, "attribute");
    if (attribute_first && v.kind != V_NAMESPACE)
        found = v.kind == V_LOOP ? loop_attr(c, v.as.loop, key.as.text) : found;
    if (attribute_first && found.kind == V_UNDEFINED)
        found = bound_method(c, v, key.as.text);
    if (found.kind == V_UNDEFINED)
        found = item_of(c, v, key);
    if (!attribute_first && found.kind == V_UNDEFINED && key.kind == V_STRING)
        found = v.kind == V_LOOP ? loop_attr(c, v.as.loop, key.as.text) : bound_method(c, v, key.as.text);
    if (found.kind == V_UNDEFINED && key.kind == V_STRING && !found.as.text)
        found.as.text = key.as.text;
    return found;
}

Value lookup_attr(Chat *c, Value v, Value name)
{
    return lookup(c, v, name, true);
}

Value lookup_item(Chat *c, Value v, Value key)
{
    return lookup(c, v, key, false);
}

/* --- slices --------------------------------------------------------------------------------------- */

/* One bound of a slice of n items, by Python's rules; `missing` where it is not given. */
static int64_t bound(Chat *c, Value v, int64_t n, int64_t low, int64_t high, int64_t missing)
{
    int64_t at;

    if (v.kind == V_NONE)
        return missing;
    if (v.kind != V_INT && v.kind != V_BOOL)
        refuse_operand(c, v, "slice bound");
    at = v.as.i < 0 ? v.as.i + n : v.as.i;
    return at < low ? low : at > high ? high : at;
}

Value lookup_slice(Chat *c, Value v, Value start, Value stop, Value step)
{
    const bool text = v.kind == V_STRING;
    int64_t by = 1, n, from, to;
    List all, out = {0};
    Buffer b = {0};

    if (!text && v.kind != V_LIST && v.kind != V_TUPLE)
        refuse_operand(c, v, "slice");
    if (step.kind == V_INT || step.kind == V_BOOL)
        by = step.as.i;
    else if (step.kind != V_NONE)
        refuse_operand(c, step, "slice step");
    if (by == 0)
        chat_raise(c, "slice step cannot be zero");
    all = value_items(c, v);
    n = (int64_t)all.n;
    from = by > 0 ? bound(c, start, n, 0, n, 0) : bound(c, start, n, -1, n - 1, n - 1);
    to = by > 0 ? bound(c, stop, n, 0, n, n) : bound(c, stop, n, -1, n - 1, -1);
    for (int64_t i = from; by > 0 ? i < to : i > to;) {
        if (text)
            buffer_put(c, &b, all.at[i].as.text->at, all.at[i].as.text->user, all.at[i].as.text->n);
        else
            list_push(c, &out, all.at[i]);
        if (__builtin_add_overflow(i, by, &i))
            break;
    }
    return text ? buffer_value(c, &b) : value_list(c, v.kind, &out);
}

/* --- operators ------------------------------------------------------------------------------------ */

static Value repeated(Chat *c, Value v, int64_t times)
{
    List l = {0};
    Buffer b = {0};

    for (int64_t i = 0; i < times; i++) {
        chat_spend(c, 1);
        if (v.kind == V_STRING) {
            buffer_put(c, &b, v.as.text->at, v.as.text->user, v.as.text->n);
            continue;
        }
        for (size_t k = 0; k < v.as.list->n; k++)
            list_push(c, &l, v.as.list->at[k]);
    }
    return v.kind == V_STRING ? buffer_value(c, &b) : value_list(c, v.kind, &l);
}

/* A text beside one that is safe, as markupsafe escapes it. */
static void put_escaped(Chat *c, Buffer *b, const Text *t, bool beside_safe)
{
    static const char marks[] = "&<>'\"";
    static const char *const escapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};

    if (!beside_safe || t->safe) {
        buffer_put(c, b, t->at, t->user, t->n);
        return;
    }
    for (size_t i = 0; i < t->n; i++) {
        const char *found = t->at[i] ? strchr(marks, t->at[i]) : NULL;
        const char *out = found ? escapes[found - marks] : t->at + i;

        buffer_mark(c, b, out, found ? strlen(out) : 1, t->user && t->user[i]);
    }
}

static Value joined(Chat *c, Value x, Value y)
{
    List l = {0};
    Buffer b = {0};

    if (x.kind == V_STRING) {
        const bool safe = x.as.text->safe || y.as.text->safe;
        Text *t = chat_alloc(c, 1, sizeof *t);

        put_escaped(c, &b, x.as.text, safe);
        put_escaped(c, &b, y.as.text, safe);
        *t = *buffer_value(c, &b).as.text;
        t->safe = safe;
        return (Value){.kind = V_STRING, .as.text = t};
    }
    for (size_t i = 0; i < x.as.list->n + y.as.list->n; i++)
        list_push(c, &l, i < x.as.list->n ? x.as.list->at[i] : y.as.list->at[i - x.as.list->n]);
    return value_list(c, x.kind, &l);
}

static Value power(Chat *c, Value a, Value b)
{
    int64_t result = 1;
    double f;

    if (a.kind == V_FLOAT || b.kind == V_FLOAT || b.as.i < 0) {
        if (value_number(a) == 0 && value_number(b) < 0)
            chat_raise(c, "0.0 cannot be raised to a negative power");
        f = pow(value_number(a), value_number(b));
        if (!isfinite(f) && isfinite(value_number(a)) && isfinite(value_number(b)))
            chat_raise(c, "a power is out of range");
        return value_float(f);
    }
    if (a.as.i == 0 || a.as.i == 1)
        return value_int(b.as.i ? a.as.i : 1);
    if (a.as.i == -1)
        return value_int(b.as.i % 2 ? -1 : 1);
    for (int64_t i = 0; i < b.as.i; i++)
        if (__builtin_mul_overflow(result, a.as.i, &result))
            chat_raise(c, "an integer is beyond 64 bits");
    return value_int(result);
}

static Value floats(Chat *c, ChatBinary op, double x, double y)
{
    double mod;

    if ((op == CHAT_DIV || op == CHAT_FLOORDIV || op == CHAT_MOD) && y == 0)
        chat_raise(c, "division by zero");
    switch (op) {
    case CHAT_ADD: return value_float(x + y);
    case CHAT_SUB: return value_float(x - y);
    case CHAT_MUL: return value_float(x * y);
    case CHAT_DIV: return value_float(x / y);
    case CHAT_FLOORDIV:
    case CHAT_MOD:
    case CHAT_POW:
    case CHAT_BINARY_COUNT: break;
    }
    mod = fmod(x, y);
    if (mod != 0 && (y < 0) != (mod < 0))
        mod += y;
    else if (mod == 0)
        mod = copysign(0.0, y);
    if (op == CHAT_MOD)
        return value_float(mod);
    x = (x - mod) / y;
    return value_float(x == 0 ? copysign(0.0, x) : floor(x) + (x - floor(x) > 0.5));
}

static Value integers(Chat *c, ChatBinary op, int64_t x, int64_t y)
{
    int64_t r = 0;
    bool over = false;

    if ((op == CHAT_DIV || op == CHAT_FLOORDIV || op == CHAT_MOD) && y == 0)
        chat_raise(c, op == CHAT_DIV ? "division by zero" : "integer division or modulo by zero");
    if (op == CHAT_DIV)
        return value_float((double)((long double)x / (long double)y));
    if (op == CHAT_ADD)
        over = __builtin_add_overflow(x, y, &r);
    else if (op == CHAT_SUB)
        over = __builtin_sub_overflow(x, y, &r);
    else if (op == CHAT_MUL)
        over = __builtin_mul_overflow(x, y, &r);
    else if (y == -1)
        over = op == CHAT_FLOORDIV && __builtin_sub_overflow(0, x, &r);
    else if (op == CHAT_FLOORDIV)
        r = x / y - (x % y != 0 && (x < 0) != (y < 0));
    else
        r = x % y + (x % y != 0 && (x < 0) != (y < 0) ? y : 0);
    if (over)
        chat_raise(c, "an integer is beyond 64 bits");
    return value_int(r);
}

static bool is_sequence(Value v)
{
    return v.kind == V_STRING || v.kind == V_LIST || v.kind == V_TUPLE;
}

static bool is_whole(Value v)
{
    return v.kind == V_INT || v.kind == V_BOOL;
}

Value arithmetic(Chat *c, ChatBinary op, Value a, Value b)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};

    if (a.kind == V_UNDEFINED || b.kind == V_UNDEFINED)
        refuse_operand(c, a.kind == V_UNDEFINED ? a : b, names[op]);
    if (value_is_number(a) && value_is_number(b)) {
        if (op == CHAT_POW)
            return power(c, a, b);
        return is_whole(a) && is_whole(b) ? integers(c, op, a.as.i, b.as.i)
                                          : floats(c, op, value_number(a), value_number(b));
    }
    if (op == CHAT_ADD && is_sequence(a) && a.kind == b.kind)
        return joined(c, a, b);
    if (op == CHAT_MUL && is_sequence(a) && is_whole(b))
        return repeated(c, a, b.as.i);
    if (op == CHAT_MUL && is_sequence(b) && is_whole(a))
        return repeated(c, b, a.as.i);
    chat_raise(c, "unsupported operand type(s) for %s: '%s' and '%s'", names[op], value_type(a), value_type(b));
}

Value value_negate(Chat *c, Value v)
{
    if (v.kind == V_FLOAT)
        return value_float(-v.as.f);
    if (!is_whole(v))
        refuse_operand(c, v, "sign");
    return integers(c, CHAT_SUB, 0, v.as.i);
}
