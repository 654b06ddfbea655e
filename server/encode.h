/* encode.h - /v1/embeddings: what encoders (encode.c) and decoders (states.c) share. */
#ifndef FTX_SERVER_ENCODE_H
#define FTX_SERVER_ENCODE_H

#include "server.h"
#include "text.h"

enum { MOST_TEXTS = 2048 };

/* encoding_format and dimensions; width: of the model's vectors. */
bool encode_format(const json_t *root, int width, bool *base64, Fault *f);
/* [count][width] as the list `data`. */
void encode_print(Text *t, const float *vectors, size_t count, size_t width, bool base64);

/* states.c: the texts of `input` to vectors of a decoder's last layer. False: refused. */
bool states_embed(Exchange *x, Served *m, const json_t *root, Fault *f);

#endif
