/* fields.h - the fields of a model's table, by path: "limits.context". t: the table's stack index. */
#ifndef FTXC_SPEC_FIELDS_H
#define FTXC_SPEC_FIELDS_H

#include "reader.h"

/* Writes the values of -D into the table; raises an error for unknown fields. */
void fields_override(lua_State *L, int t);
/* Raises an error for a -D that a model of the graph's kind does not read, and for a field that only encoders have. */
void fields_fit(lua_State *L, int t);
/* Raises an error for unknown keys. group: "limits."; "" for the model itself. */
void fields_check(lua_State *L, int t, const char *group);
/* The names in a group ("decode."; "": of the model): "context, tokens". */
const char *fields_names(Arena *a, const char *group);

/* Records that a family has read the -D of this path. */
void fields_took(lua_State *L, const char *path);

bool field_exists(const char *path);
bool field_range(const char *path, double *low, double *high); /* of a number; true: it is whole */
void field_push(lua_State *L, int t, const char *path);        /* nil where it is missing */
double field_number(lua_State *L, int t, const char *path);    /* checked, or its default */
int64_t field_count(lua_State *L, int t, const char *path);
DType field_type(lua_State *L, int t, const char *path);
bool field_flag(lua_State *L, int t, const char *path); /* missing: false */
FtxEarly field_early(lua_State *L, int t, const char *path);
const char *field_text(lua_State *L, int t, const char *path); /* NULL: missing */

/* Raises "PATH must be EXPECTED, got ...", at the -D that gave the value or else at the line of ftx.model.
 * i: where the value is on the stack. */
int field_refuse(lua_State *L, const char *path, const char *expected, int i);
const char *field_expected(lua_State *L, const char *path);    /* "a whole number from 1 to 4096" */
const char *field_shown(lua_State *L, int i);                  /* a value, for messages */
const char *field_override(const Reader *r, const char *path); /* the last -D of it, or NULL */

#endif
