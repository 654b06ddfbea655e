/* scope.h - the expressions of a contract with the values of their names: what fit.c uses of scope.c. */
#ifndef FTXC_CATALOG_SCOPE_H
#define FTXC_CATALOG_SCOPE_H

#include "contract.h"

/* What names mean while an expression of a contract is parsed. A dimension that is T or S is called live. */
typedef struct Scope {
    const Contract *c;
    const ProgramFacts *f; /* NULL: only the names are checked (contract_check) */
    const Binding *b;
    Const consts[CONTRACT_MAX_CONSTS]; /* by index of c->consts */
    bool have[CONTRACT_MAX_CONSTS];
    const size_t *places;  /* of contract_fit_at; NULL: `use` and prefer lines decide */
    const TunedConst *use; /* of contract_fit_with */
    size_t n_use;
    const PreferLine *decided[CONTRACT_MAX_CONSTS]; /* by which constants have their values */
    bool unavoided; /* constants with which a `prefer other` line holds are left out, too */
    bool sizing;    /* the size of a region of shared memory: no names of regions */
    bool live;      /* T, S, SMS and live dimensions are variables of the launch */
    bool at_most;   /* T, S and live dimensions have their largest values */
} Scope;

/* The index of an argument, of a constant with that name of n characters; -1: there is none. */
int scope_arg(const Contract *c, const char *name, size_t n);
int scope_const(const Contract *c, const char *name, size_t n);

/* op.attr: *value is the outermost covered value of that op; NULL: the match has none. */
bool scope_attribute(const Scope *s, const char *name, AttrRule *rule, const Value **value);

/* shared.c. NAME_AT, BESIDE_NAME, SHARED: false: it is none of them, or a size cannot be evaluated. */
bool scope_shared(const Scope *s, const char *name, int64_t *value);
/* in->regions; all constants are known. */
bool scope_regions(const Scope *s, Arena *keep, Instance *in, FtxError *err);

bool scope_parse(Scope *s, const char *text, Expr *e, FtxError *err);
bool scope_evaluate(Scope *s, const char *text, int64_t *value, FtxError *err);

/* "C = 100, VEC = 8": the names of an expression with their values. */
const char *scope_values(Scope *s, const char *text, Arena *a);

#endif
