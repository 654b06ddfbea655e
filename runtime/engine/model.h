/* model.h - the inside of a model: an artifact, its device and its tokenizer. */
#ifndef FTX_MODEL_H
#define FTX_MODEL_H

#include <stdatomic.h>

#include "../chat/chat.h"
#include "../device/device.h"
#include "../base/memory.h"
#include "../tokenizer/tokenizer.h"

struct FtxModel {
    Memory memory;
    Artifact artifact;
    const ArtifactPlan *plan; /* of the chosen device */
    const DeviceApi *api;
    Device *device;
    int ordinal;          /* FtxOptions */
    Tokenizer *tokenizer; /* NULL: the artifact has none */
    ChatTable chat;       /* .head NULL: the artifact has no chat templates */
    void (*log)(void *user, int level, const char *text);
    void *log_user;
    char device_reason[600];
    atomic_uint pages; /* KV pages of the engine that was opened last; before the first, the most */
    atomic_int users;  /* the caller and every engine; the last to leave closes the model */
};

void model_log(const FtxModel *m, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Opens a model on one device, for ftx_model_open and for tests with a device of their own. Takes the artifact over,
 * also when it fails. plan: its place among those of the artifact; reason: FtxModelInfo.device_reason. */
FtxStatus model_on(const DeviceApi *api, Artifact *a, uint32_t plan, const char *reason, const FtxOptions *o,
                   FtxModel **out, FtxError *err);

void model_leave(FtxModel *m);

/* The caller's options, or all defaults for NULL, as this library lays them out. */
FtxStatus options_read(const FtxOptions *options, FtxOptions *o, FtxError *err);

#endif
