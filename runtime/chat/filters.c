/* filters.c - the filters and tests of chat templates, with Jinja's rules. */
#include "value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const Text empty = {0, "", NULL, false};

static bool is_given(Value v)
{
    return v.kind != V_MISSING;
}

static bool flag(Value v, bool missing)
{
    return is_given(v) ? value_true(v) : missing;
}

static const Text *text_or(Chat *c, Value v, const Text *missing)
{
    return is_given(v) && v.kind != V_NONE ? value_str(c, v) : missing;
}

/* --- texts ---------------------------------------------------------------------------------------- */

static Value as_text(const Text *t)
{
    return (Value){.kind = V_STRING, .as.text = t};
}

static Value filter_string(Chat *c, Value *a)
{
    return as_text(value_str(c, a[0]));
}

static Value filter_safe(Chat *c, Value *a)
{
    Text *t = chat_alloc(c, 1, sizeof *t);

    *t = *value_str(c, a[0]);
    t->safe = true;
    return as_text(t);
}

static Value filter_upper(Chat *c, Value *a)
{
    return text_case(c, value_str(c, a[0]), TEXT_UPPER);
}

static Value filter_lower(Chat *c, Value *a)
{
    return text_case(c, value_str(c, a[0]), TEXT_LOWER);
}

static Value filter_capitalize(Chat *c, Value *a)
{
    return text_case(c, value_str(c, a[0]), TEXT_CAPITAL);
}

static Value filter_title(Chat *c, Value *a)
{
    return text_case(c, value_str(c, a[0]), TEXT_FILTER_TITLE);
}

static Value filter_trim(Chat *c, Value *a)
{
    return text_trim(c, value_str(c, a[0]), text_or(c, a[1], NULL), true, true);
}

static Value filter_replace(Chat *c, Value *a)
{
    int64_t most = -1;

    if (!is_given(a[1]) || !is_given(a[2]))
        chat_raise(c, "replace needs two texts");
    if (a[3].kind == V_INT)
        most = a[3].as.i;
    return text_replace(c, value_str(c, a[0]), value_str(c, a[1]), value_str(c, a[2]), most);
}

static Value filter_indent(Chat *c, Value *a)
{
    const Value space = value_literal(c, " ");
    const Text *width = a[1].kind == V_STRING
                            ? a[1].as.text
                            : arithmetic(c, CHAT_MUL, space, is_given(a[1]) ? a[1] : value_int(4)).as.text;
    const Value whole = arithmetic(c, CHAT_ADD, a[0], value_literal(c, "\n")); /* refuses what is no text */
    const List *lines = text_lines(c, whole.as.text, false).as.list;
    Buffer b = {0};

    for (size_t i = 0; i < lines->n; i++) {
        const Text *line = lines->at[i].as.text;

        if (i)
            buffer_text(c, &b, "\n");
        if (i ? line->n || flag(a[3], false) : flag(a[2], false))
            buffer_put(c, &b, width->at, width->user, width->n);
        buffer_put(c, &b, line->at, line->user, line->n);
    }
    return buffer_value(c, &b);
}

static Value filter_tojson(Chat *c, Value *a)
{
    Text indent = {0}, comma = {2, ", ", NULL, false}, colon = {2, ": ", NULL, false};
    JsonForm form = {flag(a[1], false), flag(a[4], false), NULL, &comma, &colon};
    Buffer b = {0};

    if (a[2].kind == V_INT || a[2].kind == V_BOOL) {
        const Value spaces = arithmetic(c, CHAT_MUL, value_literal(c, " "), a[2]);

        indent = *spaces.as.text;
        form.indent = &indent;
    } else if (a[2].kind == V_STRING) {
        form.indent = a[2].as.text;
    }
    if (form.indent)
        comma.n = 1;
    if (a[3].kind == V_TUPLE || a[3].kind == V_LIST) {
        if (a[3].as.list->n != 2 || a[3].as.list->at[0].kind != V_STRING || a[3].as.list->at[1].kind != V_STRING)
            chat_raise(c, "separators must be two texts");
        form.comma = a[3].as.list->at[0].as.text;
        form.colon = a[3].as.list->at[1].as.text;
    }
    json_write(c, &b, a[0], &form, 0);
    return buffer_value(c, &b);
}

/* --- numbers -------------------------------------------------------------------------------------- */

static Value filter_abs(Chat *c, Value *a)
{
    if (a[0].kind == V_FLOAT)
        return value_float(fabs(a[0].as.f));
    if (!value_is_number(a[0]))
        chat_raise(c, "bad operand type for abs(): '%s'", value_type(a[0]));
    return a[0].as.i < 0 ? value_negate(c, a[0]) : value_int(a[0].as.i);
}

/* A text as a number; false: it is none. */
static bool parse_number(Chat *c, const Text *t, bool whole, double *f, int64_t *i)
{
    const Text *s = text_trim(c, t, NULL, true, true).as.text;
    char text[400];
    char *end;

    if (!s->n || s->n >= sizeof text || memchr(s->at, 'x', s->n) || memchr(s->at, 'X', s->n))
        return false;
    memcpy(text, s->at, s->n);
    text[s->n] = '\0';
    if (whole)
        *i = strtoll(text, &end, 10);
    else
        *f = strtod(text, &end);
    if (whole && !*end && (*i == INT64_MAX || *i == INT64_MIN))
        chat_raise(c, "an integer is beyond 64 bits");
    return !*end;
}

static Value filter_int(Chat *c, Value *a)
{
    double f = NAN;
    int64_t i = 0;

    if (a[0].kind == V_UNDEFINED)
        chat_raise(c, "int of an undefined value");
    if (a[0].kind == V_STRING && parse_number(c, a[0].as.text, true, NULL, &i))
        return value_int(i);
    if (a[0].kind == V_INT || a[0].kind == V_BOOL)
        return value_int(a[0].as.i);
    if (a[0].kind == V_FLOAT)
        f = a[0].as.f;
    else if (a[0].kind == V_STRING && !parse_number(c, a[0].as.text, false, &f, NULL))
        f = NAN;
    if (isnan(f) || (isinf(f) && a[0].kind == V_STRING))
        return is_given(a[1]) ? a[1] : value_int(0);
    if (fabs(f) >= 9223372036854775808.0)
        chat_raise(c, "an integer is beyond 64 bits");
    return value_int((int64_t)f);
}

static Value filter_float(Chat *c, Value *a)
{
    double f;

    if (a[0].kind == V_UNDEFINED)
        chat_raise(c, "float of an undefined value");
    if (value_is_number(a[0]))
        return value_float(value_number(a[0]));
    if (a[0].kind == V_STRING && parse_number(c, a[0].as.text, false, &f, NULL))
        return value_float(f);
    return is_given(a[1]) ? a[1] : value_float(0);
}

static Value filter_round(Chat *c, Value *a)
{
    const Text *method = text_or(c, a[2], NULL);
    const int64_t places = a[1].kind == V_INT ? a[1].as.i : 0;
    char text[400];
    double x;

    if (!value_is_number(a[0]))
        chat_raise(c, "type %s doesn't define __round__ method", value_type(a[0]));
    if (places < 0 || places > 20)
        chat_raise(c, "round takes 0 to 20 places");
    x = value_number(a[0]);
    if (method && (method->n == 4 || method->n == 5) &&
        (memcmp(method->at, "ceil", 4) == 0 || (method->n == 5 && memcmp(method->at, "floor", 5) == 0))) {
        const double scale = pow(10, (double)places);

        return value_float((method->n == 4 ? ceil(x * scale) : floor(x * scale)) / scale + 0.0); /* no -0.0 */
    }
    if (a[0].kind != V_FLOAT)
        return value_int(a[0].as.i);
    if (!isfinite(x))
        return a[0];
    snprintf(text, sizeof text, "%.*f", (int)places, x);
    return value_float(strtod(text, NULL));
}

/* --- collections ---------------------------------------------------------------------------------- */

static Value filter_length(Chat *c, Value *a)
{
    return value_int((int64_t)value_length(c, a[0]));
}

static Value filter_list(Chat *c, Value *a)
{
    const List l = value_items(c, a[0]);

    return value_list(c, V_LIST, &l);
}

static Value filter_first(Chat *c, Value *a)
{
    const List l = value_items(c, a[0]);

    return l.n ? l.at[0] : value_of(V_UNDEFINED);
}

static Value filter_last(Chat *c, Value *a)
{
    const List l = value_items(c, a[0]);

    return l.n ? l.at[l.n - 1] : value_of(V_UNDEFINED);
}

static Value filter_reverse(Chat *c, Value *a)
{
    const List l = value_items(c, a[0]);
    List out = {0};

    for (size_t i = l.n; i-- > 0;)
        list_push(c, &out, l.at[i]);
    return a[0].kind == V_STRING ? text_join(c, &empty, &out) : value_list(c, V_LIST, &out);
}

static Value pair_of(Chat *c, Value key, Value v)
{
    List pair = {0};

    list_push(c, &pair, key);
    list_push(c, &pair, v);
    return value_list(c, V_TUPLE, &pair);
}

static Value filter_items(Chat *c, Value *a)
{
    List l = {0};

    if (a[0].kind != V_DICT && a[0].kind != V_UNDEFINED)
        chat_raise(c, "Can only get item pairs from a mapping.");
    for (size_t i = 0; a[0].kind == V_DICT && i < a[0].as.dict->n; i++)
        list_push(c, &l, pair_of(c, a[0].as.dict->keys[i], a[0].as.dict->values[i]));
    return value_list(c, V_LIST, &l);
}

static Value filter_default(Chat *c, Value *a)
{
    const bool missing = a[0].kind == V_UNDEFINED || (flag(a[2], false) && !value_true(a[0]));

    if (missing && !is_given(a[1]))
        return value_literal(c, "");
    return missing ? a[1] : a[0];
}

/* The item under a path such as "function.name", or under a number. */
static Value attribute_of(Chat *c, Value v, Value path)
{
    const List *parts;
    const Text dot = {1, ".", NULL, false};

    if (path.kind != V_STRING)
        return lookup_item(c, v, path);
    parts = text_split(c, path.as.text, &dot, -1, false).as.list;
    for (size_t i = 0; i < parts->n; i++) {
        const Text *t = parts->at[i].as.text;
        int64_t number;
        bool digits = t->n > 0;

        for (size_t k = 0; k < t->n; k++)
            digits &= t->at[k] >= '0' && t->at[k] <= '9';
        v = lookup_item(c, v, digits && parse_number(c, t, true, NULL, &number) ? value_int(number) : parts->at[i]);
    }
    return v;
}

/* The values by which items are compared: the items or an attribute of them, in lower case unless case counts. */
static List keys_of(Chat *c, const List *items, Value attribute, bool case_sensitive)
{
    List keys = {0};

    for (size_t i = 0; i < items->n; i++) {
        Value key = items->at[i];

        if (is_given(attribute) && attribute.kind != V_NONE)
            key = attribute_of(c, key, attribute);
        if (key.kind == V_STRING && !case_sensitive)
            key = text_case(c, key.as.text, TEXT_LOWER);
        list_push(c, &keys, key);
    }
    return keys;
}

/* The places of the keys in rising or falling order; equal ones stay as they are. Merges runs of 1, 2, 4 ... */
static size_t *sort_places(Chat *c, const List *keys, bool falling)
{
    size_t *places = chat_alloc(c, keys->n + 1, sizeof *places), *other = chat_alloc(c, keys->n + 1, sizeof *other);

    for (size_t i = 0; i < keys->n; i++)
        places[i] = i;
    for (size_t run = 1; run < keys->n; run *= 2) {
        size_t *swap = places;

        for (size_t from = 0; from < keys->n; from += 2 * run) {
            const size_t middle = from + run < keys->n ? from + run : keys->n;
            const size_t end = from + 2 * run < keys->n ? from + 2 * run : keys->n;
            size_t x = from, y = middle;

            for (size_t i = from; i < end; i++) {
                bool right = x == middle;

                if (x < middle && y < end) {
                    const int order = value_order(c, keys->at[places[y]], keys->at[places[x]]);

                    right = falling ? order > 0 : order < 0;
                }
                other[i] = places[right ? y++ : x++];
            }
        }
        places = other;
        other = swap;
    }
    return places;
}

static Value sorted(Chat *c, const List *items, const List *keys, bool falling)
{
    const size_t *places = sort_places(c, keys, falling);
    List out = {0};

    for (size_t i = 0; i < items->n; i++)
        list_push(c, &out, items->at[places[i]]);
    return value_list(c, V_LIST, &out);
}

/* Several attributes may be given, "a,b". Keys are lists then, of which equal ones are not asked for their order. */
static Value filter_sort(Chat *c, Value *a)
{
    const List items = value_items(c, a[0]);
    const Text comma = {1, ",", NULL, false};
    List keys = {0};

    if (a[3].kind != V_STRING) {
        keys = keys_of(c, &items, a[3], flag(a[2], false));
    } else {
        const List *names = text_split(c, a[3].as.text, &comma, -1, false).as.list;

        for (size_t i = 0; i < items.n; i++) {
            List key = {0};

            for (size_t k = 0; k < names->n; k++) {
                const List one = {&items.at[i], 1, 1};

                list_push(c, &key, keys_of(c, &one, names->at[k], flag(a[2], false)).at[0]);
            }
            list_push(c, &keys, value_list(c, V_LIST, &key));
        }
    }
    return sorted(c, &items, &keys, flag(a[1], false));
}

static Value filter_dictsort(Chat *c, Value *a)
{
    const List items = *filter_items(c, a).as.list;
    const Text *by = text_or(c, a[2], &empty);
    const bool values = by->n == 5 && memcmp(by->at, "value", 5) == 0;
    List keys;

    if (a[0].kind != V_DICT)
        chat_raise(c, "dictsort is for mappings");
    keys = keys_of(c, &items, value_int(values), flag(a[1], false));
    return sorted(c, &items, &keys, flag(a[3], false));
}

static Value extreme(Chat *c, Value *a, int sign)
{
    const List items = value_items(c, a[0]), keys = keys_of(c, &items, a[2], flag(a[1], false));
    size_t best = 0;

    for (size_t i = 1; i < items.n; i++)
        if (value_order(c, keys.at[i], keys.at[best]) * sign > 0)
            best = i;
    return items.n ? items.at[best] : value_of(V_UNDEFINED);
}

static Value filter_max(Chat *c, Value *a)
{
    return extreme(c, a, 1);
}

static Value filter_min(Chat *c, Value *a)
{
    return extreme(c, a, -1);
}

static Value filter_unique(Chat *c, Value *a)
{
    const List items = value_items(c, a[0]), keys = keys_of(c, &items, a[2], flag(a[1], false));
    const Value seen = value_dict(c);
    List out = {0};

    for (size_t i = 0; i < items.n; i++)
        if (!dict_find(c, seen.as.dict, keys.at[i])) {
            dict_set(c, seen.as.dict, keys.at[i], items.at[i]);
            list_push(c, &out, items.at[i]);
        }
    return value_list(c, V_LIST, &out);
}

static Value filter_sum(Chat *c, Value *a)
{
    const List items = value_items(c, a[0]), keys = keys_of(c, &items, a[1], true);
    Value sum = is_given(a[2]) ? a[2] : value_int(0);

    for (size_t i = 0; i < keys.n; i++)
        sum = arithmetic(c, CHAT_ADD, sum, keys.at[i]);
    return sum;
}

static Value filter_join(Chat *c, Value *a)
{
    const List items = value_items(c, a[0]), keys = keys_of(c, &items, a[2], true);

    return text_join(c, text_or(c, a[1], &empty), &keys);
}

/* map, select and their like take what is false for nothing, also where it cannot be iterated. Of nothing no item is
 * asked for, so that wrong arguments do no harm. */
static List items_or_none(Chat *c, Value v)
{
    return value_true(v) ? value_items(c, v) : (List){0};
}

static Value filter_map(Chat *c, Value *a)
{
    const List items = items_or_none(c, a[0]);
    Value args[8];
    List out = {0};
    int id = -1;

    if (!items.n)
        return value_list(c, V_LIST, &out);
    if (is_given(a[1]) == is_given(a[2]))
        chat_raise(c, "map needs a filter or an attribute");
    if (is_given(a[1]))
        id = a[1].kind == V_STRING ? filter_find(a[1].as.text) : -1;
    if (is_given(a[1]) && id < 0)
        chat_raise(c, "map: no such filter");
    for (size_t i = 0; i < sizeof args / sizeof *args; i++)
        args[i] = value_of(V_MISSING);
    for (size_t i = 0; i < items.n; i++) {
        Value v = items.at[i];

        chat_spend(c, 1);
        args[0] = v;
        if (id >= 0) {
            v = filter_run(c, (uint32_t)id, args, chat_param_count(chat_filters[id].params) + 1);
        } else {
            v = attribute_of(c, v, a[2]);
            if (v.kind == V_UNDEFINED && is_given(a[3]))
                v = a[3];
        }
        list_push(c, &out, v);
    }
    return value_list(c, V_LIST, &out);
}

/* The items that pass a test, or that fail it. Without a test: the true ones. */
static Value picked(Chat *c, Value in, Value attribute, Value test, Value other, bool want)
{
    const List items = items_or_none(c, in);
    int id = -1;
    List out = {0};

    if (is_given(test) && items.n) {
        id = test.kind == V_STRING ? test_find(test.as.text) : -1;
        if (id < 0)
            chat_raise(c, "no such test");
        if (chat_param_count(chat_tests[id].params) != is_given(other))
            chat_raise(c, "test '%s' takes %zu values", chat_tests[id].name, chat_param_count(chat_tests[id].params));
    }
    for (size_t i = 0; i < items.n; i++) {
        Value args[2] = {items.at[i], other};

        chat_spend(c, 1);
        if (is_given(attribute))
            args[0] = attribute_of(c, items.at[i], attribute);
        if ((id >= 0 ? test_run(c, (uint32_t)id, args, is_given(other) ? 2 : 1) : value_true(args[0])) == want)
            list_push(c, &out, items.at[i]);
    }
    return value_list(c, V_LIST, &out);
}

static Value filter_select(Chat *c, Value *a)
{
    return picked(c, a[0], value_of(V_MISSING), a[1], a[2], true);
}

static Value filter_reject(Chat *c, Value *a)
{
    return picked(c, a[0], value_of(V_MISSING), a[1], a[2], false);
}

static Value filter_selectattr(Chat *c, Value *a)
{
    if (!is_given(a[1]) && value_true(a[0]))
        chat_raise(c, "selectattr needs an attribute");
    return picked(c, a[0], a[1], a[2], a[3], true);
}

static Value filter_rejectattr(Chat *c, Value *a)
{
    if (!is_given(a[1]) && value_true(a[0]))
        chat_raise(c, "rejectattr needs an attribute");
    return picked(c, a[0], a[1], a[2], a[3], false);
}

Value filter_run(Chat *c, uint32_t filter, Value *args, size_t n)
{
    static Value (*const functions[])(Chat *, Value *) = {
#define FILTER(name, function, params) function,
#include "names.def"
    };

    if (filter >= chat_n_filters || n != chat_param_count(chat_filters[filter].params) + 1)
        chat_raise(c, "filter %u with %zu values", filter, n);
    return functions[filter](c, args);
}

/* --- tests ---------------------------------------------------------------------------------------- */

#define KIND_TEST(name, condition) \
    static bool test_##name(Chat *c, Value *a) \
    { \
        (void)c; \
        return condition; \
    }
KIND_TEST(boolean, a[0].kind == V_BOOL)
KIND_TEST(callable, a[0].kind == V_UNDEFINED || a[0].kind == V_MACRO || a[0].kind == V_METHOD || a[0].kind == V_GLOBAL)
KIND_TEST(defined, a[0].kind != V_UNDEFINED)
KIND_TEST(undefined, a[0].kind == V_UNDEFINED)
KIND_TEST(false, a[0].kind == V_BOOL && !a[0].as.i)
KIND_TEST(true, a[0].kind == V_BOOL && a[0].as.i)
KIND_TEST(float, a[0].kind == V_FLOAT)
KIND_TEST(integer, a[0].kind == V_INT)
KIND_TEST(iterable, a[0].kind == V_UNDEFINED || (a[0].kind >= V_STRING && a[0].kind <= V_DICT))
KIND_TEST(sequence, a[0].kind == V_UNDEFINED || (a[0].kind >= V_STRING && a[0].kind <= V_DICT))
KIND_TEST(mapping, a[0].kind == V_DICT)
KIND_TEST(none, a[0].kind == V_NONE)
KIND_TEST(number, value_is_number(a[0]))
KIND_TEST(string, a[0].kind == V_STRING)
KIND_TEST(eq, value_same(c, a[0], a[1]))
KIND_TEST(ne, !value_same(c, a[0], a[1]))
KIND_TEST(lt, value_order(c, a[0], a[1]) == -1)
KIND_TEST(gt, value_order(c, a[0], a[1]) == 1)
KIND_TEST(le, value_order(c, a[0], a[1]) <= 0)
KIND_TEST(ge, value_order(c, a[0], a[1]) == 0 || value_order(c, a[0], a[1]) == 1)
KIND_TEST(in, value_in(c, a[0], a[1]))
KIND_TEST(even, !value_true(arithmetic(c, CHAT_MOD, a[0], value_int(2))))
KIND_TEST(odd, value_same(c, arithmetic(c, CHAT_MOD, a[0], value_int(2)), value_int(1)))
KIND_TEST(divisibleby, !value_true(arithmetic(c, CHAT_MOD, a[0], a[1])))
#undef KIND_TEST

/* str.isupper, str.islower: something changes with the other case, and nothing with this one. */
static bool is_case(Chat *c, Value v, TextCase how)
{
    const Value t = as_text(value_str(c, v));

    return value_same(c, t, text_case(c, t.as.text, how)) &&
           !value_same(c, t, text_case(c, t.as.text, how == TEXT_UPPER ? TEXT_LOWER : TEXT_UPPER));
}

static bool test_lower(Chat *c, Value *a)
{
    return is_case(c, a[0], TEXT_LOWER);
}

static bool test_upper(Chat *c, Value *a)
{
    return is_case(c, a[0], TEXT_UPPER);
}

bool test_run(Chat *c, uint32_t test, Value *args, size_t n)
{
    static bool (*const functions[])(Chat *, Value *) = {
#define TEST(name, function, params) function,
#include "names.def"
    };

    if (test >= chat_n_tests || n != chat_param_count(chat_tests[test].params) + 1)
        chat_raise(c, "test %u with %zu values", test, n);
    for (size_t i = 1; i < n; i++)
        if (args[i].kind == V_MISSING)
            chat_raise(c, "test '%s' lacks a value", chat_tests[test].name);
    return functions[test](c, args);
}
