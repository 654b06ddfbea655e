/* fuzz_adapter.c - any bytes as an adapter (adapter_config.json, a byte of value 0, adapter_model.safetensors), or choices:
 * an adapter that is right but for what they change. It is merged into a small model. If it is accepted all weights are
 * read; what the choices wrote without a change must be accepted. */
#include "choices.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/weights/tensors.h"
#include "runtime/base/hash.h"
#include "tests/temp.h"

static volatile uint64_t sum; /* keeps the reads */

static void write_file(const char *name, const void *p, size_t bytes)
{
    FILE *f = fopen(temp_path(name), "wb");

    if (!f || fwrite(p, 1, bytes, f) != bytes || fclose(f))
        fuzz_bug("cannot write %s", name);
}

/* --- the model ------------------------------------------------------------------------------------ */

enum { ROWS = 3, COLUMNS = 5, BASE_BYTES = 4 * (3 * ROWS * COLUMNS + ROWS) };

/* linear.weight [3,5] and its bias [3]; conv.weight [3,5], stored inputs first; embed.weight [3,5], of the head, too. */
static void write_base(void)
{
    static const char header[] = "{\"conv.weight\":{\"dtype\":\"F32\",\"shape\":[3,5],\"data_offsets\":[0,60]},"
                                 "\"embed.weight\":{\"dtype\":\"F32\",\"shape\":[3,5],\"data_offsets\":[60,120]},"
                                 "\"linear.weight\":{\"dtype\":\"F32\",\"shape\":[3,5],\"data_offsets\":[120,180]},"
                                 "\"linear.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[180,192]}}";
    static char file[8 + sizeof header - 1 + BASE_BYTES];
    const uint64_t n = sizeof header - 1;

    memcpy(file, &n, sizeof n);
    memcpy(file + 8, header, sizeof header - 1);
    memset(file + 8 + n, 0x3d, BASE_BYTES);
    write_file("base.safetensors", file, sizeof file);
}

static Id add(Graph *g, Op op, Id a, Id b, int64_t rows, int64_t columns)
{
    const Id args[IR_MAX_ARGS] = {a, b};

    return ir_value_add(g, op, args, ir_shape(columns ? 2 : 1, ir_const(rows), ir_const(columns), ir_const(0)), DT_FP32,
                        (Loc){"model.lua", 1});
}

static Id weight(Graph *g, const char *name, int64_t columns)
{
    const Id id = add(g, OP_WEIGHT, 0, 0, ROWS, columns);

    ir_attr_word(g, id, "name", name);
    return id;
}

static Graph *make_graph(void)
{
    Graph *g = ir_graph_new("fuzz");
    const Id ids = add(g, OP_IDS, 0, 0, 1, 0), embed = weight(g, "embed.weight", COLUMNS);
    const Id x = add(g, OP_EMBED, ids, embed, 1, COLUMNS);

    add(g, OP_LINEAR, x, embed, 1, ROWS);
    add(g, OP_LINEAR, x, weight(g, "linear.weight", COLUMNS), 1, ROWS);
    add(g, OP_TRANSPOSE, weight(g, "conv.weight", COLUMNS), 0, COLUMNS, ROWS);
    weight(g, "linear.bias", 0);
    return g;
}

static bool attempt(const void *config, size_t config_bytes, const void *tensors, size_t tensor_bytes)
{
    static const char *const prefixes[] = {"model."}, *const ignored[] = {"head.weight"};
    Arena *keep = arena_open();
    Spec spec = {.name = "fuzz", .graph = make_graph()};
    Checkpoint *c;
    Diag d = {0};
    bool ok;

    spec.prefixes = (NameList){(const char **)(uintptr_t)prefixes, 1, 1};
    spec.ignored = (NameList){(const char **)(uintptr_t)ignored, 1, 1};
    write_file("adapter_config.json", config, config_bytes);
    write_file("adapter_model.safetensors", tensors, tensor_bytes);
    write_base();
    if (!checkpoint_open(temp_path("base.safetensors"), keep, &c, &d))
        fuzz_bug("%s", d.text);
    ok = checkpoint_adapt(c, &spec, temp_folder, keep, &d);
    for (Id id = 1; ok && id < spec.graph->values.n; id++)
        if (ir_value(spec.graph, id)->op == OP_WEIGHT || ir_value(spec.graph, id)->op == OP_TRANSPOSE) {
            Diag nan = {0};
            float *f;
            size_t n;

            weights_value(c, &spec, id, keep, &f, &n, &nan);
            sum += hash64(f, n * sizeof *f);
        }
    if (!ok && !*d.text)
        fuzz_bug("refused without a reason");
    checkpoint_close(c);
    ir_graph_close(spec.graph);
    arena_close(keep);
    return ok;
}

/* --- an adapter from choices ---------------------------------------------------------------------- */

enum { TEXT_BYTES = 4000, DATA_BYTES = 4000 };

typedef struct Made {
    char config[TEXT_BYTES], header[TEXT_BYTES];
    size_t n, data; /* bytes of the header and of the tensors */
    bool changed;
} Made;

__attribute__((format(printf, 2, 3))) static void put(Made *m, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    m->n += (size_t)vsnprintf(m->header + m->n, TEXT_BYTES - m->n, format, ap);
    va_end(ap);
}

/* A tensor; a choice may leave it out, or change a size, its type or its name. */
static void put_tensor(Made *m, Choices *c, const char *name, uint64_t rows, uint64_t columns)
{
    static const char *const types[] = {"F32", "BF16", "F16", "I32"}, *const ends[] = {"", "x", ".weight", "_A",
                                                                                       ".lora_A"};
    const uint32_t change = choose(c, 12), type = change == 1 ? choose(c, 4) : 0, end = change == 2 ? choose(c, 5) : 0;
    const bool vector = !columns;

    if (change == 3)
        rows = 1 + choose(c, 9);
    if (change == 4)
        columns = choose(c, 9);
    m->changed |= change >= 1 && change <= 5;
    if (change == 5)
        return;

    const size_t bytes = rows * (columns || !vector ? columns : 1) * (type == 1 || type == 2 ? 2 : 4);

    put(m, "%s\"base_model.model.%s%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64, m->n > 1 ? "," : "", name, ends[end],
        types[type], rows);
    if (columns || !vector)
        put(m, ",%" PRIu64, columns);
    put(m, "],\"data_offsets\":[%zu,%zu]}", m->data, m->data + bytes);
    m->data += bytes;
}

/* LoRA or DoRA of some of the weights, with rank and settings. */
static void from_choices(Choices *c)
{
    static const char *const extras[] = {
        "",
        ",\"use_rslora\":true",
        ",\"alpha_pattern\":{\"linear\":7}",
        ",\"rank_pattern\":{\"conv|linear\":2},\"r\":9",
        ",\"lora_alpha\":-1e9",
        ",\"bias\":\"all\"",
        ",\"layer_replication\":[[0,1]]",
        ",\"alpha_pattern\":{\"(\":1}",
        ",\"init_lora_weights\":\"pissa\"",
        ",\"new\":{\"a\":[]}",
        ",\"r\":-3",
        ",\"rank_pattern\":{\".*\":3}",
    };
    static Made m;
    static char file[8 + TEXT_BYTES + DATA_BYTES];
    const uint32_t parts = choose(c, 32), extra = choose(c, LEN(extras)), value = choose(c, 256);
    const bool dora = choose(c, 2);

    m = (Made){.changed = extra > 5};
    snprintf(m.config, sizeof m.config, "{\"peft_type\":\"LORA\"%s,\"lora_dropout\":0.5,\"use_dora\":%s%s}",
             strstr(extras[extra], "\"r\"") ? "" : ",\"r\":2", dora ? "true" : "false", extras[extra]);
    put(&m, "{");
    if (!(parts & 1)) {
        put_tensor(&m, c, "model.linear.lora_A.weight", 2, COLUMNS);
        put_tensor(&m, c, "model.linear.lora_B.weight", ROWS, 2);
        if (dora)
            put_tensor(&m, c, "model.linear.lora_magnitude_vector", ROWS, 0);
    }
    if (parts & 2) {
        put_tensor(&m, c, "conv.lora_A.weight", 2, ROWS);
        put_tensor(&m, c, "conv.lora_B.weight", COLUMNS, 2);
        if (dora)
            put_tensor(&m, c, "conv.lora_magnitude_vector", COLUMNS, 0);
    }
    if (parts & 4)
        put_tensor(&m, c, "linear.base_layer.bias", ROWS, 0);
    if (parts & 8) {
        put_tensor(&m, c, "embed.modules_to_save.weight", ROWS, COLUMNS);
        put_tensor(&m, c, "head.weight", ROWS, COLUMNS);
    }
    if (parts & 16)
        put_tensor(&m, c, "linear.lora_B.bias", ROWS, 0);
    put(&m, "}");
    if (m.n >= TEXT_BYTES || m.data > DATA_BYTES)
        return;

    const uint64_t n = m.n;

    memcpy(file, &n, sizeof n);
    memcpy(file + 8, m.header, m.n);
    memset(file + 8 + m.n, (int)value, m.data);
    m.changed |= m.n == 2 || value == 0x7f || value == 0xff; /* no tensors; numbers that are not finite */
    m.changed |= extra == 3 && (parts & 1) && !(parts & 2);  /* "r" is then read for linear.lora_B.bias alone */
    if (!attempt(m.config, strlen(m.config), file, 8 + m.n + m.data) && !m.changed)
        fuzz_bug("refused: %s %s", m.config, m.header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    Choices c;

    if (choices_begin(&c, data, size))
        from_choices(&c);
    else if (zero)
        attempt(data, (size_t)(zero - data), zero + 1, size - (size_t)(zero - data) - 1);
    return 0;
}

/* --- seeds ---------------------------------------------------------------------------------------- */

void fuzz_seeds(void)
{
    char name[60];

    for (uint8_t parts = 0; parts < 32; parts++)
        for (uint8_t extra = 0; extra < 12; extra++) {
            const uint8_t seed[] = {CHOICES, parts, extra, 0x3e, extra & 1};

            snprintf(name, sizeof name, "choices-%u-%u", parts, extra);
            fuzz_seed(name, seed, sizeof seed);
        }
    for (uint8_t tensor = 0; tensor < 9; tensor++) /* each tensor changed in each way */
        for (uint8_t change = 1; change < 6; change++)
            for (uint8_t value = 0; value < 6; value++) {
                uint8_t seed[16] = {CHOICES, 14 + 16 * (value & 1), 0, 0x3e, 1};

                seed[5 + tensor] = change;
                seed[6 + tensor] = value;
                snprintf(name, sizeof name, "changed-%u-%u-%u", tensor, change, value);
                fuzz_seed(name, seed, 7 + tensor);
            }
    FUZZ_SEED("numbers-infinite", "\x01\x02\0\x7f");
    FUZZ_SEED("numbers-zero", "\x01\x02\0\0\x01");
    FUZZ_SEED("empty", "\0");
    FUZZ_SEED("no-tensors", "{\"peft_type\": \"LORA\"}\0\x02\0\0\0\0\0\0\0{}");
    FUZZ_SEED("list", "[]\0");
    FUZZ_SEED("deep", "{\"peft_type\": [[[[[[[[[[[[[[[[[[[[[[\0");
    FUZZ_SEED("slow-pattern", "{\"peft_type\": \"LORA\", \"rank_pattern\": {\"((.|.)+)+[!?]\": 1}}\0"
                              "\x5c\0\0\0\0\0\0\0{\"base_model.model.linear.lora_B.bias\":"
                              "{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}   "
                              "\0\0\0\0\0\0\0\0\0\0\0\0");
    FUZZ_SEED("name-empty", "{\"peft_type\": \"LORA\"}\0\x48\0\0\0\0\0\0\0{\"base_model.model.\":"
                            "{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}  ");
}
