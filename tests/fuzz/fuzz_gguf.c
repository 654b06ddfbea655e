/* fuzz_gguf.c - any bytes as a GGUF file, or choices: a whole small model in which some numbers are changed. What is read
 * becomes a graph, weights, a tokenizer and chat templates, or is refused with a reason. The model may be in two files. */
#include "choices.h"
#include "tables.h"

#include "compiler/chat/chat.h"
#include "compiler/gguf/gguf.h"
#include "compiler/weights/tensors.h"
#include "runtime/base/hash.h"
#include "tests/gguf/bytes.h"
#include "tests/temp.h"

static volatile uint64_t sum; /* keeps the reads */

/* Every weight of the graph as numbers. */
static void use_weights(const Checkpoint *c, const Spec *spec, Arena *keep)
{
    for (Id id = 1; id < spec->graph->values.n; id++) {
        float *f;
        size_t n;
        Diag d = {0};

        if (ir_value(spec->graph, id)->op != OP_WEIGHT)
            continue;
        if (weights_value(c, spec, id, keep, &f, &n, &d))
            sum += hash64(f, n * sizeof *f);
        else if (!*d.text)
            fuzz_bug("a weight is refused without a reason");
    }
}

static void use_model(const char *path, Arena *keep)
{
    Spec spec;
    Checkpoint *c = NULL;
    Diag d = {0};

    if (spec_read(path, NULL, 0, keep, &spec, &d)) {
        if (!ir_verify(spec.graph, &d))
            fuzz_bug("the graph of a GGUF file: %s", d.text);
        if (checkpoint_open(spec.weights, keep, &c, &d) && checkpoint_rename(c, &spec, keep, &d) &&
            checkpoint_check(c, &spec, &d)) {
            checkpoint_mark(c, &spec);
            use_weights(c, &spec, keep);
        }
        checkpoint_close(c);
        ir_graph_close(spec.graph);
    }
    if (!*d.text && !c)
        fuzz_bug("refused without a reason");
}

static void attempt(const char *path, const uint8_t *data, size_t size)
{
    const char *note;
    Arena *keep = arena_open();
    void *section;
    size_t bytes;
    Diag d = {0};

    if (!gguf_begins(data, size)) {
        arena_close(keep);
        return;
    }
    use_model(path, keep);
    if (!chat_read(path, keep, &section, &bytes, &note, &d) && !*d.text)
        fuzz_bug("templates are refused without a reason");
    arena_close(keep);
    tables_attempt("x.gguf", data, size);
}

/* --- a model from choices -------------------------------------------------------------------------- */

enum { HIDDEN = 32, VOCAB = 12, HEAD = 16 };

static void put_tokens(GgufBytes *b, bool bytes_model)
{
    static const char *const tokens[VOCAB] = {"<s>",          "</s>",  "a", "b", "ab", "<0x41>",
                                              "\xe2\x96\x81", "<|u|>", "A", "B", "c",  "bc"};

    gguf_key_text(b, "tokenizer.ggml.model", bytes_model ? "gpt2" : "llama");
    gguf_key_text(b, "tokenizer.ggml.pre", "llama-bpe");
    gguf_key_array(b, "tokenizer.ggml.tokens", 8, VOCAB);
    for (int i = 0; i < VOCAB; i++)
        gguf_put_text(b, tokens[i]);
    gguf_key_array(b, "tokenizer.ggml.token_type", 5, VOCAB);
    for (int i = 0; i < VOCAB; i++)
        gguf_put_u32(b, i < 2 ? 3 : i == 5 ? 6 : i == 7 ? 4 : 1);
    gguf_key_array(b, "tokenizer.ggml.scores", 6, VOCAB);
    for (int i = 0; i < VOCAB; i++)
        gguf_put_u32(b, 0xc0000000u + (uint32_t)i); /* -2 ... */
    gguf_key_array(b, "tokenizer.ggml.merges", 8, 2);
    gguf_put_text(b, "a b");
    gguf_put_text(b, "b c");
    gguf_key_u32(b, "tokenizer.ggml.bos_token_id", 0);
    gguf_key_u32(b, "tokenizer.ggml.eos_token_id", 1);
    gguf_key_text(b, "tokenizer.chat_template", "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}");
}

static void put_keys(GgufBytes *b)
{
    static const struct {
        const char *name;
        uint32_t value;
    } sizes[] = {{"llama.block_count", 1},
                 {"llama.context_length", 64},
                 {"llama.embedding_length", HIDDEN},
                 {"llama.feed_forward_length", HIDDEN},
                 {"llama.attention.head_count", 2},
                 {"llama.attention.head_count_kv", 1},
                 {"llama.rope.dimension_count", HEAD}};
    const float eps = 1e-5f;

    gguf_key_text(b, "general.architecture", "llama");
    for (size_t i = 0; i < LEN(sizes); i++)
        gguf_key_u32(b, sizes[i].name, sizes[i].value);
    gguf_name(b, "llama.attention.layer_norm_rms_epsilon", 6);
    gguf_put(b, &eps, sizeof eps);
}

enum { WHOLE = -1, TENSORS = 13 };

/* type: of the matrices, whose rows are one block of 32 elements. part: WHOLE; 0: of two files the first, which has the keys
 * alone; 1: the second. scalar: the tensor that has no dimensions; WHOLE: none has. */
static void make_model(GgufBytes *b, uint32_t type, size_t block, bool bytes_model, int part, int scalar)
{
    static const struct {
        const char *name;
        uint64_t rows; /* 0: a vector */
    } tensors[] = {{"token_embd.weight", VOCAB},      {"output_norm.weight", 0},
                   {"output.weight", VOCAB},          {"blk.0.attn_norm.weight", 0},
                   {"blk.0.attn_q.weight", 2 * HEAD}, {"blk.0.attn_k.weight", HEAD},
                   {"blk.0.attn_v.weight", HEAD},     {"blk.0.attn_output.weight", HIDDEN},
                   {"blk.0.ffn_norm.weight", 0},      {"blk.0.ffn_gate.weight", HIDDEN},
                   {"blk.0.ffn_up.weight", HIDDEN},   {"blk.0.ffn_down.weight", HIDDEN},
                   {"rope_freqs.weight", 0}};
    uint64_t at = 0;

    _Static_assert(LEN(tensors) == TENSORS, "the number of tensors");
    gguf_begin(b);
    if (part != WHOLE) {
        gguf_key_u32(b, "split.no", (uint32_t)part);
        gguf_key_u32(b, "split.count", 2);
        gguf_key_u32(b, "split.tensors.count", TENSORS);
    }
    if (part != 1) {
        put_keys(b);
        put_tokens(b, bytes_model);
    }
    for (int i = 0; i < TENSORS && part; i++) {
        const uint64_t rows = tensors[i].rows, columns = i + 1 == TENSORS ? HEAD / 2 : HIDDEN;

        gguf_put_tensor(b, tensors[i].name,
                        i == scalar ? 0
                        : rows      ? 2
                                    : 1,
                        (uint64_t[]){columns, rows}, rows && i != scalar ? type : 0, at);
        at += ((rows ? rows * block : columns * 4) + 31) / 32 * 32;
    }
    if (!part) {
        gguf_put_data(b, 32, 0);
        return;
    }
    gguf_put_data(b, 32, at);
    memset(b->at + b->n - HIDDEN, 0x3f, HIDDEN); /* frequencies are divided by these */
}

static const struct {
    uint32_t type;
    size_t block;
} blocks[] = {{0, 128}, {1, 64}, {8, 34}, {2, 18}, {3, 20}};

/* A number of 1, 4 or 8 bytes somewhere in the header, up to four times. */
static void change(GgufBytes *b, Choices *c, uint32_t lies)
{
    const size_t head = b->n < 3000 ? b->n : 3000;

    for (uint32_t i = 0; i < lies; i++) {
        const uint32_t at = choose(c, (uint32_t)head - 8), bytes = (uint32_t[]){1, 4, 8}[choose(c, 3)];
        uint64_t value = 0;

        memcpy(&value, b->at + at, bytes);
        value = choose_value(c, value);
        memcpy(b->at + at, &value, bytes);
    }
}

static void write_part(const char *path, const GgufBytes *b)
{
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(b->at, 1, b->n, f) != b->n || fclose(f))
        fuzz_bug("no room for a file of %zu bytes", b->n);
}

/* The model in two files, of which one is changed. */
static void in_two_files(Choices *c, uint32_t which, uint32_t lies, bool bytes_model)
{
    const char *path[2] = {temp_path("fuzz-00001-of-00002.gguf"), temp_path("fuzz-00002-of-00002.gguf")};
    GgufBytes b[2] = {0};

    for (int part = 0; part < 2; part++)
        make_model(&b[part], blocks[which].type, blocks[which].block, bytes_model, part, WHOLE);
    change(&b[choose(c, 2)], c, lies);
    for (int part = 0; part < 2; part++)
        write_part(path[part], &b[part]);
    attempt(path[0], b[0].at, b[0].n);
    free(b[0].at);
    free(b[1].at);
}

static void from_choices(Choices *c)
{
    GgufBytes b = {0};
    const uint32_t number = choose(c, 2 * LEN(blocks)), which = number % LEN(blocks), lies = choose(c, 5);
    const bool bytes_model = choose(c, 2);

    if (number >= LEN(blocks)) {
        in_two_files(c, which, lies, bytes_model);
        return;
    }
    make_model(&b, blocks[which].type, blocks[which].block, bytes_model, WHOLE, (int)choose(c, TENSORS + 1) - 1);
    change(&b, c, lies);
    attempt(fuzz_file(b.at, b.n), b.at, b.n);
    free(b.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Choices c;

    if (choices_begin(&c, data, size))
        from_choices(&c);
    else
        attempt(fuzz_file(data, size), data, size);
    return 0;
}

/* Whole models, cut ones, one with each tensor a scalar, and each number of the header, of one file and of two, at each border. */
void fuzz_seeds(void)
{
    GgufBytes b = {0};
    char name[60];

    for (size_t i = 0; i < LEN(blocks); i++) {
        make_model(&b, blocks[i].type, blocks[i].block, i % 2, WHOLE, WHOLE);
        snprintf(name, sizeof name, "model-%u", blocks[i].type);
        fuzz_seed(name, b.at, b.n);
        snprintf(name, sizeof name, "cut-%u", blocks[i].type);
        fuzz_seed(name, b.at, b.n - 1);
    }
    for (uint8_t scalar = 0; scalar <= TENSORS; scalar++) { /* 0: none is one */
        const uint8_t seed[] = {CHOICES, (uint8_t)(scalar % LEN(blocks)), 0, scalar % 2, scalar};

        snprintf(name, sizeof name, "scalar-%u", scalar);
        fuzz_seed(name, seed, sizeof seed);
    }
    for (uint32_t at = 0; at < 3000; at += 7) {
        const uint8_t which = (uint8_t)(at % LEN(blocks)), low = (uint8_t)at, high = (uint8_t)(at >> 8);
        const uint8_t bytes = (uint8_t)(at / 7 % 3), value = (uint8_t)(at % 13);
        const uint8_t one[] = {CHOICES, which, 1, (uint8_t)(at / 7 % 2), 0, low, high, bytes, value};
        const uint8_t two[] = {CHOICES,
                               (uint8_t)(LEN(blocks) + which),
                               at < 2993,
                               (uint8_t)(at / 7 % 2),
                               (uint8_t)(at / 14 % 2),
                               low,
                               high,
                               bytes,
                               value};

        snprintf(name, sizeof name, "number-%u", at);
        fuzz_seed(name, one, sizeof one);
        snprintf(name, sizeof name, "parts-%u", at);
        fuzz_seed(name, two, sizeof two);
    }
    free(b.at);
}
