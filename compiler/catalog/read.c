/* read.c - `//@` lines to contracts: the files, the table of lines, and all lines but those of read_match.c and read_form.c.
 *
 * A mistake in a contract is a diagnostic with file and line when ftxc starts; after that, contracts are known to be well
 * formed. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "reader.h"

/* --- constants and expressions ----------------------------------------------------------------- */

/* The values of a tune line, separated by blanks. */
static bool read_values(Reader *r, ContractConst *k, const char *text)
{
    Reader list = *r;

    for (list.at = text; *list.at; reader_spaces(&list)) {
        if (k->n_values == CONTRACT_MAX_VALUES)
            return diag_error(r->d, r->loc, "contract: constant %s has more than %d values", k->value.name,
                              CONTRACT_MAX_VALUES);
        k->values[k->n_values++] = reader_text(&list, " \t");
    }
    return true;
}

/* The start of the next "NAME:" in a consts line, or the end of the line. */
static const char *next_const(const char *at)
{
    for (; *at; at++) {
        size_t n = 0;

        if (!isupper((unsigned char)*at) || (!isspace((unsigned char)at[-1])))
            continue;
        while (isalnum((unsigned char)at[n]) || at[n] == '_')
            n++;
        if (at[n] == ':')
            return at;
    }
    return at;
}

/* NAME: value NAME: value ...; tuned: with several values for each. */
static bool read_constants(Reader *r, bool tuned)
{
    for (reader_spaces(r); *r->at; reader_spaces(r)) {
        ContractConst k = {.value.loc = r->loc}, *place;
        const char *end, *stop, *text;

        k.value.name = reader_name(r);
        if (!k.value.name || *r->at != ':')
            return reader_fail(r, "CONSTANT: value");
        r->at++;
        end = stop = next_const(r->at);
        while (stop > r->at && isspace((unsigned char)stop[-1]))
            stop--;
        reader_spaces(r);
        if (stop <= r->at)
            return reader_fail(r, "value");
        text = arena_strndup(r->keep, r->at, (size_t)(stop - r->at));
        r->at = end;
        if (tuned ? !read_values(r, &k, text) : !reader_const_kind(r, text, &k.kind))
            return false;
        k.value.text = tuned ? NULL : text;
        place = reader_const(r->c, k.value.name);
        if (place && (!place->of_match || place->placed || tuned || strcmp(k.value.text, k.value.name) != 0))
            return diag_error(r->d, r->loc, "contract: constant %s is given twice", k.value.name);
        if (place) { /* "NAME: NAME" after a match line: the match line gives the value, this line the place */
            const size_t i = (size_t)(place - r->c->consts.at);

            k = *place;
            k.placed = true;
            memmove(place, place + 1, sizeof *place * (r->c->consts.n - i - 1));
            r->c->consts.n--;
        }
        *(ContractConst *)arena_push(r->keep, r->c->consts) = k;
    }
    return true;
}

static bool read_consts(Reader *r)
{
    return read_constants(r, false);
}

static bool read_tune(Reader *r)
{
    return read_constants(r, true);
}

/* The constant of that name if a tune line gives its values, else NULL. */
static ContractConst *tuned_const(Contract *c, const char *name)
{
    ContractConst *k = reader_const(c, name);

    return k && k->n_values ? k : NULL;
}

static bool read_order(Reader *r)
{
    size_t n = 0;

    do {
        const char *name = reader_name(r);
        ContractConst *k = name ? tuned_const(r->c, name) : NULL;

        if (!k)
            return reader_fail(r, "constant of a tune line above");
        k->reorders = true;
        reader_spaces(r);
    } while (*r->at);
    for (size_t i = 0; i < r->c->consts.n; i++)
        n += r->c->consts.at[i].reorders;
    return n <= CONTRACT_MAX_ORDER || reader_fail(r, "at most 4 constants in all order lines");
}

/* Whether a value stands in the tune line of its constant. */
static bool check_preferred(Reader *r, const NamedText *value)
{
    const ContractConst *k = tuned_const(r->c, value->name);
    const char *all = "";
    bool found = false;

    if (!k)
        return diag_error(r->d, r->loc, "contract: prefer: no tune line above has %s", value->name);
    for (size_t i = 0; i < k->n_values; i++) {
        found |= strcmp(k->values[i], value->text) == 0;
        all = arena_printf(r->keep, "%s %s", all, k->values[i]);
    }
    return found || diag_error(r->d, r->loc, "contract: prefer: %s is not one of the values of %s:%s", value->text,
                               value->name, all);
}

/* Constants of match lines come after those of consts lines, unless a consts line "NAME: NAME" gives them a place. */
static void order_consts(Contract *c)
{
    ContractConst sorted[CONTRACT_MAX_CONSTS];
    size_t n = 0;

    for (int last = 0; last <= 1; last++)
        for (size_t i = 0; i < c->consts.n; i++)
            if ((c->consts.at[i].of_match && !c->consts.at[i].placed) == last)
                sorted[n++] = c->consts.at[i];
    if (n)
        memcpy(c->consts.at, sorted, sizeof *sorted * n);
}

static bool word_at(const char *at, const char *from, const char *word)
{
    const size_t n = strlen(word);

    return (at == from || isspace((unsigned char)at[-1])) && strncmp(at, word, n) == 0 &&
           (at[n] == 0 || isspace((unsigned char)at[n]));
}

/* grid E, E, E  block E  smem E: each list of expressions ends at the next of the three words. */
static bool read_launch(Reader *r)
{
    static const char *const words[] = {"grid", "block", "smem"};

    while (reader_spaces(r), *r->at) {
        size_t w = 0, n = 0;
        const char *from, *end;
        Reader list = *r;

        while (w < LEN(words) && !word_at(r->at, r->at, words[w]))
            w++;
        if (w == LEN(words))
            return reader_fail(r, "grid, block or smem");
        from = r->at + strlen(words[w]);
        for (end = from; *end; end++)
            if (word_at(end, from, words[0]) || word_at(end, from, words[1]) || word_at(end, from, words[2]))
                break;
        list.at = arena_strndup(r->keep, from, (size_t)(end - from));
        do {
            NamedText t = {words[w], reader_text(&list, ","), r->loc};

            if (!*t.text || n == 3 || (w && n))
                return reader_fail(r, w ? "one expression" : "one to three expressions");
            if (w == 0)
                r->c->grid[n] = t;
            else if (w == 1)
                r->c->block = t;
            else
                r->c->smem = t;
            n++;
        } while (reader_accept(&list, ","));
        for (; w == 0 && n < 3; n++) /* y and z default to one block */
            r->c->grid[n] = (NamedText){words[w], "1", r->loc};
        r->at = end;
    }
    return true;
}

/* A whole number from 1 to `most`, alone on the rest of the line. */
static bool read_number(Reader *r, uint32_t most, const char *what, uint32_t *out)
{
    unsigned long n;
    char *end;

    reader_spaces(r);
    n = strtoul(r->at, &end, 10);
    if (!isdigit((unsigned char)*r->at) || *end || n == 0 || n > most)
        return reader_fail(r, what);
    *out = (uint32_t)n;
    return true;
}

static bool read_yes(Reader *r, bool *out)
{
    *out = reader_accept(r, "yes");
    return *out || reader_accept(r, "no") || reader_fail(r, "yes or no");
}

/* --- lines -------------------------------------------------------------------------------------- */

static void begin_contract(Reader *r)
{
    r->c = arena_new(r->keep, Contract);
    *(Contract **)arena_push(r->keep, r->all) = r->c;
    r->c->loc = r->loc;
    r->c->family = r->kernel;
    r->c->device = strncmp(r->file, "cpu/", 4) == 0 ? KD_CPU : KD_CUDA;
    r->c->template_name = r->c->device == KD_CUDA ? r->file : NULL;
}

static bool read_kernel(Reader *r)
{
    r->kernel = reader_name(r);
    r->first = r->all.n;
    r->begun = false;
    begin_contract(r);
    return r->kernel || reader_fail(r, "name of the kernel");
}

/* NAME | CONSTANT=number ...: the first variant takes the contract that the kernel line began. */
static bool read_variant(Reader *r)
{
    const char *name = reader_name(r);

    if (!name)
        return reader_fail(r, "name of the variant");
    if (r->begun)
        return diag_error(r->d, r->loc, "contract: variant lines stand right after the kernel line");
    for (size_t i = r->first; i < r->all.n; i++)
        if (r->all.at[i]->variant && strcmp(r->all.at[i]->variant, name) == 0)
            return diag_error(r->d, r->loc, "contract: variant %s is given twice", name);
    if (r->all.at[r->first]->variant)
        begin_contract(r);
    r->c->loc = r->loc;
    r->c->variant = name;
    if (strcmp(name, "plain") != 0)
        r->c->family = arena_printf(r->keep, "%s_%s", r->kernel, name);
    if (reader_accept(r, "|"))
        for (reader_spaces(r); *r->at; reader_spaces(r)) {
            Const *k = arena_push(r->keep, r->c->fixed);
            char *end;

            k->name = reader_name(r);
            if (!k->name || *r->at != '=' || !isdigit((unsigned char)r->at[1]))
                return reader_fail(r, "CONSTANT=number");
            k->i = strtoll(r->at + 1, &end, 10);
            r->at = end;
        }
    return !*r->at || reader_fail(r, "|");
}

static bool read_rank(Reader *r)
{
    return read_number(r, 1000000, "whole number from 1 to 1000000", &r->c->rank);
}

static bool read_device(Reader *r)
{
    r->c->device = KD_MATMUL;
    r->c->template_name = NULL;
    return reader_accept(r, "matmul") || reader_fail(r, "matmul");
}

static bool read_rows(Reader *r)
{
    static const char *const words[] = {[ROWS_ALL] = "all", [ROWS_DECODE] = "decode", [ROWS_PREFILL] = "prefill"};
    const char *s = reader_name(r);

    for (size_t i = 0; s && i < LEN(words); i++)
        if (strcmp(words[i], s) == 0) {
            r->c->rows = (RowsServed)i;
            return true;
        }
    return reader_fail(r, "all, decode or prefill");
}

static bool read_expression(Reader *r, NamedText *t)
{
    t->loc = r->loc;
    t->text = reader_text(r, "");
    return *t->text || reader_fail(r, "expression");
}

/* NAME expression */
static bool read_named(Reader *r, NamedText *t)
{
    t->name = reader_name(r);
    return t->name ? read_expression(r, t) : reader_fail(r, "name");
}

static bool read_needs(Reader *r)
{
    r->c->needs.loc = r->loc;
    do {
        const char *s = reader_name(r);
        int i = 0;

        while (s && i < CAPABILITY_COUNT && strcmp(capability_names[i], s) != 0)
            i++;
        if (!s || i == CAPABILITY_COUNT)
            return reader_fail(r, "capability of compiler/targets.def");
        r->c->needs.capabilities |= 1u << i;
        reader_spaces(r);
    } while (*r->at);
    return true;
}

static bool read_fits(Reader *r)
{
    NamedText *t = arena_push(r->keep, r->c->fits);

    t->name = "fits";
    return read_expression(r, t);
}

/* other if EXPRESSION, or NAME=value NAME=value ... if EXPRESSION, in which the condition may be missing. */
static bool read_prefer(Reader *r)
{
    const char *text = r->at;
    bool conditional = false;
    PreferLine *p;

    if (reader_accept(r, "other ")) {
        NamedText *t = arena_push(r->keep, r->c->prefer_other);

        t->name = "prefer other";
        return reader_accept(r, "if ") ? read_expression(r, t) : reader_fail(r, "if expression");
    }
    p = arena_push(r->keep, r->c->prefer);
    p->loc = r->loc;
    p->text = text;
    while (*r->at && !(conditional = reader_accept(r, "if "))) {
        NamedText *value = arena_push(r->keep, p->values);

        value->loc = r->loc;
        value->name = reader_name(r);
        if (!value->name || !reader_accept(r, "="))
            return reader_fail(r, "NAME=value or if expression");
        value->text = reader_text(r, " \t");
        if (!check_preferred(r, value))
            return false;
        reader_spaces(r);
    }
    if (!p->values.n)
        return reader_fail(r, "NAME=value");
    p->when.name = "prefer";
    return !conditional || read_expression(r, &p->when);
}

static bool read_moves(Reader *r)
{
    r->c->moves.name = "moves";
    return read_expression(r, &r->c->moves);
}

static bool read_flops(Reader *r)
{
    r->c->flops.name = "flops";
    return read_expression(r, &r->c->flops);
}

static bool read_scratch(Reader *r)
{
    return r->c->scratch.n < CONTRACT_MAX_BUFFERS ? read_named(r, arena_push(r->keep, r->c->scratch))
                                                  : reader_fail(r, "at most 8 scratch lines");
}

static bool read_zeroed(Reader *r)
{
    return r->c->zeroed.n < CONTRACT_MAX_BUFFERS ? read_named(r, arena_push(r->keep, r->c->zeroed))
                                                 : reader_fail(r, "at most 8 zeroed lines");
}

static bool read_tiled(Reader *r)
{
    return r->c->tiled.n < CONTRACT_MAX_BUFFERS ? read_named(r, arena_push(r->keep, r->c->tiled))
                                                : reader_fail(r, "at most 8 tiled lines");
}

static bool read_rate(Reader *r)
{
    return read_number(r, 100, "whole number from 1 to 100", &r->c->rate);
}

static bool read_matmul(Reader *r)
{
    return read_yes(r, &r->c->matmul);
}

static bool read_overlap(Reader *r)
{
    r->c->waits = reader_accept(r, "waiting");
    return r->c->waits ? (r->c->overlap = true) : read_yes(r, &r->c->overlap);
}

static bool read_holds(Reader *r)
{
    r->c->holds.name = "holds";
    return read_expression(r, &r->c->holds);
}

/* The line itself is read when the text of an instance is made. */
static bool read_text(Reader *r)
{
    return (r->labelled && r->c->template_name) ||
           diag_error(r->d, r->loc, "contract: a text line belongs to a variant of a template: //@ NAME: text ...");
}

/* Moves past `NAME, NAME:`, which must be variants of the kernel. */
static bool read_labels(Reader *r)
{
    const char *name, *end;
    size_t n;

    r->labelled = false;
    while ((end = reader_label(r->at, &name, &n)) != NULL) {
        bool known = false;

        for (size_t i = r->first; i < r->all.n; i++)
            known |= r->all.at[i]->variant && strlen(r->all.at[i]->variant) == n &&
                     strncmp(r->all.at[i]->variant, name, n) == 0;
        if (!known)
            return diag_error(r->d, r->loc,
                              "contract: there is no variant %.*s; the line is: //@ VARIANT, VARIANT: ...", (int)n,
                              name);
        r->labelled = true;
        r->at = end + 1;
        if (*end == ':')
            return true;
    }
    return !r->labelled || reader_fail(r, "\":\" after the variants");
}

typedef struct Line {
    const char *key, *form;
    bool (*read)(Reader *r);
} Line;

/* Reads a line for each variant to which it belongs. */
static bool read_for_variants(Reader *r, const Line *line, const char *whole)
{
    const char *from = r->at;

    r->begun = true;
    for (size_t i = r->first; i < r->all.n; i++) {
        if (!reader_line_of(whole, r->all.at[i]->variant))
            continue;
        r->c = r->all.at[i];
        r->at = from;
        if (!line->read(r))
            return false;
    }
    return true;
}

static bool is_form_line(bool (*read)(Reader *r))
{
    return read == read_form || read == read_instead || read == read_packed || read == read_companion;
}

static bool read_line(Reader *r)
{
    static const Line lines[] = {
#define LINE(key, form, what) {#key, form, read_##key},
#include "lines.def"
#undef LINE
    };
    const char *whole = r->at, *key;

    r->form = "//@ keyword ...";
    if (!read_labels(r))
        return false;
    key = reader_name(r);
    if (!key)
        return reader_fail(r, "keyword");
    for (size_t i = 0; i < LEN(lines); i++)
        if (strcmp(lines[i].key, key) == 0) {
            const bool of_form = is_form_line(lines[i].read);
            const bool begins = of_form || lines[i].read == read_kernel || lines[i].read == read_variant;

            if (!r->c && !of_form && lines[i].read != read_kernel)
                return diag_error(r->d, r->loc, "contract: the first line must be: //@ kernel NAME");

            if (begins && r->labelled)
                return diag_error(r->d, r->loc, "contract: a %s line belongs to no variant", key);
            r->form = arena_printf(r->keep, "//@ %s %s", key, lines[i].form);
            reader_spaces(r);
            return begins ? lines[i].read(r) : read_for_variants(r, &lines[i], whole);
        }
    return diag_error(r->d, r->loc, "contract: there is no line \"%s\"; docs/contracts.md lists them", key);
}

/* A variant fixes a number once, and no other line gives it. */
static bool check_fixed(Contract *c, Diag *d)
{
    for (size_t i = 0; i < c->fixed.n; i++) {
        const char *name = c->fixed.at[i].name;
        bool twice = reader_const(c, name) != NULL;

        for (size_t k = 0; k < i; k++)
            twice |= strcmp(c->fixed.at[k].name, name) == 0;
        if (twice)
            return diag_error(d, c->loc, "contract: constant %s is given twice", name);
    }
    return true;
}

/* Checks that concern the contract as a whole. */
static bool finish(Contract *c, Diag *d)
{
    if (c->consts.n > CONTRACT_MAX_CONSTS)
        return diag_error(d, c->loc, "contract: %s has %zu constants, at most %d are allowed", c->family, c->consts.n,
                          CONTRACT_MAX_CONSTS);
    if (!check_fixed(c, d))
        return false;
    order_consts(c);
    if (!c->rank)
        return diag_error(d, c->loc, "contract: %s has no rank line", c->family);
    if (!c->matches.n && !c->unmatched)
        return diag_error(d, c->loc, "contract: %s has no match line", c->family);
    if (c->device == KD_CUDA && !(c->grid[0].text && c->block.text))
        return diag_error(d, c->loc, "contract: %s has no launch line with grid and block", c->family);
    return contract_check(c, d);
}

static bool is_forms_file(const char *file)
{
    return strcmp(file, "forms.def") == 0;
}

static const char *tree_path(Arena *keep, const char *file)
{
    return arena_printf(keep, "%s/%s",
                        strncmp(file, "cpu/", 4) == 0 ? "kernels"
                        : is_forms_file(file)         ? "compiler/ir"
                                                      : "templates",
                        file);
}

static bool is_contract_file(const char *file)
{
    const size_t n = strlen(file);

    return (n > 3 && strcmp(file + n - 3, ".cu") == 0) ||
           (strncmp(file, "cpu/", 4) == 0 && strcmp(file + n - 2, ".c") == 0);
}

/* All `//@` lines of one file. Text after a second `//` is a comment. */
static bool read_file(Reader *r, const EmbeddedFile *file)
{
    r->c = NULL;
    r->first = r->all.n;
    r->file = file->name;
    r->loc = (Loc){tree_path(r->keep, file->name), 0};
    for (const char *line = file->text; *line;) {
        const size_t n = strcspn(line, "\n");
        const char *at = line + strspn(line, " \t");

        r->loc.line++;
        if (at < line + n && strncmp(at, "//@", 3) == 0) {
            char *text = arena_strndup(r->keep, at + 3, n - (size_t)(at + 3 - line));
            char *comment = strstr(text, "//");

            if (comment)
                *comment = 0;
            for (char *end = text + strlen(text); end > text && isspace((unsigned char)end[-1]);)
                *--end = 0;
            r->at = text;
            if (!read_line(r))
                return false;
        }
        line += n + (line[n] == '\n');
    }
    return true;
}

/* CUDA contracts first, then CPU contracts, each by rank. cuBLASLt calls (KD_MATMUL) compete with CUDA kernels. */
static int by_rank(const void *a, const void *b)
{
    const Contract *x = *(Contract *const *)a, *y = *(Contract *const *)b;
    const int device = (x->device == KD_CPU) - (y->device == KD_CPU);
    const int rank = (x->rank > y->rank) - (x->rank < y->rank);

    return device ? device : rank ? rank : strcmp(x->family, y->family);
}

static bool sort_by_rank(Contract **at, size_t n, Diag *d)
{
    if (n)
        qsort(at, n, sizeof *at, by_rank);
    for (size_t i = 1; i < n; i++)
        if (at[i]->rank == at[i - 1]->rank && (at[i]->device == KD_CPU) == (at[i - 1]->device == KD_CPU))
            return diag_error(d, at[i]->loc, "contract: %s has rank %u, which %s has too (%s:%d): give each its own",
                              at[i]->family, at[i]->rank, at[i - 1]->family, at[i - 1]->loc.file, at[i - 1]->loc.line);
    return true;
}

bool catalog_read(Arena *keep, const EmbeddedFile *files, size_t n, Catalog *c, Diag *d)
{
    Reader r = {.keep = keep, .d = d};

    *(Form *)arena_push(keep, r.forms) = (Form){.name = "plain"};
    for (size_t i = 0; i < n; i++)
        if (is_forms_file(files[i].name) && !read_file(&r, &files[i]))
            return false;
    for (size_t i = 0; i < n; i++)
        if (is_contract_file(files[i].name) && !read_file(&r, &files[i]))
            return false;
    for (size_t i = 0; i < r.all.n; i++)
        if (!finish(r.all.at[i], d))
            return false;
    if (!sort_by_rank(r.all.at, r.all.n, d))
        return false;
    *c = (Catalog){.at = r.all.at, .n = r.all.n, .forms = r.forms.at, .n_forms = r.forms.n};
    return true;
}
