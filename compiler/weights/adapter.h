/* adapter.h - the settings of one LoRA adapter. */
#ifndef FTXC_ADAPTER_H
#define FTXC_ADAPTER_H

#include <jansson.h>

#include "tensors.h"

typedef struct Adapter {
    const char *name;        /* of its folder */
    const char *config_path; /* FOLDER/adapter_config.json */
    const char *path;        /* FOLDER/adapter_model.safetensors */
    json_t *config;
    bool dora; /* every changed matrix has a magnitude */
} Adapter;

/* Reads adapter_config.json. Refuses fields with which the merged model would not be the trained one. */
bool adapter_read(const char *folder, Arena *keep, Adapter *out, Diag *d);
void adapter_drop(Adapter *a);

/* The rank of a module ("model.layers.0.self_attn.q_proj"), and lora_alpha / rank or lora_alpha / sqrt(rank). */
bool adapter_scale(const Adapter *a, const char *module, int64_t *rank, double *scale, Diag *d);

#endif
