/* tokenizer.h - tokenizer.json or a SentencePiece model to the tables of runtime/tokenizer/tokenizer.h. */
#ifndef FTXC_TOKENIZER_H
#define FTXC_TOKENIZER_H

#include <stddef.h>

#include "../../runtime/base/arena.h"
#include "../../runtime/base/diag.h"

/* Reads Hugging Face's tokenizer.json (BPE, WordPiece, WordLevel, Unigram; README.md lists the parts) or Mistral's
 * tekken.json. A path that ends in .spm or .model is a file of SentencePiece; if a vocab.json lies beside a .spm, it is
 * Marian's. One that ends in .tiktoken, or a .model of that form, is tiktoken's. A file that begins as GGUF files do
 * has the tokenizer in its keys. d names what is not supported. */
bool tokenizer_compile(const char *path, Arena *keep, void **tables, size_t *bytes, Diag *d);

/* The same with the file's bytes at p; path says which of the two it is. */
bool tokenizer_compile_bytes(const char *path, const void *p, size_t n, Arena *keep, void **tables, size_t *bytes,
                             Diag *d);

#endif
