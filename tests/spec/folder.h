/* folder.h - a temporary checkout: a folder with the files of a case. */
#ifndef TESTS_FOLDER_H
#define TESTS_FOLDER_H

#include "reading.h"

#include <stdio.h>
#include <unistd.h>

#include "runtime/base/file.h"

/* A temporary folder with the files of a case. */
typedef struct Folder {
    char path[64];
} Folder;

static inline void put(const Folder *f, const char *name, const char *text)
{
    char path[160];

    snprintf(path, sizeof path, "%s/%s", f->path, name);
    assert_int_equal(file_write_whole(path, text, strlen(text), NULL), FTX_OK);
}

static inline Folder make_folder(const char *config, const char *generation)
{
    Folder f = {"/tmp/ftx-spec-XXXXXX"};

    assert_non_null(mkdtemp(f.path));
    put(&f, "config.json", config);
    put(&f, "model.safetensors", "x");
    if (generation)
        put(&f, "generation_config.json", generation);
    return f;
}

static inline void remove_folder(const Folder *f)
{
    static const char *const names[] = {"config.json",
                                        "generation_config.json",
                                        "model.safetensors",
                                        "model.safetensors.index.json",
                                        "pytorch_model.bin",
                                        "modules.json",
                                        "1_Pooling/config.json",
                                        "source.spm",
                                        "tokenizer.json",
                                        "tokenizer.model",
                                        "tekken.json"};
    char path[160];

    for (size_t i = 0; i < LEN(names); i++) {
        snprintf(path, sizeof path, "%s/%s", f->path, names[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/1_Pooling", f->path);
    rmdir(path);
    assert_int_equal(rmdir(f->path), 0);
}

static inline void remove_file(const Folder *f, const char *name)
{
    char path[160];

    snprintf(path, sizeof path, "%s/%s", f->path, name);
    assert_int_equal(unlink(path), 0);
}

/* config.json of a small LLaMA; `more` replaces or adds fields: later ones of a name win here. */
#define LLAMA \
    "\"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 64, \"hidden_size\": 32, " \
    "\"num_hidden_layers\": 1, \"intermediate_size\": 48, \"max_position_embeddings\": 128"
#define HEADS ", \"num_attention_heads\": 2"

#define BERT \
    "{\"architectures\": [\"BertFor%s\"], \"vocab_size\": 64, \"hidden_size\": 32, \"num_hidden_layers\": 1, " \
    "\"intermediate_size\": 48, \"max_position_embeddings\": 64, \"num_attention_heads\": 2%s}"

#endif
