/* fuzz_gguf.c - any bytes as a GGUF file, or choices: a whole small model in which some numbers are changed. What is read
 * becomes a graph, weights, a tokenizer and chat templates, or is refused with a reason. */
#include "choices.h"
#include "tables.h"

#include "compiler/chat/chat.h"
#include "compiler/gguf/gguf.h"
#include "compiler/weights/tensors.h"
#include "runtime/base/hash.h"
#include "tests/gguf/bytes.h"

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

static void attempt(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size), *note;
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

/* type: of the matrices, whose rows are one block of 32 elements. */
static void make_model(GgufBytes *b, uint32_t type, size_t block, bool bytes_model)
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

    gguf_begin(b);
    put_keys(b);
    put_tokens(b, bytes_model);
    for (size_t i = 0; i < LEN(tensors); i++) {
        const uint64_t rows = tensors[i].rows, columns = i + 1 == LEN(tensors) ? HEAD / 2 : HIDDEN;

        gguf_put_tensor(b, tensors[i].name, rows ? 2 : 1, (uint64_t[]){columns, rows}, rows ? type : 0, at);
        at += ((rows ? rows * block : columns * 4) + 31) / 32 * 32;
    }
    gguf_put_data(b, 32, at);
    memset(b->at + b->n - HIDDEN, 0x3f, HIDDEN); /* frequencies are divided by these */
}

static const struct {
    uint32_t type;
    size_t block;
} blocks[] = {{0, 128}, {1, 64}, {8, 34}, {2, 18}, {3, 20}};

/* A number of 1, 4 or 8 bytes somewhere in the header, up to four times. */
static void from_choices(Choices *c)
{
    GgufBytes b = {0};
    const uint32_t which = choose(c, LEN(blocks)), lies = 1 + choose(c, 4);
    size_t head;

    make_model(&b, blocks[which].type, blocks[which].block, choose(c, 2));
    head = b.n < 3000 ? b.n : 3000;
    for (uint32_t i = 0; i < lies; i++) {
        const uint32_t at = choose(c, (uint32_t)head - 8), bytes = (uint32_t[]){1, 4, 8}[choose(c, 3)];
        uint64_t value = 0;

        memcpy(&value, b.at + at, bytes);
        value = choose_value(c, value);
        memcpy(b.at + at, &value, bytes);
    }
    attempt(b.at, b.n);
    free(b.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Choices c;

    if (choices_begin(&c, data, size))
        from_choices(&c);
    else
        attempt(data, size);
    return 0;
}

/* Whole models, cut ones, and each number of the header at each border. */
void fuzz_seeds(void)
{
    GgufBytes b = {0};
    char name[60];

    for (size_t i = 0; i < LEN(blocks); i++) {
        make_model(&b, blocks[i].type, blocks[i].block, i % 2);
        snprintf(name, sizeof name, "model-%u", blocks[i].type);
        fuzz_seed(name, b.at, b.n);
        snprintf(name, sizeof name, "cut-%u", blocks[i].type);
        fuzz_seed(name, b.at, b.n - 1);
    }
    for (uint32_t at = 0; at < 3000; at += 7) {
        const uint8_t seed[] = {CHOICES,
                                (uint8_t)(at % LEN(blocks)),
                                0,
                                (uint8_t)(at / 7 % 2),
                                (uint8_t)at,
                                (uint8_t)(at >> 8),
                                (uint8_t)(at / 7 % 3),
                                (uint8_t)(at % 13)};

        snprintf(name, sizeof name, "number-%u", at);
        fuzz_seed(name, seed, sizeof seed);
    }
    free(b.at);
}
