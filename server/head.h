/* head.h - the head of an HTTP/1.1 request and the chunks of its body: pure functions of bytes.
 *
 * What two programs could read in two ways is refused: bare LF, folded lines, blanks before a colon, two lengths, a
 * length beside a transfer coding, chunk extensions, trailers. */
#ifndef FTX_SERVER_HEAD_H
#define FTX_SERVER_HEAD_H

#include <stdbool.h>
#include <stddef.h>

enum { HEAD_BYTES = 16 << 10, HEAD_LINES = 100 };

typedef struct Slice {
    const char *at; /* not terminated */
    size_t n;
} Slice;

/* Slices point into the parsed bytes. A field that is missing has n = 0. */
typedef struct Head {
    size_t bytes;       /* of the head with its empty line */
    Slice method, path; /* path: without what follows '?' */
    int minor;          /* HTTP/1.minor */
    size_t length;      /* Content-Length; 0: none */
    bool has_length, chunked, keep_alive, expects;
    Slice authorization, content_type, request_id, origin;
} Head;

/* Parses the head at the start of p. 0: it is whole; 1: more bytes are needed; else the status of a refusal, and why. */
int head_parse(const char *p, size_t n, Head *head, const char **why);

bool slice_is(Slice s, const char *text);

/* A body in chunks. Begin with zero. */
typedef struct Chunks {
    enum { CHUNK_SIZE, CHUNK_DATA, CHUNK_END, CHUNK_LAST, CHUNK_DONE } state;
    size_t left;   /* of a chunk's data */
    size_t digits; /* of a size that is being read, and what has been read of its line end */
    bool cr;
} Chunks;

/* Reads at most n bytes of p. Data is moved to the start of p; *data: how many. *used: how many bytes were read. False:
 * they are no chunks, or their sizes together exceed `most`. */
bool chunks_read(Chunks *c, char *p, size_t n, size_t most, size_t *data, size_t *used);

#endif
