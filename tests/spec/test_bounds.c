/* test_bounds.c - fields, limits, ops and checkouts at their bounds: what is still a model, and what the message says of
 * the next step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/mman.h>
#include <sys/resource.h>

#include "compiler/spec/sandbox.h"
#include "compiler/spec/spec.h"
#include "runtime/base/file.h"
#include "tests/temp.h"

typedef struct Reading {
    Arena *keep;
    Spec spec;
    Diag d;
    bool ok;
} Reading;

/* defines: words with a space between, or NULL */
static Reading read_path(const char *path, const char *defines)
{
    Reading r = {.keep = arena_open()};
    Override list[8];
    size_t n = 0;

    if (defines)
        for (char *save = NULL, *w = strtok_r(arena_strdup(r.keep, defines), " ", &save); w;
             w = strtok_r(NULL, " ", &save))
            list[n++].text = w;
    r.ok = spec_read(path, list, n, r.keep, &r.spec, &r.d);
    return r;
}

static const char *put(const char *name, const void *text, size_t bytes)
{
    const char *path = temp_path(name);

    assert_int_equal(file_write_whole(path, text, bytes, NULL), FTX_OK);
    return path;
}

static const char *put_text(const char *name, const char *text)
{
    return put(name, text, strlen(text));
}

static Reading read_text(const char *lua, const char *defines)
{
    return read_path(put_text("spec.lua", lua), defines);
}

static Reading read_good(const char *lua, const char *defines)
{
    Reading r = read_text(lua, defines);

    if (!r.ok)
        fail_msg("%s\n%s", lua, r.d.text);
    return r;
}

static void drop(Reading *r)
{
    if (r->ok)
        ir_graph_close(r->spec.graph);
    arena_close(r->keep);
}

static size_t count_ops(const Graph *g, Op op)
{
    size_t n = 0;

    for (Id id = 1; id < g->values.n; id++)
        n += ir_value(g, id)->op == op;
    return n;
}

/* A decoder, a classifier, and ops one by one: x is [T,64] of 10 ids. */
#define LLAMA(more) \
    "local ftx, llama = require 'ftx', require 'llama'\nreturn ftx.model { graph = llama { vocab = 64, hidden = 32, " \
    "layers = 1, heads = 2, ffn = 48 }, " more " }"
#define BERT(more) \
    "local ftx, bert = require 'ftx', require 'bert'\nreturn ftx.model { graph = bert { vocab = 64, hidden = 32, " \
    "layers = 1, heads = 2, ffn = 48, positions = 64, labels = 3 }, limits = { context = 64 }, " more " }"
#define NN(body) \
    "local ftx, nn = require 'ftx', require 'nn'\nlocal ids = nn.ids()\n" \
    "local function w(name, n, k) return nn.weight(name, { n, k }) end\n" \
    "local x = nn.embed(ids, w('e', 10, 64))\nlocal h = nn.split_heads(x, 4)\n" \
    "local function decoder(y) return nn.sample(nn.linear(nn.select_last(y), w('e', 10, 64))) end\n" \
    "local function encoder(y) return nn.vectors(nn.join_heads(nn.attend_full(h, h, h)) + y) end\n" body
#define DECODER "return ftx.model { graph = decoder(y), limits = { context = 64 }, start = 0 }"
#define ENCODER "return ftx.model { graph = encoder(y), limits = { context = 48, tokens = 48 } }"
/* An encoder of 7 ids beside the decoder: s are its heads. */
#define SOURCE \
    "local s = nn.split_heads(nn.embed(ids, w('s', 7, 64)), 4)\ns = nn.attend_full(s, s, s)\n" \
    "s = nn.split_heads(nn.join_heads(s), 4)\n" \
    "local function layer(y) local q = nn.split_heads(y, 4) return nn.join_heads(nn.attend(q, nn.cache(q, q))) end\n" \
    "local function cross(y) return nn.join_heads(nn.attend_cross(nn.split_heads(y, 4), nn.cross_cache(s, s))) end\n"

static void test_mistakes(void **state)
{
    static const struct {
        const char *lua, *defines, *message;
    } cases[] = {
        {LLAMA("limits = { context = 64 }, name = 'a\\0b'"), NULL, "name must be a text"},
        {"local llama = require 'llama'\nlocal g = llama { vocab = 64, hidden = 32, layers = 1, heads = 2, ffn = 48, "
         "rope = { base = 3 } }",
         NULL, "spec.lua:2)"}, /* specs/llama.lua:35: ... (from spec.lua:2) */
        {LLAMA("limits = { context = 1 }"), NULL, "limits.context must be a whole number from 2 to 1048576, got 1"},
        {LLAMA("limits = { context = 64 }, precision = { weights = 'auto' }"), NULL,
         "precision.weights must be one of fp32, fp16, bf16, int8, int4, fp8, got \"auto\""},
        {LLAMA("limits = { context = 64 }"), "precision.compute=int8",
         "precision.compute must be one of auto, fp32, fp16, bf16"},
        {LLAMA("limits = { context = 64 }"), "precision.group=64",
         "precision.group must be left out unless precision.weights is int8, int4 or fp8"},
        {LLAMA("limits = { context = 64 }"), "precision.except=down_proj",
         "precision.except must be left out unless precision.weights is int8, int4 or fp8"},
        {LLAMA("limits = { context = 64 }"), "precision.head=int8",
         "precision.head must be left out unless precision.weights is int8, int4 or fp8"},
        {LLAMA("limits = { context = 64 }"), "precision.weights=int8 precision.group=48",
         "precision.group must be one of 32, 64, 128"},
        {LLAMA("limits = { context = 64 }"), "precision.weights=int8 precision.zeros=true",
         "precision.zeros must be false: weights of int8 have no zeros"},
        {LLAMA("limits = { context = 64 }"), "precision.weights=fp8 precision.zeros=true",
         "precision.zeros must be false: weights of fp8 have no zeros"},
        {LLAMA("limits = { context = 64 }"), "precision.compute=fp8",
         "precision.compute must be one of auto, fp32, fp16, bf16"},
        {LLAMA("limits = { context = 64 }"), "precision.weights=int4 precision.head=fp32",
         "precision.head must be one of int8, int4, fp8, bf16"},
        {LLAMA("limits = { context = 64 }, precision = { weights = 'int4', except = 'down_proj' }"), NULL,
         "precision.except must be a list of texts, got \"down_proj\""},
        {LLAMA("limits = { context = 64 }, precision = { weights = 'int4', except = { 3 } }"), NULL,
         "precision.except must be names of weights"},
        {LLAMA("limits = { context = 64 }"), "eos=1x2", "eos must be token ids: 1 or 1,2,3"},
        {LLAMA("limits = { context = 64 }"), "graph.layers=2 graph.layer=1", "the graph's family has no field 'layer'"},
        {LLAMA("limits = { context = 64 }, bos = 64"), NULL, "bos must be below the vocabulary's size 64, got 64"},
        {BERT("labels = { 'a', 'b', 'c', 'd' }"), NULL, "labels must be 3 texts"},
        {BERT("labels = { 'a', 'b\\nc', 'd' }"), NULL, "labels must be texts of one line each"},
        {BERT("pooling = 'mean'"), "limits.tokens=32", "limits.tokens must be at least limits.context (64)"},
        {NN(SOURCE "local y = layer(cross(layer(x)))\n" DECODER), NULL,
         "graph has 2 layers, 1 sources for them and 1 reads of those"},
        {NN("local y = x\nreturn ftx.model { graph = encoder(y), normalize = true, limits = { context = 8 } }"), NULL,
         "normalize: there is no pooled vector"},
        {NN("w('e', 10, 32)"), NULL, "weight e: the shape is [10,32] here and [10,64] on line"},
        {NN("nn.rope(h, { scaling = { kind = 'llama3', factor = 8, low = 4, high = 4, original = 64 } })"), NULL,
         "scaling.low is 4 and high 4, they must be positive and low < high"},
        {NN("local q = nn.split_heads(nn.linear(x, w('q', 40, 64)), 2)\nnn.cache(q, q)"), NULL,
         "cache: head_dim is 20, it must be a multiple of 8 from 16 to 576"},
        {NN("local q = nn.split_heads(nn.linear(x, w('q', 1168, 64)), 2)\nnn.attend_full(q, q, q)"), NULL,
         "attend_full: head_dim is 584, it must be a multiple of 8 from 16 to 576"},
        {NN("nn.rope(h, { theta = 0 })"), NULL, "rope: theta is 0, it must be positive"},
        {NN("nn.rope(h, { dim = 7 })"), NULL, "rope: dim is 7, it must be even"},
        {NN("nn.rope(h, { scaling = { kind = 'linear', factor = 0.5 } })"), NULL,
         "rope: scaling.factor is 0.5, it must be 1 or more"},
        {NN("nn.rope(h, { amplitude = 0 })"), NULL, "rope: amplitude is 0, it must be positive"},
        {NN("nn.rope(h, { dim = 4, freqs = { 1 } })"), NULL,
         "rope: freqs must be a list of 2 numbers, one for each pair of dim"},
        {NN("nn.rope(h, { freqs = 1 })"), NULL, "rope: freqs must be a list of 8 numbers, one for each pair of dim"},
        {NN("nn.rope(h, { dim = 4, freqs = { 1, 'x' } })"), NULL, "rope: a number of freqs must be a finite number"},
        {NN("nn.rope(h, { dim = 4, freqs = { 1, 1 }, theta = 10000 })"), NULL,
         "rope: freqs stands in place of theta and scaling; give one of them"},
        {NN("nn.distance_bias(x)"), NULL, "distance_bias: w must be a weight, it is the result of embed"},
        {NN("nn.distance_bias(w('m', 8, 64), { distance = 4 })"), NULL,
         "distance_bias has no option 'distance'; it has: max_distance causal"},
        {NN("nn.distance_bias(w('m', 8, 64), { max_distance = 1 })"), NULL, "max_distance"},
        {NN("nn.distance_bias(w('m', 8, 64), { max_distance = 4, causal = true })"), NULL, "above the 4 distances"},
        {NN("nn.repeat_rows(x, 2)"), NULL, "repeat: w must be a weight, it is the result of embed"},
        {NN("nn.repeat_rows(w('m', 8, 64), 0)"), NULL, "repeat_rows: times must be a whole number from 1 to "},
        {NN("nn.plus(x, 1)"), NULL, "plus: w must be a weight, it is the result of embed"},
        {NN("nn.plus(w('m', 8, 64), 1)"), NULL, "plus: w is [8,64], it must have 1 dimension"},
        {NN("nn.rmsnorm(x, nn.weight('g', { 64 }), 2)"), NULL, "rmsnorm: eps must be from 0 to 1, got the number 2"},
        {NN("nn.checkpoint { renamed = { 'a' } }"), NULL, "checkpoint: renamed must be a list of pairs"},
        {NN("local t = {} for i = 1, 1001 do t[i] = 'x' end nn.checkpoint { unused = t }"), NULL,
         "checkpoint: more than 1000 names"},
        {NN("nn.embedded(x) nn.embedded(x + x)"), NULL, "embedded: it was called before"},
        {NN("local y = nn.positions(w('p', 50, 64), 3)\n" ENCODER), NULL,
         "limits.context must be at most 47, the number of the model's learned positions, got 48"},
        {NN("local y = nn.positions(w('p', 99, 64)) + nn.positions(w('r', 40, 64)) + nn.positions(w('t', 60, "
            "64))\n" ENCODER),
         NULL, "limits.context must be at most 40, the number"},
        {NN(SOURCE "local y = cross(layer(x))\n" DECODER), "limits.source=48 limits.tokens=47",
         "limits.tokens must be at least limits.source (48): a source is read in one step"},
        {NN(SOURCE "local y = cross(layer(x))\n" DECODER), "limits.sources=17",
         "limits.sources must be at most limits.sequences (16): each is read by a row of a step"},
        {NN(SOURCE "local y = cross(layer(x))\n" DECODER), "limits.sequences=3 decode.width=4",
         "decode.width must be at most limits.sequences (3): each beam is a row of a step"},
        {NN(SOURCE "s = nn.split_heads(nn.join_heads(s) + nn.positions(w('p', 20, 64)), 4)\n"
                   "local y = cross(layer(x))\n" DECODER),
         "limits.source=21", "limits.source must be at most 20, the number of the encoder's learned positions"},
        {NN(SOURCE "local y = cross(layer(x))\n"
                   "return ftx.model { graph = decoder(y), limits = { context = 64 } }"),
         NULL, "start is missing; a decoder with a source needs a first token id"},
        {NN("local y = x\n" DECODER), NULL,
         "graph has no attend, convolve or recur: a decoder embeds ids, and its layers attend"},
        {NN("return ftx.model { graph = nn.vectors(x), limits = { context = 8 } }"), NULL,
         "graph has no attend_full: an encoder embeds ids and attends to all of a text"},
        {LLAMA("limits = { context = 64 }, eos = 'x'"), NULL, "eos must be a token id or a list of up to 8, got \"x\""},
        {LLAMA("limits = { context = 64, end_ids = 1 }, eos = { 1, 2 }"), NULL,
         "limits.end_ids must be at least 2, the number of eos ids, got 1"},
        {LLAMA("limits = { context = 64 }, name = ''"), NULL, "name must be one line of 1 to 200 characters, got \"\""},
        {LLAMA("limits = { context = 64 }, name = true"), NULL, "name must be a text, got true"},
        {NN("local y = x\nreturn ftx.model { graph = encoder(y), name = x, limits = { context = 8 } }"), NULL,
         "name must be a text, got a graph value"},
        {BERT("pooling = 'max'"), NULL, "pooling must be one of model, first, last, mean, none, got \"max\""},
        /* fields that a model of another kind reads */
        {LLAMA("limits = { context = 64 }"), "pooling=mean",
         "pooling is for models that make vectors of texts (encoders); this model generates text and reads no source"},
        {LLAMA("limits = { context = 64 }"), "labels=a,b", "labels is for models that make vectors of texts"},
        {LLAMA("limits = { context = 64 }, normalize = false"), NULL, "normalize is for models that make vectors"},
        {LLAMA("limits = { context = 64 }"), "limits.source=32",
         "limits.source is for models that read a source; this model generates text"},
        {LLAMA("limits = { context = 64 }"), "start=1", "start is for models that read a source"},
        {BERT("pooling = 'mean'"), "decode.top_k=5",
         "decode.top_k is for models that generate text; this model is an encoder, which generates no text"},
        {BERT("pooling = 'mean'"), "kv.pages=9", "kv.pages is for models that generate text"},
        {BERT("pooling = 'mean'"), "precision.kv=int8", "precision.kv is for models that generate text"},
        {BERT("pooling = 'mean'"), "decode.bad_words=5", "decode.bad_words is for models that generate text"},
        {BERT("normalize = 1"), NULL, "normalize must be true or false, got 1"},
        {LLAMA("limits = { context = 64 }, states = 1"), NULL, "states must be true or false, got 1"},
        {BERT("pooling = 'mean'"), "states=true", "states is for models that generate text"},
        {"return require 'ftx'.model(3)", NULL, "ftx.model takes a table, got 3"},
        {"return require 'ftx'.sample(3)", NULL, "ftx.sample takes a table, got 3"},
        {"return require 'ftx'.sample { beams = 2 }", NULL, "ftx.sample has no beams; ftx.beam has"},
        {"return require 'ftx'.beam {}", NULL, "ftx.beam: width is missing; it must be a whole number from 1 to 64"},
        {"return require 'ftx'.range 'decode.heat'", NULL, "ftx.range: a model has no field 'decode.heat'"},
    };

    (void)state;
    for (size_t i = 0; i < LEN(cases); i++) {
        Reading r = read_text(cases[i].lua, cases[i].defines);

        if (!strstr(r.d.text, cases[i].message))
            fail_msg("%s\n  expected %s\n  got      %s", cases[i].lua, cases[i].message, r.d.text);
        drop(&r);
    }
}

/* Arguments of builtins that are of another kind than the builtin takes. */
static void test_arguments(void **state)
{
    static const struct {
        const char *lua, *message;
    } cases[] = {
        {NN("nn.linear(x, 'w')"), "spec.lua:8: linear: w must be a graph value, got \"w\""},
        {NN("nn.rows(w('w', 8, 64), x, 1)"),
         "rows: from must be a whole number from 0 to 2147483647, got a graph value"},
        {NN("nn.scale(x, {})"), "scale: by must be a finite number, got a table"},
        {NN("nn.scale(x, 0 / 0)"), "scale: by must be a finite number, got the number nan"},
        {NN("nn.act(x, '')"), "act: kind must be a text of 1 to 300 characters, got one that is not"},
        {NN("nn.act(x, 3)"), "act: kind must be a text of 1 to 300 characters, got the number 3"},
        {NN("nn.rope(h, 'half')"), "rope: options must be a table, got \"half\""},
        {NN("nn.rope(h, { the = 1 })"), "rope has no option 'the'; it has: theta dim scaling style"},
        {NN("nn.rope(h, { scaling = { kind = 'llama3', factor = 8 } })"),
         "rope: scaling.original is missing: the context of the training before the scaling"},
        {NN("nn.rope(x)"), "rope: x is [T,64], it must be [T,heads,head_dim]: split_heads gives that"},
        {NN("nn.attend(h, h)"), "attend: the second argument is the result of split_heads, it must be that of cache"},
        {NN("nn.attend_cross(h, nn.cache(h, h))"),
         "attend_cross: the second argument is the result of cache, it must be that of cross_cache"},
        {NN("nn.weight('n')"), "weight n: the shape must be {N} or {N, K}, got nil"},
        {NN("nn.weight('n', { 1, 2, 3 })"), "weight n: the shape must be {N} or {N, K}, got another table"},
        {NN("w('n', 1 << 21, 1 << 20)"), "weight n: [2097152,1048576] is more than 2^40 elements"},
        {NN("nn.checkpoint { prefixes = 'model.' }"), "checkpoint: prefixes must be a list of names"},
        {NN("nn.sinusoid()"), "sinusoid takes a table with the field dim"},
        {NN("nn.sinusoid { dim = 64, theta = 0 }"), "sinusoid: theta is 0, it must be positive"},
        {NN("nn.concat(x, x)"), "concat: w must be a weight, it is the result of embed"},
        {NN("local y = x\nftx.model { graph = encoder(y), limits = { context = 8 } }\nnn.sinusoid { dim = 64 }"),
         "spec.lua:10: sinusoid: nothing can be added to the graph after ftx.model"},
    };

    (void)state;
    for (size_t i = 0; i < LEN(cases); i++) {
        Reading r = read_text(cases[i].lua, NULL);

        if (!strstr(r.d.text, cases[i].message))
            fail_msg("%s\n  expected %s\n  got      %s", cases[i].lua, cases[i].message, r.d.text);
        drop(&r);
    }
}

/* Norms without gain or shift share a vector of ones and one of zeros for each width; lists of frequencies are shared,
 * too. */
static void test_shared_tables(void **state)
{
    Reading r = read_text(
        NN("local y = nn.rmsnorm(nn.layernorm(nn.rmsnorm(x, nil, 1e-5), nil, false, 1e-5), "
           "nn.plus(nn.weight('g', { 64 }), 1), 1e-5)\n"
           "local f = { dim = 4, freqs = { 1, 0.1 }, amplitude = 1.5 }\n"
           "y = y + nn.join_heads(nn.rope(nn.rope(nn.rope(h, f), f), { dim = 4, freqs = { 1, 0.1 } }))\n" ENCODER),
        NULL);
    const Graph *g = r.spec.graph;
    int fills = 0, tables = 0;

    (void)state;
    if (!r.ok)
        fail_msg("%s", r.d.text);
    for (Id id = 1; id < g->values.n; id++) {
        const Value *v = ir_value(g, id);

        fills += v->op == OP_FILL;
        tables += v->op == OP_ROPE_TABLE;
        if (v->op == OP_FILL)
            assert_true(ir_int(v, "count") == 64 && ir_float(v, "value") == (fills == 1 ? 1 : 0));
        if (v->op == OP_ROPE_TABLE)
            assert_string_equal(ir_word(v, "freqs"), "1 0.10000000000000001");
    }
    assert_int_equal(fills, 2);
    assert_int_equal(tables, 2);
    drop(&r);
}

static const Value *only_op(const Graph *g, Op op)
{
    const Value *found = NULL;

    assert_int_equal(count_ops(g, op), 1);
    for (Id id = 1; id < g->values.n; id++)
        if (ir_value(g, id)->op == op)
            found = ir_value(g, id);
    return found;
}

/* Layers may differ in their heads, and read a cache that an earlier one wrote. */
static void test_layers(void **state)
{
    Reading r = read_good(
        NN("local function part(y, n, heads) return nn.split_heads(nn.linear(y, w('p' .. n, n, 64)), heads) end\n"
           "local one = nn.cache(part(x, 32, 2), part(x, 32, 2))\n"
           "local y = nn.linear(nn.join_heads(nn.attend(part(x, 64, 4), one)), w('o', 64, 64))\n"
           "local two = nn.cache(part(y, 32, 1), part(y, 32, 1))\n"
           "y = nn.linear(nn.join_heads(nn.attend(part(y, 192, 6), two)), w('p', 64, 192))\n"
           "y = nn.linear(nn.join_heads(nn.attend(part(y, 32, 2), one, { window = 9 })), w('q', 64, 32))\n"
           "y = y + nn.linear(nn.embed(ids, w('t', 10, 24)), w('u', 64, 24))\n" DECODER),
        NULL);

    (void)state;
    assert_int_equal(r.spec.layers, 3);
    assert_int_equal(r.spec.heads, 6); /* the most */
    assert_int_equal(r.spec.kv_heads, 0);
    assert_int_equal(r.spec.head_dim, 0);
    assert_int_equal(r.spec.hidden, 64); /* of the first embedding */
    drop(&r);

    r = read_good(NN("local one = nn.cache(h, h)\n"
                     "local y = nn.join_heads(nn.attend(h, one))\n"
                     "y = nn.join_heads(nn.attend(nn.split_heads(y, 4), one))\n" DECODER),
                  NULL);
    assert_int_equal(r.spec.layers, 2);
    assert_int_equal(r.spec.kv_heads, 4);
    assert_int_equal(r.spec.head_dim, 16);
    drop(&r);

    /* the source's heads may be others than the decoder's */
    r = read_good(NN(SOURCE "s = nn.split_heads(nn.join_heads(s), 2)\nlocal y = layer(x)\n"
                            "y = nn.join_heads(nn.attend_cross(nn.split_heads(y, 2), nn.cross_cache(s, s)))\n" DECODER),
                  NULL);
    assert_int_equal(r.spec.layers, 1);
    assert_int_equal(r.spec.hidden, 64);
    drop(&r);
}

/* Builtins and options that no family of the tree uses; shapes are asserted in Lua. */
static void test_builtins(void **state)
{
    Reading r =
        read_good(NN("assert(tostring(nn.concat(w('a', 3, 64), w('b', 4, 64), w('c', 5, 64))) == 'concat [12,64]')\n"
                     "assert(tostring(nn.act(x, 'identity')) == 'embed [T,64]')\n"
                     "assert(tostring(nn.normalize(nn.pool_mean(x))) == 'normalize [S,64]')\n"
                     "local z = x + nn.positions(nn.sinusoid { dim = 64, span = 32, style = 'neighbour' })\n"
                     "local q = nn.rope(nn.split_heads(z, 4), { style = 'neighbour' })\n"
                     "local y = nn.join_heads(nn.attend(q, nn.cache(h, h), { softcap = 30 }))\n" DECODER),
                  NULL);

    (void)state;
    assert_string_equal(ir_word(only_op(r.spec.graph, OP_ROPE), "style"), "neighbour");
    assert_true(ir_float(only_op(r.spec.graph, OP_ATTEND), "softcap") == 30);
    assert_int_equal(ir_int(only_op(r.spec.graph, OP_SINUSOID), "span"), 32);
    assert_string_equal(ir_word(only_op(r.spec.graph, OP_SINUSOID), "style"), "neighbour");
    drop(&r);

    r = read_good(NN(SOURCE "s = nn.split_heads(nn.join_heads(s) + nn.types(w('t', 3, 64)), 4)\n"
                            "local y = cross(layer(x))\n" DECODER),
                  NULL);
    assert_int_equal(r.spec.types, 3);
    drop(&r);
}

static void test_limits(void **state)
{
    Reading r = read_good(LLAMA("limits = { context = 65, tokens = 16 }, eos = { 1, 2 }, "
                                "decode = ftx.greedy { no_repeat_ngram = 65 }"),
                          "limits.end_ids=2 decode.no_repeat_ngram=66 decode.temperature=0.5");

    (void)state;
    assert_int_equal(r.spec.graph->limits.sequences, 16);
    assert_int_equal(r.spec.graph->limits.tokens, 16); /* as many as sequences */
    assert_int_equal(r.spec.graph->limits.kv_pages, 16 * 5);
    assert_int_equal(r.spec.n_ends, 2);
    assert_int_equal(r.spec.decode.no_repeat_ngram, 65); /* the context is all that there can be */
    assert_true(r.spec.decode.temperature == 0.5f);
    drop(&r);

    r = read_good(LLAMA("limits = { context = 64 }, decode = ftx.beam { width = 6, beam_groups = 4 }"),
                  "decode.beams=4");
    assert_int_equal(r.spec.decode.beam_groups, 4); /* divides the beams, not the width */
    drop(&r);

    /* a step of an encoder is as long as a text, where the spec does not say */
    r = read_good(NN("local y = x\nreturn ftx.model { graph = encoder(y), limits = { context = 600 } }"), NULL);
    assert_int_equal(r.spec.graph->limits.tokens, 600);
    drop(&r);

    r = read_good(LLAMA("limits = { context = 64 }, precision = { weights = 'int4', except = { 'a', 'b.*' } }"), NULL);
    assert_int_equal(r.spec.precision.quant.n_except, 2);
    assert_string_equal(r.spec.precision.quant.except[0], "a");
    assert_string_equal(r.spec.precision.quant.except[1], "b.*");
    drop(&r);
    r = read_good(LLAMA("limits = { context = 64 }, decode = ftx.sample()"), NULL);
    assert_true(r.spec.decode.temperature == 1);
    drop(&r);

    r = read_good(BERT("labels = { 'a', 'b', 'c' }"), "labels=");
    assert_int_equal(r.spec.n_labels, 0);
    assert_null(r.spec.labels);
    drop(&r);

    /* a -D is of its own path alone */
    r = read_good(LLAMA("limits = { context = 64, ends = ftx.override('graph.layer') }"), "graph.layers=2");
    assert_int_equal(r.spec.layers, 2);
    drop(&r);
}

static void test_source(void **state)
{
    Reading r = read_good(NN(SOURCE "local z = nn.embed(ids, w('z', 9, 64)) + nn.positions(nn.sinusoid { dim = 64 })\n"
                                    "local y = cross(layer(z))\n" DECODER),
                          "limits.source=96 limits.sequences=10 decode.width=4");

    (void)state;
    assert_int_equal(r.spec.vocab, 10);
    assert_int_equal(r.spec.source_vocab, 7);
    assert_int_equal(r.spec.graph->limits.source, 96);
    assert_int_equal(r.spec.graph->limits.sources, 3); /* 10 sequences of 4 beams */
    for (Id id = 1; id < r.spec.graph->values.n; id++)
        if (ir_value(r.spec.graph, id)->op == OP_SINUSOID)
            assert_int_equal(ir_value(r.spec.graph, id)->shape.dim[0].n, 96);
    assert_int_equal(count_ops(r.spec.graph, OP_SINUSOID), 1);
    drop(&r);

    r = read_good(NN(SOURCE "local p = nn.sinusoid { dim = 64 }\n"
                            "local z = nn.embed(ids, w('z', 9, 64)) + nn.positions(p, 3) + nn.positions(p, 2)\n"
                            "local y = cross(layer(z))\n" DECODER),
                  "limits.source=96");
    for (Id id = 1; id < r.spec.graph->values.n; id++)
        if (ir_value(r.spec.graph, id)->op == OP_SINUSOID)
            assert_int_equal(ir_value(r.spec.graph, id)->shape.dim[0].n, 99);
    drop(&r);
}

/* Ropes share a table only if all of their options are equal. */
static void test_ropes(void **state)
{
    static const struct {
        const char *lua;
        size_t tables;
    } cases[] = {
        {NN("local a, b = nn.rope(h, { theta = 100 }), nn.rope(h, { theta = 200 })\n"
            "local y = nn.join_heads(nn.attend(a, nn.cache(b, h)))\n" DECODER),
         2},
        {NN("local a, b = nn.rope(h, { scaling = { kind = 'linear', factor = 2 } }), nn.rope(h)\n"
            "local y = nn.join_heads(nn.attend(a, nn.cache(b, h)))\n" DECODER),
         2},
        {NN("local a, b = nn.rope(h, { theta = 100 }), nn.rope(h, { theta = 100 })\n"
            "local y = nn.join_heads(nn.attend(a, nn.cache(b, h)))\n" DECODER),
         1},
    };

    (void)state;
    for (size_t i = 0; i < LEN(cases); i++) {
        Reading r = read_good(cases[i].lua, NULL);

        assert_int_equal(count_ops(r.spec.graph, OP_ROPE_TABLE), cases[i].tables);
        drop(&r);
    }
}

/* The name of a spec, the lines of -D in its text, a byte 0, and paths that are not there. */
static void test_files(void **state)
{
    static const char lua[] = LLAMA("limits = { context = 64 }");
    static const char *const paths[] = {"a/b", "none/x.lua"};
    Reading r = read_path(put("model-3.2", lua, sizeof lua - 1), "limits.context=32 limits.tokens=24");

    (void)state;
    assert_true(r.ok);
    assert_string_equal(r.spec.name, "model-3.2");
    assert_int_equal(strncmp(r.spec.text, "-- -D limits.context=32\n-- -D limits.tokens=24\nlocal ftx", 56), 0);
    drop(&r);
    r = read_path(put("zero.lua", lua, sizeof lua), NULL);
    assert_non_null(strstr(r.d.text, "zero.lua: not a text file: it has a byte of value 0"));
    drop(&r);
    for (size_t i = 0; i < LEN(paths); i++) {
        char *path = strdup(paths[i]); /* a block of its own: nothing before it may be read */

        assert_non_null(path);
        r = read_path(path, NULL);
        assert_int_equal(strstr(r.d.text, "hf download") != NULL, i == 0);
        drop(&r);
        free(path);
    }
}

/* Modules beside the spec that are none. */
static void test_modules(void **state)
{
    static char large[SANDBOX_TEXT + 1];
    static const struct {
        const char *module, *message;
    } cases[] = {
        {"empty", "require: module 'empty' returns nothing"},
        {"itself", "require: module 'itself' requires itself"},
        {"large", "large.lua is larger than 1048576 bytes"},
        {"folder", "folder.lua: not a regular file"},
    };
    const char *folder = temp_path("folder.lua");

    (void)state;
    memset(large, ' ', sizeof large);
    put("empty.lua", "", 0);
    put_text("itself.lua", "return require 'itself'");
    put("large.lua", large, sizeof large);
    assert_int_equal(file_make_dirs(folder, NULL), FTX_OK);
    for (size_t i = 0; i < LEN(cases); i++) {
        char lua[40];
        Reading r;

        snprintf(lua, sizeof lua, "return require '%s'", cases[i].module);
        r = read_text(lua, NULL);
        if (!strstr(r.d.text, cases[i].message))
            fail_msg("%s\n  expected %s\n  got      %s", lua, cases[i].message, r.d.text);
        drop(&r);
    }
    rmdir(temp_path("folder.lua"));
}

/* A spec that is there and cannot be opened. */
static void test_no_descriptor(void **state)
{
    const char *path = put_text("spec.lua", "return 1");
    struct rlimit limit, none;
    Reading r;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    r = read_path(path, NULL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_false(r.ok);
    assert_true(r.d.machine);
    assert_non_null(strstr(r.d.text, "spec.lua: Too many open files"));
    drop(&r);
}

static Reading read_checkout(void)
{
    return read_path(temp_folder, NULL);
}

/* Makes the highest hole in the address space one page, before a page that cannot be read: there the next file goes. */
static void make_hole(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *three = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *one = three;

    assert_true(three != MAP_FAILED);
    for (int i = 0; i < 10000 && one >= three; i++) { /* fills higher holes */
        one = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(one != MAP_FAILED);
    }
    assert_int_equal(munmap(three + page, page), 0);
}

static void test_checkouts(void **state)
{
    static const char bert[] =
        "{\"architectures\": [\"BertModel\"], \"vocab_size\": 64, \"hidden_size\": 32, \"num_hidden_layers\": 1, "
        "\"intermediate_size\": 48, \"max_position_embeddings\": 64, \"num_attention_heads\": 2}";
    static char large[(16 << 20) + 2];
    char pooling[300];
    Reading r;

    (void)state;
    put_text("config.json", bert);
    put_text("model.safetensors.index.json", "{}");
    put_text("generation_config.json", "{\"max_length\": 21}");
    /* a header that says it is longer than its file, and a file beside an index */
    memset(large, ' ', 4096);
    memcpy(large, "\0\0\x80\0\0\0\0\0{", 9);
    put("model.safetensors", large, 4096);
    make_hole();
    r = read_checkout();
    if (!r.ok)
        fail_msg("%s", r.d.text);
    assert_non_null(strstr(r.spec.weights, "/model.safetensors"));
    assert_null(strstr(r.spec.weights, "index"));
    assert_non_null(strstr(r.spec.text, "\"max_length\": 21"));
    drop(&r);

    /* the first pooling module counts; its folder lies in the checkout */
    snprintf(pooling, sizeof pooling, "%s/1_Pooling", temp_folder);
    assert_int_equal(file_make_dirs(pooling, NULL), FTX_OK);
    snprintf(pooling, sizeof pooling, "%s/2_Pooling", temp_folder);
    assert_int_equal(file_make_dirs(pooling, NULL), FTX_OK);
    put_text("1_Pooling/config.json", "{\"pooling_mode_mean_tokens\": true}");
    put_text("2_Pooling/config.json", "{\"pooling_mode_cls_token\": true}");
    put_text("modules.json", "[{\"type\": \"s.Transformer\", \"path\": \"\"}, {\"type\": \"s.Pooling\", \"path\": "
                             "\"1_Pooling\"}, {\"type\": \"s.Pooling\", \"path\": \"2_Pooling\"}]");
    r = read_checkout();
    if (!r.ok)
        fail_msg("%s", r.d.text);
    assert_int_equal(count_ops(r.spec.graph, OP_POOL_MEAN), 1);
    drop(&r);
    put_text("modules.json", "[{\"type\": \"s.Pooling\", \"path\": \"..\"}]");
    r = read_checkout();
    assert_non_null(strstr(r.d.text, "modules.json: the path of module 0 is not the name of a folder"));
    drop(&r);
    unlink(temp_path("1_Pooling/config.json"));
    unlink(temp_path("2_Pooling/config.json"));
    rmdir(temp_path("1_Pooling"));
    rmdir(temp_path("2_Pooling"));
    unlink(temp_path("modules.json"));

    memset(large, ' ', sizeof large);
    memcpy(large, bert, sizeof bert - 1);
    put("config.json", large, sizeof large);
    r = read_checkout();
    if (!strstr(r.d.text, "config.json: the file is 16777218 bytes, 16777216 are allowed"))
        fail_msg("%s", r.d.text);
    drop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mistakes), cmocka_unit_test(test_arguments),     cmocka_unit_test(test_layers),
        cmocka_unit_test(test_builtins), cmocka_unit_test(test_limits),        cmocka_unit_test(test_source),
        cmocka_unit_test(test_ropes),    cmocka_unit_test(test_shared_tables), cmocka_unit_test(test_files),
        cmocka_unit_test(test_modules),  cmocka_unit_test(test_no_descriptor), cmocka_unit_test(test_checkouts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
