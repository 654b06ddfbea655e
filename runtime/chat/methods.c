/* methods.c - the methods of strings, lists and dicts, and the functions that chat templates may call. */
#include "value.h"

#include <string.h>

#include "../base/utf8.h"

enum { MOST_RANGE = 100000, MOST_ARGS = 4 }; /* MOST_RANGE: Jinja's sandbox has the same limit */

enum {
#define METHOD(kind, name, params) METHOD_##kind##_##name,
#include "names.def"
};
enum {
#define GLOBAL(name) GLOBAL_##name,
#include "names.def"
};

static const Text *need_text(Chat *c, Value v)
{
    if (v.kind != V_STRING)
        chat_raise(c, "must be str, not %s", value_type(v));
    return v.as.text;
}

static const Text *may_text(Chat *c, Value v)
{
    return v.kind == V_MISSING || v.kind == V_NONE ? NULL : need_text(c, v);
}

static int64_t may_int(Chat *c, Value v, int64_t missing)
{
    if (v.kind == V_MISSING)
        return missing;
    if (v.kind != V_INT && v.kind != V_BOOL)
        chat_raise(c, "'%s' object cannot be interpreted as an integer", value_type(v));
    return v.as.i;
}

/* --- strings -------------------------------------------------------------------------------------- */

static bool has_at(const Text *t, const Text *part, bool end)
{
    return t->n >= part->n && (!part->n || memcmp(t->at + (end ? t->n - part->n : 0), part->at, part->n) == 0);
}

/* startswith and endswith: of one text or of any in a tuple. */
static Value has_any(Chat *c, const Text *t, Value parts, bool end)
{
    bool found = false;

    if (parts.kind != V_TUPLE)
        return value_bool(has_at(t, need_text(c, parts), end));
    for (size_t i = 0; i < parts.as.list->n; i++)
        found |= has_at(t, need_text(c, parts.as.list->at[i]), end);
    return value_bool(found);
}

static Value find_in_text(Chat *c, const Text *t, const Text *what, bool last)
{
    size_t at = SIZE_MAX, next = 0;
    Text before = {0, t->at, NULL, false};

    while (at != next && (next = text_find(c, t, what, next)) != SIZE_MAX) {
        at = next;
        if (!last || next == t->n)
            break;
        next += what->n ? 1 : t->n - next;
    }
    if (at == SIZE_MAX)
        return value_int(-1);
    before.n = at;
    return value_int((int64_t)text_length(&before));
}

static Value count_text(Chat *c, const Text *t, const Text *what)
{
    int64_t n = 0;
    size_t at = 0;

    if (!what->n)
        return value_int((int64_t)text_length(t) + 1);
    for (; (at = text_find(c, t, what, at)) != SIZE_MAX; n++)
        at += what->n;
    return value_int(n);
}

static Value without(Chat *c, const Text *t, const Text *part, bool end)
{
    const size_t n = has_at(t, part, end) ? part->n : 0;

    return text_slice(c, t, end ? 0 : n, end ? t->n - n : t->n);
}

static Value join_items(Chat *c, const Text *between, Value in)
{
    const List items = value_items(c, in);

    for (size_t i = 0; i < items.n; i++)
        need_text(c, items.at[i]);
    return text_join(c, between, &items);
}

static Value string_method(Chat *c, int id, const Text *t, Value *a)
{
    switch (id) {
    case METHOD_STRING_capitalize: return text_case(c, t, TEXT_CAPITAL);
    case METHOD_STRING_count: return count_text(c, t, need_text(c, a[0]));
    case METHOD_STRING_endswith: return has_any(c, t, a[0], true);
    case METHOD_STRING_find: return find_in_text(c, t, need_text(c, a[0]), false);
    case METHOD_STRING_join: return join_items(c, t, a[0]);
    case METHOD_STRING_lower: return text_case(c, t, TEXT_LOWER);
    case METHOD_STRING_lstrip: return text_trim(c, t, may_text(c, a[0]), true, false);
    case METHOD_STRING_removeprefix: return without(c, t, need_text(c, a[0]), false);
    case METHOD_STRING_removesuffix: return without(c, t, need_text(c, a[0]), true);
    case METHOD_STRING_replace: return text_replace(c, t, need_text(c, a[0]), need_text(c, a[1]), may_int(c, a[2], -1));
    case METHOD_STRING_rfind: return find_in_text(c, t, need_text(c, a[0]), true);
    case METHOD_STRING_rsplit: return text_split(c, t, may_text(c, a[0]), may_int(c, a[1], -1), true);
    case METHOD_STRING_rstrip: return text_trim(c, t, may_text(c, a[0]), false, true);
    case METHOD_STRING_split: return text_split(c, t, may_text(c, a[0]), may_int(c, a[1], -1), false);
    case METHOD_STRING_splitlines: return text_lines(c, t, may_int(c, a[0], 0) != 0);
    case METHOD_STRING_startswith: return has_any(c, t, a[0], false);
    case METHOD_STRING_strip: return text_trim(c, t, may_text(c, a[0]), true, true);
    case METHOD_STRING_title: return text_case(c, t, TEXT_TITLE);
    default: return text_case(c, t, TEXT_UPPER);
    }
}

/* --- lists, dicts, loops -------------------------------------------------------------------------- */

static Value list_method(Chat *c, int id, const List *l, Value v)
{
    int64_t n = 0;

    for (size_t i = 0; i < l->n; i++)
        if (value_same(c, l->at[i], v)) {
            if (id == METHOD_LIST_index)
                return value_int((int64_t)i);
            n++;
        }
    if (id == METHOD_LIST_index)
        chat_raise(c, "the value is not in the list");
    return value_int(n);
}

static Value dict_method(Chat *c, int id, const Dict *d, Value *a)
{
    List l = {0};

    if (id == METHOD_DICT_get) {
        const Value *found = dict_find(c, d, a[0]);

        if (a[0].kind == V_LIST || a[0].kind == V_DICT)
            chat_raise(c, "unhashable type: '%s'", value_type(a[0]));
        return found ? *found : a[1].kind == V_MISSING ? value_of(V_NONE) : a[1];
    }
    for (size_t i = 0; i < d->n; i++) {
        if (id == METHOD_DICT_items) {
            List pair = {0};

            list_push(c, &pair, d->keys[i]);
            list_push(c, &pair, d->values[i]);
            list_push(c, &l, value_list(c, V_TUPLE, &pair));
        } else {
            list_push(c, &l, id == METHOD_DICT_keys ? d->keys[i] : d->values[i]);
        }
    }
    return value_list(c, V_LIST, &l);
}

Value method_run(Chat *c, const Method *m, Value *args, size_t n)
{
    const ChatName *row = &chat_methods[m->id];
    const size_t most = chat_param_count(row->params);
    Value a[MOST_ARGS];

    if (m->id == METHOD_LOOP_cycle) {
        if (!n)
            chat_raise(c, "no items for cycling given");
        return args[(m->self.as.loop->next - 1) % n];
    }
    if (n > most)
        chat_raise(c, "%s() takes at most %zu values (%zu given)", row->name, most, n);
    for (size_t i = 0; i < MOST_ARGS; i++)
        a[i] = i < n ? args[i] : value_of(V_MISSING);
    if (row->kind == V_STRING)
        return string_method(c, m->id, m->self.as.text, a);
    if (a[0].kind == V_MISSING && most == 1)
        chat_raise(c, "%s() needs a value", row->name);
    if (row->kind == V_LIST)
        return list_method(c, m->id, m->self.as.list, a[0]);
    if (a[0].kind == V_MISSING && most)
        chat_raise(c, "%s() needs a key", row->name);
    return dict_method(c, m->id, m->self.as.dict, a);
}

/* --- functions ------------------------------------------------------------------------------------ */

static Value range(Chat *c, Value *args, size_t n)
{
    int64_t bounds[3] = {0, 0, 1}, items;
    List l = {0};

    if (n < 1 || n > 3)
        chat_raise(c, "range takes 1 to 3 integers");
    for (size_t i = 0; i < n; i++)
        bounds[n == 1 ? 1 : i] = may_int(c, args[i], 0);
    if (bounds[2] == 0)
        chat_raise(c, "range() arg 3 must not be zero");
    if (__builtin_sub_overflow(bounds[1], bounds[0], &items))
        chat_raise(c, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", MOST_RANGE);
    items = (items > 0) == (bounds[2] > 0) ? items / bounds[2] + (items % bounds[2] != 0) : 0;
    if (items > MOST_RANGE)
        chat_raise(c, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", MOST_RANGE);
    for (int64_t i = 0; i < items; i++)
        list_push(c, &l, value_int(bounds[0] + i * bounds[2]));
    return value_list(c, V_LIST, &l);
}

/* dict(...) and namespace(...): the pairs of a dict, then the names. */
static Value dict_of(Chat *c, Kind kind, Value *args, size_t n, const Value *names, size_t n_names)
{
    Value v = value_dict(c);

    if (n > 1 || (n == 1 && args[0].kind != V_DICT))
        chat_raise(c, "a mapping is expected");
    for (size_t i = 0; n == 1 && i < args[0].as.dict->n; i++)
        dict_set(c, v.as.dict, args[0].as.dict->keys[i], args[0].as.dict->values[i]);
    for (size_t i = 0; i < n_names; i++)
        dict_set(c, v.as.dict, names[2 * i], names[2 * i + 1]);
    v.kind = kind;
    return v;
}

static Value time_text(Chat *c, Value format)
{
    const Text *t = need_text(c, format);
    char form[256], out[1024];
    size_t n;

    if (t->n + 2 > sizeof form || memchr(t->at, '\0', t->n))
        chat_raise(c, "strftime_now: its format is too long");
    memcpy(form, t->at, t->n);
    memcpy(form + t->n, ".", 2); /* so that nothing to write differs from too much */
    n = strftime(out, sizeof out, form, &c->now);
    if (!n)
        chat_raise(c, "strftime_now: its text is too long");
    {
        char *copy = chat_alloc(c, n, 1);

        memcpy(copy, out, n);
        return value_text(c, copy, NULL, utf8_valid(copy, n - 1) ? n - 1 : 0);
    }
}

Value global_run(Chat *c, int64_t id, Value *args, size_t n, const Value *names, size_t n_names)
{
    if (id == GLOBAL_namespace || id == GLOBAL_dict)
        return dict_of(c, id == GLOBAL_dict ? V_DICT : V_NAMESPACE, args, n, names, n_names);
    if (n_names)
        chat_raise(c, "%s() takes no keyword arguments", chat_globals[id].name);
    if (id == GLOBAL_range)
        return range(c, args, n);
    if (n != 1)
        chat_raise(c, "%s() takes one value", chat_globals[id].name);
    if (id == GLOBAL_strftime_now)
        return time_text(c, args[0]);
    {
        const Text *t = value_str(c, args[0]);

        chat_raise(c, "%.*s", (int)(t->n < 900 ? t->n : 900), t->at);
    }
}
