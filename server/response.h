/* response.h - /v1/responses, the minimum: a request becomes one of a chat, and the answer is printed in its own form. */
#ifndef FTX_SERVER_RESPONSE_H
#define FTX_SERVER_RESPONSE_H

#include "completion.h"

/* The body of a chat with the same meaning, for json_decref; NULL: the reason is in f. */
json_t *response_to_chat(const json_t *root, Fault *f);

/* The whole answer. done: the texts are there. */
void response_print(Text *t, const Completion *c, bool done);

/* Events of a stream: its start; a piece (of a call's name: when the call is there); the end of the item that is open, before
 * another begins; the end. */
void response_start(Text *t, Completion *c);
void response_close(Text *t, Completion *c);
void response_piece(Text *t, Completion *c, Piece piece, const char *text, size_t bytes);
void response_end(Text *t, Completion *c);

#endif
