/* settings.h - the fields of ftx.model beside its graph. t: the table's stack index. */
#ifndef FTXC_SPEC_SETTINGS_H
#define FTXC_SPEC_SETTINGS_H

#include "reader.h"

/* limits, kv and the width of a beam search, into graph->limits. After the graph's sizes are known. */
void settings_limits(lua_State *L, int t);

/* All the rest, into the Spec. After settings_limits. */
void settings_read(lua_State *L, int t);

/* The rows of the smallest table of learned positions of the encoder, or of the decoder; 0: there is none. */
uint32_t settings_positions(const Graph *g, bool encoder);

#endif
