/* chat.c - opens a section of compiled templates, and renders a conversation: messages, tools and variables to values,
 * then the template's function. */
#include "chat.h"

#include <locale.h>
#include <string.h>

#include "../base/utf8.h"
#include "machine.h"

enum { MEMORY_BYTES = 32 << 20, MEMORY_FACTOR = 64 };
static const uint64_t MOST_STEPS = 20000000;

/* --- the section ------------------------------------------------------------------------------------ */

static bool is_string(const ChatTable *t, uint32_t i)
{
    return i < t->head->consts && t->consts[i].kind == CHAT_STRING;
}

static bool is_instruction(const ChatTable *t, const ChatFunction *f, const ChatInstr *i)
{
    if (i->op >= CHAT_OP_COUNT)
        return false;
    switch (chat_args[i->op]) {
    case CHAT_ARG_NOTHING: return i->arg == 0;
    case CHAT_ARG_CONST: return i->arg < t->head->consts;
    case CHAT_ARG_NAME: return is_string(t, i->arg);
    case CHAT_ARG_COUNT: return i->arg < 1 << 16;
    case CHAT_ARG_JUMP: return i->arg >= f->first && i->arg - f->first < f->count;
    case CHAT_ARG_FUNCTION: return i->arg < t->head->functions;
    case CHAT_ARG_FILTER:
    case CHAT_ARG_TEST: return true; /* filter_run and test_run check them */
    case CHAT_ARG_BINARY: return i->arg < CHAT_BINARY_COUNT;
    case CHAT_ARG_COMPARE: return i->arg < CHAT_COMPARE_COUNT;
    }
    return false;
}

static FtxStatus check_functions(const ChatTable *t, FtxError *err)
{
    const ChatHeader *h = t->head;

    for (uint32_t k = 0; k < h->functions; k++) {
        const ChatFunction *f = &t->functions[k];

        if (f->first > h->code || f->count == 0 || f->count > h->code - f->first || f->first_param > h->params ||
            f->n_params > h->params - f->first_param || t->code[f->first + f->count - 1].op != CHAT_RETURN)
            return ftx_fail(err, FTX_EFORMAT, "chat templates: function %u is not inside the section", k);
        for (uint32_t i = f->first; i < f->first + f->count; i++)
            if (!is_instruction(t, f, &t->code[i]))
                return ftx_fail(err, FTX_EFORMAT, "chat templates: instruction %u is wrong", i);
    }
    for (uint32_t i = 0; i < h->params; i++)
        if (!is_string(t, t->params[i]))
            return ftx_fail(err, FTX_EFORMAT, "chat templates: parameter %u has no name", i);
    return FTX_OK;
}

static FtxStatus check_names(const ChatTable *t, FtxError *err)
{
    const ChatHeader *h = t->head;

    for (uint32_t i = 0; i < h->consts; i++) {
        const ChatConst *k = &t->consts[i];

        if (k->kind >= CHAT_CONST_COUNT ||
            (k->kind == CHAT_STRING &&
             (k->word > h->bytes || k->bytes > h->bytes - k->word || !utf8_valid(t->bytes + k->word, k->bytes))))
            return ftx_fail(err, FTX_EFORMAT, "chat templates: constant %u is wrong", i);
    }
    for (uint32_t i = 0; i < h->templates; i++)
        if (!is_string(t, t->templates[i].name) || t->templates[i].function >= h->functions)
            return ftx_fail(err, FTX_EFORMAT, "chat templates: template %u is not there", i);
    for (uint32_t i = 0; i < h->vars; i++)
        if (!is_string(t, t->vars[i].name) || t->vars[i].value >= h->consts)
            return ftx_fail(err, FTX_EFORMAT, "chat templates: variable %u is not there", i);
    if (h->loop != UINT32_MAX && !is_string(t, h->loop))
        return ftx_fail(err, FTX_EFORMAT, "chat templates: the name of loops is not there");
    return FTX_OK;
}

FtxStatus chat_open(const void *section, size_t bytes, ChatTable *t, FtxError *err)
{
    const ChatHeader *h = section;
    const char *at = (const char *)(h + 1);
    FtxStatus s;

    if (bytes < sizeof *h || (uintptr_t)section % 8 || memcmp(h->magic, CHAT_MAGIC, sizeof h->magic) != 0)
        return ftx_fail(err, FTX_EFORMAT, "chat templates: these are none");
    if (h->format != CHAT_FORMAT)
        return ftx_fail(err, FTX_EVERSION, "chat templates: they have format %u, this libftx reads %d", h->format,
                        CHAT_FORMAT);
    if (sizeof *h + (uint64_t)h->consts * sizeof *t->consts + (uint64_t)h->code * sizeof *t->code +
            (uint64_t)h->functions * sizeof *t->functions + (uint64_t)h->templates * sizeof *t->templates +
            (uint64_t)h->vars * sizeof *t->vars + (uint64_t)h->params * sizeof *t->params + h->bytes !=
        bytes)
        return ftx_fail(err, FTX_EFORMAT, "chat templates: their parts do not fill the section's %zu bytes", bytes);
    *t = (ChatTable){.head = h};
    t->consts = (const ChatConst *)at;
    t->code = (const ChatInstr *)(t->consts + h->consts);
    t->functions = (const ChatFunction *)(t->code + h->code);
    t->templates = (const ChatTemplate *)(t->functions + h->functions);
    t->vars = (const ChatVar *)(t->templates + h->templates);
    t->params = (const uint32_t *)(t->vars + h->vars);
    t->bytes = (const char *)(t->params + h->params);
    s = check_names(t, err);
    return s ? s : check_functions(t, err);
}

/* --- a conversation to values ------------------------------------------------------------------------ */

static size_t length_of(const char *text, size_t bytes)
{
    return bytes || !text ? bytes : strlen(text);
}

size_t chat_memory(const FtxChat *q)
{
    size_t all = length_of(q->json, q->json_bytes) + length_of(q->tools, 0) + length_of(q->variables, 0);

    for (size_t i = 0; i < q->count; i++)
        all += length_of(q->messages[i].content, q->messages[i].content_bytes) + 64;
    return all < SIZE_MAX / MEMORY_FACTOR / 2 ? MEMORY_BYTES + all * MEMORY_FACTOR : SIZE_MAX / 2;
}

static Value users_text(Chat *c, const char *what, const char *text, size_t bytes)
{
    Buffer b = {0};

    bytes = length_of(text, bytes);
    if (!utf8_valid(text ? text : "", bytes))
        chat_raise(c, "%s is not UTF-8", what);
    buffer_mark(c, &b, text, bytes, true);
    return buffer_value(c, &b);
}

static Value messages_of(Chat *c, const FtxChat *q)
{
    List l = {0};

    if (q->json && q->count)
        chat_raise(c, "messages are given twice, as a list and as JSON");
    if (q->json) {
        const Value v = json_read(c, "messages", q->json, length_of(q->json, q->json_bytes));

        if (v.kind != V_LIST)
            chat_raise(c, "messages: a JSON array is expected");
        for (size_t i = 0; i < v.as.list->n; i++)
            if (v.as.list->at[i].kind != V_DICT)
                chat_raise(c, "messages[%zu]: a JSON object is expected", i);
        return v;
    }
    for (size_t i = 0; i < q->count; i++) {
        const FtxMessage *from = &q->messages[i];
        const Value v = value_dict(c);

        if (!from->role)
            chat_raise(c, "messages[%zu].role is NULL", i);
        dict_set(c, v.as.dict, value_literal(c, "role"), users_text(c, "a role", from->role, 0));
        dict_set(c, v.as.dict, value_literal(c, "content"),
                 users_text(c, "a content", from->content, from->content_bytes));
        list_push(c, &l, v);
    }
    return value_list(c, V_LIST, &l);
}

/* A variable that no template names needs no place. */
static void bind_text(Machine *m, const Text *name, Value v)
{
    for (uint32_t i = 0; i < m->t.head->consts; i++) {
        const Value k = m->consts[i];

        if (k.kind == V_STRING && k.as.text->n == name->n && memcmp(k.as.text->at, name->at, name->n) == 0)
            machine_bind(m, i, v);
    }
}

static void bind_name(Machine *m, const char *name, Value v)
{
    const Text t = {strlen(name), name, NULL, false};

    bind_text(m, &t, v);
}

/* Later ones hide earlier ones: functions, the model's tokens, the conversation, the caller's variables. */
static void bind_variables(Machine *m, const FtxChat *q)
{
    Chat *c = &m->c;
    Value tools = value_of(V_NONE), more = value_dict(c);

    for (size_t i = 0; i < chat_n_globals; i++)
        bind_name(m, chat_globals[i].name, (Value){.kind = V_GLOBAL, .as.i = (int64_t)i});
    for (uint32_t i = 0; i < m->t.head->vars; i++)
        machine_bind(m, m->t.vars[i].name, m->consts[m->t.vars[i].value]);
    if (q->tools)
        tools = json_read(c, "tools", q->tools, strlen(q->tools));
    if (tools.kind != V_NONE && tools.kind != V_LIST)
        chat_raise(c, "tools: a JSON array is expected");
    bind_name(m, "messages", messages_of(c, q));
    bind_name(m, "tools", tools);
    bind_name(m, "documents", value_of(V_NONE));
    bind_name(m, "add_generation_prompt", value_bool(q->add_generation_prompt));
    if (q->variables)
        more = json_read(c, "variables", q->variables, strlen(q->variables));
    if (more.kind != V_DICT)
        chat_raise(c, "variables: a JSON object is expected");
    for (size_t i = 0; i < more.as.dict->n; i++)
        bind_text(m, more.as.dict->keys[i].as.text, more.as.dict->values[i]);
}

/* --- a rendering ------------------------------------------------------------------------------------ */

static const ChatTemplate *find_template(Machine *m, const char *name)
{
    for (uint32_t i = 0; i < m->t.head->templates; i++) {
        const Text *t = m->consts[m->t.templates[i].name].as.text;

        if (t->n == strlen(name) && memcmp(t->at, name, t->n) == 0)
            return &m->t.templates[i];
    }
    return NULL;
}

/* As transformers choose: "tool_use" where there are tools and such a template, else "default". */
static const ChatTemplate *choose_template(Machine *m, const FtxChat *q)
{
    const ChatTemplate *t = NULL;

    if (q->template_name)
        t = find_template(m, q->template_name);
    else if (q->tools)
        t = find_template(m, "tool_use");
    if (!t && !q->template_name)
        t = find_template(m, "default");
    if (!t)
        chat_raise(&m->c, "the model has no chat template \"%.100s\"", q->template_name ? q->template_name : "default");
    return t;
}

static void render(Machine *m, const FtxChat *q, ChatText *text)
{
    const time_t now = q->time ? (time_t)q->time : time(NULL);
    const ChatTemplate *t;

    localtime_r(&now, &m->c.now);
    machine_open(m);
    t = choose_template(m, q);
    bind_variables(m, q);
    m->out = chat_alloc(&m->c, 1, sizeof *m->out);
    machine_run(m, t->function);
    *text = (ChatText){m->out->n ? m->out->at : "", m->out->user, m->out->n};
}

FtxStatus chat_render(const ChatTable *table, const FtxChat *q, void *block, size_t size, ChatText *text, FtxError *err)
{
    /* Numbers and dates as in English, whatever the program's locale is. glibc allocates nothing for "C". */
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const locale_t before = plain ? uselocale(plain) : (locale_t)0;
    Machine *m = block;
    FtxStatus s = FTX_OK;

    if (size < sizeof *m)
        s = ftx_fail(err, FTX_EFULL, "rendering needs more than %zu bytes of memory", size);
    if (!s) {
        m->t = *table;
        m->c.block = block;
        m->c.at = (sizeof *m + 15) / 16 * 16;
        m->c.size = size;
        m->c.steps = MOST_STEPS;
        m->c.err = err;
        if (setjmp(m->c.escape) == 0)
            render(m, q, text);
        s = m->c.status;
    }
    if (plain) {
        uselocale(before);
        freelocale(plain);
    }
    return s;
}
