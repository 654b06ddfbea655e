/* test_ir.c - the graph's text form round-trips, the verifier names what is wrong, and mangled
 * text never does harm. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/ir/ir.h"

static const char *const model =
    "graph \"tiny \\\"one\\\"\"\n"
    "limits sequences=2 context=32 tokens=8 kv_block=4 kv_pages=16 logit_bias=0 end_ids=8\n"
    "%1 = ids : [T] i32\n"
    "%2 = weight {name=\"embed\"} : [10,8] bf16  ; \"specs/x.lua\":3\n"
    "%3 = embed %1 %2 : [T,8] fp32  ; \"specs/x.lua\":4\n"
    "%4 = weight {name=\"norm\"} : [8] bf16\n"
    "%5 = rmsnorm %3 %4 {eps=1e-05} : [T,8] fp32\n"
    "%6 = weight {name=\"qkv\"} : [16,8] bf16\n"
    "%7 = linear %5 %6 - : [T,16] fp32\n"
    "%8 = rope_table {positions=32 rot=4 theta=10000} : [32,2,2] fp32\n"
    "%9 = append %7 %8 - - {head_dim=4 heads=2 kv_heads=1 layer=0 rot=4} : [T,2,4] fp32\n"
    "%10 = attend_paged %9 - {kv_heads=1 layer=0 scale=0.5} : [T,8] fp32\n"
    "%11 = select_last %10 : [S,8] fp32\n"
    "%12 = linear %11 %2 - : [S,10] fp32\n"
    "%13 = sample %12 - : [S] i32\n"
    "output %13\n";

static char *printed(const Graph *g)
{
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);

    ir_print(g, f);
    fclose(f);
    return text;
}

static void round_trip(void **state)
{
    Diag d = {0};
    Graph *g = ir_parse("t.ir", model, &d);
    char *text;

    (void)state;
    assert_non_null(g);
    assert_true(ir_verify(g, &d));
    text = printed(g);
    /* [16,8] is append's [T,(2+2)*4]; what is printed is what was read */
    assert_string_equal(text, model);
    assert_int_equal(g->logits, 12);
    assert_int_equal(ir_int(ir_value(g, 10), "window"), 0);
    assert_string_equal(ir_word(ir_value(g, 8), "scaling"), "none");
    free(text);
    ir_graph_close(g);
}

/* The message for the model with the first `what` replaced by `with`. */
static const char *message(const char *what, const char *with)
{
    static Diag d;
    char *text = malloc(strlen(model) + strlen(with) + 1);
    const char *at = strstr(model, what);
    Graph *g;

    assert_non_null(at);
    memcpy(text, model, (size_t)(at - model));
    strcpy(text + (at - model), with);
    strcat(text, at + strlen(what));
    d = (Diag){0};
    g = ir_parse("t.ir", text, &d);
    if (g)
        ir_verify(g, &d);
    ir_graph_close(g);
    free(text);
    return d.text;
}

static void mistakes(void **state)
{
    (void)state;
    assert_string_equal(message("[10,8] bf16  ;", "[10,9] bf16  ;"),
                        "specs/x.lua:4: %3 = embed: the declared shape is [T,8], the op gives [T,9]");
    assert_string_equal(message("weight {name=\"norm\"} : [8]", "weight {name=\"norm\"} : [7]"),
                        "rmsnorm: g is [7], it must be [8]");
    assert_string_equal(message("%7 = linear %5 %6", "%7 = linear %5 %4"),
                        "linear: w is [8], it must have 2 dimensions");
    assert_string_equal(message("kv_heads=1 layer=0 rot=4", "kv_heads=1 layer=0 rot=2"),
                        "append: rot is 2, the table rotates 4");
    assert_string_equal(message("{eps=1e-05}", ""), "rmsnorm: eps is missing");
    assert_string_equal(message("{eps=1e-05}", "{eps=1 ops=2}"), "t.ir:7: rmsnorm has no attribute \"ops\"");
    assert_string_equal(message("rmsnorm %3", "rmsnorm %5"), "t.ir:7: %5 is not defined before %5");
    assert_string_equal(message("%9 = append", "%9 = upend"), "t.ir:11: no op is called \"upend\"");
    assert_string_equal(message("%3 = embed", "%4 = embed"), "t.ir:5: the next value must be %3, found %4");
    assert_string_equal(message("[T,8] fp32", "[T,8] fp31"), "t.ir:5: no type is called \"fp31\"");
    assert_string_equal(message("select_last %10", "select_last %10 %10"), "select_last takes 1 argument: x[T,D]");
    assert_string_equal(message("linear %11 %2 -", "linear %10 %2 -"),
                        "%12 = linear: the declared shape is [S,10], the op gives [T,10]");
    assert_string_equal(message("output %13", "output %12"), "");
    assert_string_equal(message("output %13", ""), "the graph has no output");
    assert_string_equal(message("sequences=2", "sequences=0"), "limits: sequences is 0, it must be 1 to 2147483647");
    assert_string_equal(message("tokens=8", "tokens=9999999999"),
                        "limits: tokens is 9999999999, it must be 1 to 2147483647");
}

/* Mistakes that the reader finds, before any op is checked. */
static void text_mistakes(void **state)
{
    (void)state;
    assert_string_equal(message("rmsnorm %3", "a234567890123456789012345678901x %3"),
                        "t.ir:7: op expected, found \"a2345678901234567890\"");
    assert_string_equal(message("context=32", "context=99999999999999999999"),
                        "t.ir:2: integer of 64 bits expected, found \"99999999999999999999\"");
    assert_string_equal(message("\"norm\"", "\"no\\x00rm\""),
                        "t.ir:6: character that is not NUL expected, found \"\\x00rm\"} : [8] bf16\"");
    assert_string_equal(message("{eps=1e-05}", "{eps=1 eps=2}"), "t.ir:7: attribute \"eps\" is given twice");
    assert_string_equal(message("[16,8]", "[0,8]"), "t.ir:8: a size is 0, it must be 1 to 2^40");
    assert_string_equal(message("[16,8]", "[1,2,3,4,5]"), "t.ir:8: ] expected, found \",5] bf16\"");
    assert_string_equal(message("weight {name=\"qkv\"}", "weight {name=\"qkv\" stack=3}"),
                        "weight: [16,8] cannot be a stack of 3");
    assert_string_equal(message("[16,8]", "[1,2,3,4]"), "weight: it must have 1 or 2 dimensions, not 4");
    assert_string_equal(message("output %13", "output %14"), "t.ir:16: output: the graph has no value %14");
    assert_string_equal(message("linear %11 %2 -", "linear %11 %2 - - - - - - -"), "t.ir:14: more than 8 arguments");
}

/* One more op after ids, weights, activations, a table and caches; each row has one mistake, if only its shape. */
static void op_mistakes(void **state)
{
    static const char head[] = "graph \"m\"\n"
                               "limits sequences=2 context=16 tokens=8 kv_block=8 kv_pages=4 logit_bias=0 end_ids=4\n"
                               "%1 = ids : [T] i32\n"
                               "%2 = weight {name=\"e\"} : [10,8] none\n"
                               "%3 = embed %1 %2 : [T,8] none\n"
                               "%4 = weight {name=\"g\"} : [7] none\n"
                               "%5 = rope_table {rot=4 theta=10000 positions=16} : [16,2,2] fp32\n"
                               "%6 = split_heads %3 {heads=2} : [T,2,4] none\n"
                               "%7 = cache %6 %6 {layer=0} : [T,2,4] none\n"
                               "%8 = cross_cache %6 %6 {layer=0} : [T,2,4] none\n"
                               "%9 = select_last %3 : [S,8] none\n"
                               "%10 = split_heads %9 {heads=2} : [S,2,4] none\n"
                               "%11 = split_heads %3 {heads=4} : [T,4,2] none\n"
                               "%12 = weight {name=\"f\"} : [7,8] fp32\n"
                               "%13 = linear %3 %12 - : [T,7] none\n"
                               "%14 = weight {name=\"h\"} : [12,8] none\n"
                               "%15 = linear %3 %14 - : [T,12] none\n"
                               "%16 = split_heads %15 {heads=3} : [T,3,4] none\n"
                               "%17 = weight {name=\"i\"} : [5,9] none\n"
                               "%18 = sample %9 : [S] i32\n"
                               "%19 = select_last %3 : [S,8] none\n"
                               "%20 = append %15 - {head_dim=4 heads=1 kv_heads=1 layer=0} : [T,1,4] none\n"
                               "%21 = ";
    static const struct {
        const char *op, *message;
    } rows[] = {
        {"linear %3 %3 -", "linear: w must be a weight, it is the result of embed"},
        {"linear %2 %2 -", "linear: x must be an activation, it is a weight"},
        {"linear %1 %2 -", "linear: x is [T], it must have 2 dimensions"},
        {"linear %3", "linear: w is missing"},
        {"act %3 {kind=\"cube\"}", "act: kind is \"cube\", it must be one of: "},
        {"act %3 {kind=3}", "string expected, found \"3}"},
        {"rmsnorm %3 %4 {eps=\"x\"}", "number expected, found \"\"x\""},
        {"rows %2 {from=1.5 count=2}", "attribute expected, found \".5 count"},
        {"scale %3 {by=1e999}", "is not finite"},
        {"embed %3 %2", "embed: ids is the result of embed, it must be ids"},
        {"concat %2 %4", "only the first size may differ"},
        {"pairs %2 {head_dim=4 rot=3}", "rot 3 must be even and head_dim 4 divide the rows"},
        {"pairs %2 {head_dim=4 rot=6}", "pairs: rot is 6, it must be 2 to 4"},
        {"sinusoid {dim=3 positions=4}", "sinusoid: dim is 3, it must be even"},
        {"rope_table {rot=3 theta=1 positions=4}", "rope_table: rot is 3, it must be even"},
        {"split_heads %3 {heads=3}", "it cannot be divided into 3 heads"},
        {"route %3 - {k=9}", "route: k is 9, it must be 1 to 8"},
        {"route %2 - {k=1}", "route: logits must be an activation, it is a weight"},
        {"route %3 %4 {k=1}", "route: bias is [7], it must be [8]"},
        {"route %3 - {k=2 sigmoid=1 chosen=1}", "route: the softmax over the chosen logits cannot be of sigmoids"},
        {"route %3 - {k=2 near=0.1}", "route: near is 0.1, it must be 0, or positive with chosen and without a bias"},
        {"route %3 - {k=2 groups=3}", "route: logits are [T,8]: groups 3 must divide the experts"},
        {"route %3 - {k=3 groups=4}", "groups 4 must divide the experts, and the 1 that are kept have at least k 3"},
        {"route %3 - {k=1 groups=4 groups_kept=5}", "route: groups_kept is 5, it must be 1 to 4"},
        {"expert_linear %3 %3 %2 - {experts=5}", "expert_linear: routes is [T,8] of embed, it must be that of route"},
        {"glu %4 {kind=\"silu\"}", "glu: x is [7], it must have 2 dimensions"},
        {"add %3 %7", "add: b is a cache, only attend reads one"},
        {"attend_packed %3 {heads=4 kv_heads=2 head_dim=4 scale=1}",
         "attend_packed: x is [T,8], it must be [T,(4+2*2)*4]"},
        {"attend_packed %3 {heads=2 kv_heads=3 head_dim=4 scale=1}", "kv_heads is 3, it must be 1 to 2"},
        {"attend_packed %3 {heads=2 kv_heads=1 head_dim=2 scale=1}", "the declared shape is [T,8], the op gives [T,4]"},
        {"weight {name=\"t\"}", "weight: the shape is [T,8], it must be of positive constants"},
        {"concat %2 %12", "concat: w is none, w is fp32; their types must be equal"},
        {"interleave %2 %12", "interleave: a is [10,8], b is [7,8]; they must be equal"},
        {"rows %2 {from=8 count=3}", "rows: count is 3, it must be 1 to 2"},
        {"sinusoid {dim=4 positions=0}", "sinusoid: positions is 0, it must be 1 to "},
        {"sinusoid {dim=4 positions=5}", "the declared shape is [T,8], the op gives [5,4]"},
        {"rope_table {rot=4 theta=1 positions=16 scaling=\"yarn\"}",
         "rope_table: scaling is \"yarn\", it must be one of: none linear llama3"},
        {"rope_table {rot=4 positions=16 freqs=\"1\"}", "rope_table: freqs are 1 numbers, they must be 2"},
        {"rope_table {rot=4 positions=16 freqs=\"1 0.5 x\"}", "rope_table: freqs has \"x\", it must be finite numbers"},
        {"rope_table {rot=4 positions=16 freqs=\"1 inf\"}", "rope_table: freqs has \"inf\", it must be finite numbers"},
        {"rows %2 {from=1 count=2 every=3}", "rows: w is [10,8], every 3 must divide its rows"},
        {"rows %2 {from=1 count=5 every=5}", "rows: count is 5, it must be 1 to 4"},
        {"rows %2 {from=0 count=1 every=11}", "rows: every is 11, it must be 0 to 10"},
        {"mul %3 %4", "mul: b must be an activation, it is a weight"},
        {"slice %3 {from=8 count=1}", "slice: from is 8, it must be 0 to 7"},
        {"slice %3 {from=6 count=3}", "slice: count is 3, it must be 1 to 2"},
        {"slice %2 {from=0 count=3}", "slice: x must be an activation, it is a weight"},
        {"join %3 %10", "join: b is [S,2,4], it must have 2 dimensions"},
        {"join %3 %2", "join: b must be an activation, it is a weight"},
        {"transpose %2 {stack=3}", "transpose: w is [10,8], stack 3 must divide its rows"},
        {"clamp %3 {low=2 high=2}", "clamp: low is 2, it must be less than high 2"},
        {"glu_clamped %3 {alpha=1 limit=0}", "glu_clamped: limit is 0, it must be positive"},
        {"glu_clamped %13 {alpha=1 limit=2}", "glu_clamped: x is [T,7], its rows must have an even length"},
        {"scale_by_position %3 {by=1 every=0}", "scale_by_position: every is 0, it must be 1 to "},
        {"route_weights %3", "route_weights: routes is the result of embed, it must be that of route"},
        {"slice_heads %6 {from=3 count=2}", "slice_heads: count is 2, it must be 1 to 1"},
        {"row_rms %3 {floor=-1}", "row_rms: floor is -1, it must not be negative"},
        {"row_rms %3 {centred=2}", "row_rms: centred is 2, it must be 0 to 1"},
        {"row_rms %6", "row_rms: x is [T,2,4], it must have 2 dimensions"},
        {"slice_heads %3 {from=0 count=1}", "slice_heads: x is [T,8], it must have 3 dimensions"},
        {"join_parts %11 %6", "join_parts: a is [T,4,2], b is [T,2,4]; b must have as many heads, or one"},
        {"head_linear %6 %2", "head_linear: x is [T,2,4], w is [10,8]: columns of w must be elements of a head"},
        {"head_linear %16 %2", "head_linear: x is [T,3,4], w is [10,8]: columns of w must be elements of a head"},
        {"head_linear %3 %2", "head_linear: x is [T,8], it must have 3 dimensions"},
        {"head_linear %6 %6", "head_linear: w must be a weight, it is the result of split_heads"},
        {"xielu %3 %4", "xielu: w is [7], it must be [3]"},
        {"previous %3 %2", "previous: w is [10,8], it must be [1,8]"},
        {"previous %9 %2", "previous: x is [S,"},
        {"neighbours %9 {count=3 from=-1}", "neighbours: x is [S,"},
        {"neighbours %3 {count=0 from=-1}", "neighbours: count is 0, it must be 1 to 64"},
        {"neighbours %3 {count=3 from=-65}", "neighbours: from is -65, it must be -64 to 64"},
        {"neighbours %3 {count=3 from=0 ring=2}", "neighbours: ring is 2, it must be 0 to 1"},
        {"norm_rows %2 %4 %4 {eps=1}", "norm_rows: g is [7], it must be [8]"},
        {"distance_heads %2 %2 - {heads=3 max_distance=5 reach=2}", "3 heads must divide the rows of w"},
        {"distance_heads %2 %2 - {heads=2 max_distance=6 reach=2}", "and r have 12 rows"},
        {"distance_heads %2 %2 - {heads=2 max_distance=7 buckets=5 reach=2}",
         "buckets is 5, it must be an even number"},
        {"attend %6 %6 %6 - - - %6 {scale=1 scope=\"full\"}",
         "attend: by_query and by_key stand together, by_key is missing"},
        {"attend %6 %6 %6 - - - %6 %6 {scale=1 scope=\"full\"}",
         "attend: by_query is [T,2,4], it must be [T,2,N] with an odd N"},
        {"cache %6 - {layer=0}", "cache: v_dim is 0, it must be 1 to 4"},
        {"cache %6 - {layer=0 v_dim=5}", "cache: v_dim is 5, it must be 1 to 4"},
        {"cache %6 %6 {layer=0 v_dim=4}", "cache: v_dim is for values inside the keys, v is given beside them"},
        {"cross_cache %6 - {layer=0}", "cross_cache: v is missing"},
        {"attend %6 %7 {layer=0 scale=1 v_dim=4}", "attend: v_dim is 4, that of the cache 0"},
        {"attend %6 %6 %6 {layer=0 scale=1 v_dim=4}",
         "attend: values that are inside the keys are not read with keys that are not in a cache"},
        {"join_parts %6 %10", "join_parts: b is [S,2,4], it must be [T,heads,head_dim]"},
        {"attend %6 %7 {layer=0 scale=1 rounded=1}", "attend: rounded is for slopes, there are none"},
        {"attend %6 %6 %6 {layer=0 scale=1 scope=\"full\" chunk=4}",
         "attend: chunk is for scope causal, the scope is full"},
        {"repeat %3 {times=2}", "repeat: w must be a weight, it is the result of embed"},
        {"repeat %2 {times=0}", "repeat: times is 0, it must be 1 to "},
        {"plus %3 {by=1}", "plus: w must be a weight, it is the result of embed"},
        {"plus %2 {by=1}", "plus: w is [10,8], it must have 1 dimension"},
        {"fill {count=0 value=1}", "fill: count is 0, it must be 1 to "},
        {"embed %1 %4", "embed: w is [7], it must have 2 dimensions"},
        {"positions %2 {offset=10}", "positions: offset is 10, it must be 0 to 9"},
        {"types %3", "types: w must be a weight, it is the result of embed"},
        {"linear %3 %2 %4", "linear: b is [7], it must be [10]"},
        {"rmsnorm %2 %4 {eps=1}", "rmsnorm: x must be an activation, it is a weight"},
        {"glu %13 {kind=\"silu\"}", "glu: x is [T,7], its rows must have an even length"},
        {"split_heads %6 {heads=2}", "split_heads: x is [T,2,4], it must have 2 dimensions"},
        {"join_heads %3", "join_heads: x is [T,8], it must have 3 dimensions"},
        {"join_heads %10", "join_heads: x is [S,2,4], it must be [T,heads,head_dim]"},
        {"join_heads %8", "join_heads: x are keys and values of a source, which only attend_cross reads"},
        {"rope %6 %3", "rope: table must be a weight, it is the result of embed"},
        {"append %3 %5 {layer=0 heads=2 kv_heads=1 head_dim=2 rot=4}",
         "append: table is [16,2,2], it must be [positions,rot/2,2] with rot at most head_dim 2"},
        {"append %3 - %4 {layer=0 heads=2 kv_heads=1 head_dim=2}", "append: qg and kg are given together, or neither"},
        {"append %3 - %4 %4 {layer=0 heads=2 kv_heads=1 head_dim=2}", "append: qg is [7], it must be [2]"},
        {"append %3 - {layer=0 heads=2 kv_heads=3 head_dim=2}", "append: kv_heads is 3, it must be 1 to 2"},
        {"append %3 - {layer=0 heads=4 kv_heads=2 head_dim=4}", "append: x is [T,8], it must be [T,(4+2*2)*4]"},
        {"attend %6 %6 {layer=0 scale=1}", "attend: cache is the result of split_heads, it must be that of cache"},
        {"attend %11 %7 {layer=0 scale=1}", "attend: q is [T,4,2], the cache holds [T,2,4]: head_dim must be equal"},
        {"attend %6 %7 {layer=1 scale=1}", "attend: layer is 1, that of the cache 0"},
        {"attend_paged %6 {layer=0 kv_heads=3 scale=1}", "attend_paged: kv_heads is 3, it must be 1 to 2"},
        {"attend_paged %11 {layer=0 kv_heads=3 scale=1}", "q is [T,4,2], kv_heads 3 must divide the heads"},
        {"attend %6 %6 %11 {scale=1}", "attend: k is [T,2,4], v is [T,4,2]; they must be equal"},
        {"attend %6 %11 %11 {scale=1 scope=\"full\"}", "attend: q is [T,2,4], k is [T,4,2]: head_dim must be equal"},
        {"attend %6 %6 %6 {scale=1 scope=\"source\"}", "scope source reads what cross_cache kept, it takes no v"},
        {"attend %6 %7 {layer=0 scale=1 scope=\"full\"}", "scope full cannot read a cache, which lacks later tokens"},
        {"attend %6 %6 %6 {scale=1 scope=\"half\"}", "scope is \"half\", it must be one of: causal full prefix source"},
        {"attend %6 %6 %6 {scale=1 scope=\"prefix\"}", "scope prefix reads a cache, it takes no v"},
        {"attend %6 %7 - %2 {layer=0 scale=1}", "bias is [10,8], it must be [2,P] with an odd P"},
        {"attend %6 %7 - %17 {layer=0 scale=1}", "bias is [5,9], it must be [2,P] with an odd P"},
        {"distance_bias %4 {max_distance=8}", "distance_bias: w is [7], it must have 2 dimensions"},
        {"distance_bias %2 {max_distance=2}", "w is [10,8], max_distance 2: a row for each of 4 buckets or more, and"},
        {"distance_bias %2 {max_distance=5 causal=1}", "max_distance above the 5 distances that have a bucket each"},
        {"distance_bias %2 {max_distance=1}", "distance_bias: max_distance is 1, it must be 2 to 1048576"},
        {"distance_bias %2 {max_distance=6 causal=2}", "distance_bias: causal is 2, it must be 0 to 1"},
        {"distance_bias %3 {max_distance=6}", "distance_bias: w must be a weight, it is the result of embed"},
        {"attend %6 %7 - - %6 {layer=0 scale=1}", "slopes must be a weight, it is the result of split_heads"},
        {"attend %6 %7 - - - %2 {layer=0 scale=1}", "sinks is [10,8], it must be [2]"},
        {"attend_paged %6 %20 {layer=1 kv_heads=1 scale=1}", "cache is [T,1,4] = append, it must be the cache"},
        {"attend_paged %6 %20 {layer=0 kv_heads=2 scale=1}", "cache is [T,1,4] = append, it must be the cache"},
        {"attend_paged %11 %20 {layer=0 kv_heads=1 scale=1}", "cache is [T,1,4] = append, it must be the cache"},
        {"attend_paged %6 %6 {layer=0 kv_heads=2 scale=1}", "cache is [T,2,4] = split_heads, it must be the cache"},
        {"rmsnorm %6 %2 {eps=0}", "rmsnorm: g is [10,8], it must be [4]"},
        {"cross_cache %5 %6 {layer=0}", "cross_cache: k must be an activation, it is a weight"},
        {"cross_append %6 {layer=0 kv_heads=1 head_dim=4}", "cross_append: x is [T,2,4], it must have 2 dimensions"},
        {"cross_append %3 {layer=0 kv_heads=2 head_dim=4}", "cross_append: x is [T,8], it must be [T,4*4]"},
        {"cross_append %3 {layer=0 kv_heads=1 head_dim=4}", "the declared shape is [T,8], the op gives [T,1,4]"},
        {"attend %3 %8 {layer=0 scale=1 scope=\"source\"}", "attend: q is [T,8], it must have 3 dimensions"},
        {"attend %6 %6 {layer=0 scale=1 scope=\"source\"}",
         "cross is the result of split_heads, it must be that of cross_cache"},
        {"attend %11 %8 {layer=0 scale=1 scope=\"source\"}", "q is [T,4,2], the cache holds [T,2,4]: head_dim must be"},
        {"attend %6 %8 {layer=0 scale=1 scope=\"source\" window=3}", "no window, bias or slopes"},
        {"attend %6 %8 {layer=1 scale=1 scope=\"source\"}", "attend: layer is 1, that of the source 0"},
        {"attend %6 %8 {layer=0 scale=1 scope=\"source\"}", "the declared shape is [T,8], the op gives [T,2,4]"},
        {"attend_cross %3 %8 {layer=0 heads=2 kv_heads=1 head_dim=4 scale=1}", "attend_cross: q has 2 heads of 4"},
        {"select_first %6", "select_first: x is [T,2,4], it must have 2 dimensions"},
        {"select_last %9", "select_last: x is [S,8], it must have a row for each token"},
        {"sample %6", "sample: logits is [T,2,4], it must have 2 dimensions"},
        {"sample %3", "sample: logits are [T,8], they must have a row for each sequence: select_last comes before"},
        {"mask %3", "mask: logits are [T,8], they must have a row for each sequence: select_last comes before"},
        {"sample %9 %18", "sample: masked is [S], it must be the mask of the same logits"},
        {"beam %9 %9", "beam: sampled is [S,8], it must have 1 dimension"},
        {"act %3 {kind=\"gelu\"}", "act: kind is \"gelu\", it must be one of: "},
        {"concat %2 %17", "concat: w is [10,8], w is [5,9]; only the first size may differ"},
        {"pairs %2 {head_dim=4 rot=2}", "pairs: w is [10,8], rot 2 must be even and head_dim 4 divide the rows"},
        {"attend %16 %7 {layer=0 scale=1}", "attend: q is [T,3,4], the cache holds [T,2,4]: head_dim must be equal"},
        {"attend_packed %13 {heads=3 kv_heads=2 head_dim=1 scale=1}",
         "attend_packed: x is [T,7], it must be [T,(3+2*2)*1]"},
        {"beam %19 %18", "beam: sampled is [S], it must be the sample of the same logits"},
        {"beam %9 %1", "beam: sampled is [T], it must be the sample of the same logits"},
    };

    (void)state;
    for (size_t i = 0; i < LEN(rows); i++) {
        char text[2000];
        Diag d = {0};
        Graph *g;

        snprintf(text, sizeof text, "%s%s : [T,8] none\noutput %%21\n", head, rows[i].op);
        g = ir_parse("m.ir", text, &d);
        if (g)
            ir_verify(g, &d);
        ir_graph_close(g);
        if (!strstr(d.text, rows[i].message))
            fail_msg("%s: \"%s\", expected \"%s\"", rows[i].op, d.text, rows[i].message);
    }
}

/* Of a recurrence; the right one is first. */
static void recurrence_mistakes(void **state)
{
    static const char head[] = "graph \"m\"\n"
                               "limits sequences=2 context=16 tokens=8 kv_block=8 kv_pages=4 logit_bias=0 end_ids=4\n"
                               "%1 = ids : [T] i32\n"
                               "%2 = weight {name=\"e\"} : [10,96] none\n"
                               "%3 = embed %1 %2 : [T,96] none\n"
                               "%4 = split_heads %3 {heads=2} : [T,2,48] none\n"
                               "%5 = split_heads %3 {heads=4} : [T,4,24] none\n"
                               "%6 = split_heads %3 {heads=3} : [T,3,32] none\n"
                               "%7 = split_heads %3 {heads=12} : [T,12,8] none\n"
                               "%8 = slice %3 {from=0 count=4} : [T,4] none\n"
                               "%9 = slice %3 {from=0 count=2} : [T,2] none\n"
                               "%10 = weight {name=\"r\"} : [4] none\n"
                               "%11 = weight {name=\"s\"} : [2] none\n"
                               "%12 = select_last %3 : [S,96] none\n"
                               "%13 = slice %12 {from=0 count=4} : [S,4] none\n"
                               "%14 = weight {name=\"l\"} : [272,96] none\n"
                               "%15 = linear %3 %14 - : [T,272] none\n"
                               "%16 = split_heads %15 {heads=1} : [T,1,272] none\n"
                               "%17 = split_heads %8 {heads=4} : [T,4,1] none\n"
                               "%18 = weight {name=\"a\"} : [4,96] none\n"
                               "%19 = split_heads %3 {heads=1} : [T,1,96] none\n"
                               "%20 = weight {name=\"b\"} : [4,48] none\n"
                               "%21 = recur ";
    static const struct {
        const char *arguments, *message;
    } rows[] = {
        {"%4 %4 %5 %8 %10 %10 %8 {layer=0 unit=1e-6 low=0.1 high=0.2}", "the output is %21 = recur"},
        {"%3 %4 %5 %8 %10 %10 - {layer=0}", "recur: q is [T,96], it must have 3 dimensions"},
        {"%7 %7 %5 %8 %10 %10 - {layer=0}",
         "recur: q is [T,12,8], its heads must have a multiple of 8 from 16 to 256 elements"},
        {"%4 %4 %16 %8 %10 %10 - {layer=0}", "recur: v is [T,1,272], its heads must have a multiple of 8 from 16"},
        {"%4 %6 %5 %8 %10 %10 - {layer=0}", "recur: q is [T,2,48], k is [T,3,32]; they must be equal"},
        {"%6 %6 %5 %8 %10 %10 - {layer=0}",
         "recur: q is [T,3,32], v is [T,4,24]: the heads of q must divide those of v"},
        {"%4 %4 %5 %9 %10 %10 - {layer=0}", "recur: a is [T,2], it must be [T,4], a number for each head of v"},
        {"%4 %4 %5 %13 %10 %10 - {layer=0}", "recur: a is [S,4], it must be [T,4], a number for each head of v"},
        {"%4 %4 %5 %8 %11 %10 - {layer=0}", "recur: rate is [2], it must be [4]"},
        {"%4 %4 %5 %8 %10 %8 - {layer=0}", "recur: shift must be a weight, it is the result of slice"},
        {"%4 %4 %5 %8 %10 %10 %9 {layer=0}", "recur: beta is [T,2], it must be [T,4], a number for each head of v"},
        {"%4 %4 %5 %8 %10 %10 %10 {layer=0}", "recur: beta must be an activation, it is a weight"},
        {"%4 %4 %5 %8 %10 %10 - {layer=0 unit=-1}", "recur: unit is -1, it must be 0 or positive"},
        {"%4 %4 %5 %8 %10 %10 - {layer=0 low=-1}", "recur: low is -1 and high 0: low must be 0 or positive"},
        {"%4 %4 %5 %8 %10 %10 - {layer=0 low=0.5 high=0.5}",
         "recur: low is 0.5 and high 0.5: low must be 0 or positive"},
        {"%4 %4 %5 %8 %10 %10 - {layer=-1}", "recur: layer is -1, it must be 0 to "},
        {"%4 %4 %5 %8 %10 - - {layer=0}", "recur: shift is missing"},
        {"%19 %19 %17 %8 %18 %10 - {layer=0 scale=0.5 high=1}", "the op gives [T,4,1]"},
        {"%19 %19 %17 %8 %20 %10 - {layer=0}", "recur: rate is [4,48], it must be [4] or [4,96]"},
        {"%19 %19 %17 %8 %3 %10 - {layer=0}", "recur: rate must be a weight"},
        {"%4 %4 %17 %8 %20 %10 - {layer=0}", "recur: q is [T,2,48], v is [T,4,1]: with a rate for each key q"},
        {"%19 %19 %5 %8 %18 %10 - {layer=0}", "recur: q is [T,1,96], v is [T,4,24]: with a rate for each key q"},
        {"%19 %19 %17 %8 %18 %10 %8 {layer=0}", "and there is no beta and no unit"},
        {"%19 %19 %17 %8 %18 %10 - {layer=0 unit=1}", "and there is no beta and no unit"},
        {"%19 %19 %17 %8 %10 %10 - {layer=0}", "recur: v is [T,4,1], its heads must have a multiple of 8 from 16"},
    };

    (void)state;
    for (size_t i = 0; i < LEN(rows); i++) {
        char text[2400];
        Diag d = {0};
        Graph *g;

        snprintf(text, sizeof text, "%s%s : [T,4,24] none\noutput %%21\n", head, rows[i].arguments);
        g = ir_parse("m.ir", text, &d);
        if (g && ir_verify(g, &d))
            diag_error(&d, (Loc){0}, "the output is %%21 = recur");
        ir_graph_close(g);
        if (!strstr(d.text, rows[i].message))
            fail_msg("%s: \"%s\", expected \"%s\"", rows[i].arguments, d.text, rows[i].message);
    }
}

/* Mistakes that the text form cannot express, but a caller of ir_infer can. */
static void asked(void **state)
{
    static const Attr wrong = {.name = "ops", .kind = ATTR_INT}, word = {.name = "eps", .kind = ATTR_WORD, .s = "x"};
    const struct {
        Op op;
        Id b;
        const Attr *attr;
        const char *message;
    } rows[] = {
        {OP_NONE, 0, NULL, "no such op"},
        {OP_ADD, 14, NULL, "add: %14 is not defined yet"},
        {OP_ADD, 99, NULL, "add: %99 is not defined yet"},
        {OP_RMSNORM, 4, &wrong, "rmsnorm has no attribute \"ops\"; it has: eps:f"},
        {OP_RMSNORM, 4, &word, "rmsnorm: eps must be a number"},
    };
    Diag d = {0};
    Graph *g = ir_parse("t.ir", model, &d);

    (void)state;
    for (size_t i = 0; i < LEN(rows); i++) {
        const Id args[IR_MAX_ARGS] = {rows[i].op ? 3 : 0, rows[i].b};
        Shape shape;
        DType type;

        d = (Diag){0};
        assert_false(
            ir_infer(g, rows[i].op, args, rows[i].attr, rows[i].attr ? 1 : 0, DT_FP32, (Loc){0}, &shape, &type, &d));
        assert_string_equal(d.text, rows[i].message);
    }
    ir_graph_close(g);
}

/* ir_sweep removes a dead value and renumbers: the rest prints as before. */
static void sweep(void **state)
{
    Diag d = {0};
    Graph *g = ir_parse("t.ir", model, &d);
    const Id two[IR_MAX_ARGS] = {3, 5};
    char *before, *after;

    (void)state;
    before = printed(g);
    ir_value_add(g, OP_ADD, two, ir_value(g, 3)->shape, DT_FP32, (Loc){0});
    ir_sweep(g);
    after = printed(g);
    assert_string_equal(before, after);
    free(before);
    free(after);
    ir_graph_close(g);
}

static const char encoder[] = "graph \"e\"\n"
                              "limits sequences=2 context=16 tokens=16 kv_block=8 kv_pages=0 logit_bias=0 end_ids=4\n"
                              "kind encoder\n"
                              "%1 = ids : [T] i32\n"
                              "%2 = weight {name=\"e\"} : [4294967296,8] none\n"
                              "%3 = embed %1 %2 : [T,8] none\n"
                              "%4 = scale %3 {by=2} : [T,8] none\n"
                              "%5 = scale %4 {by=3} : [T,8] none\n"
                              "%6 = scale %4 {by=5} : [T,8] none\n"
                              "%7 = select_first %6 : [S,8] none\n"
                              "facts clean\n"
                              "output %5\npooled %7\nentry %4\n";

/* Which values are read, and which lie behind the value that a caller may bring in place of ids. */
static void entry(void **state)
{
    static const uint32_t uses[] = {0, 1, 1, 1, 3, 1, 1, 1};
    Diag d = {0};
    Graph *g = ir_parse("e.ir", encoder, &d);
    const bool *after;

    (void)state;
    assert_non_null(g);
    assert_true(ir_verify(g, &d));
    assert_memory_equal(ir_uses(g) + 1, uses + 1, sizeof uses - sizeof *uses);
    after = ir_after_entry(g);
    for (Id v = 1; v < g->values.n; v++)
        assert_int_equal(after[v], v > 4);
    assert_int_equal(g->facts, IR_CLEAN);
    assert_false(g->facts & IR_PRECISE);
    assert_true(ir_value(g, 2)->shape.dim[0].n == INT64_C(1) << 32);
    ir_graph_close(g);
}

/* ir_sweep keeps an entry that nothing reads, and its output, logits and entry have their new numbers. */
static void sweep_roots(void **state)
{
    Diag d = {0};
    Graph *g = ir_parse("e.ir", encoder, &d);
    const Id from[IR_MAX_ARGS] = {3};

    (void)state;
    g->entry = ir_value_add(g, OP_SELECT_FIRST, from, (Shape){0}, DT_NONE, (Loc){0});
    g->pooled = 0;
    ir_sweep(g);
    assert_int_equal(g->values.n, 7);
    assert_int_equal(g->output, 5);
    assert_int_equal(g->entry, 6);
    assert_int_equal(ir_value(g, g->entry)->op, OP_SELECT_FIRST);
    ir_graph_close(g);

    g = ir_parse("d.ir",
                 "%1 = ids : [T] i32\n%2 = weight {name=\"e\"} : [10,8] fp32\n%3 = embed %1 %2 : [T,8] fp32\n"
                 "%4 = embed %1 %2 : [T,8] fp32\n%5 = select_last %4 : [S,8] fp32\n"
                 "%6 = linear %5 %2 - : [S,10] fp32\n%7 = sample %6 : [S] i32\noutput %7\n",
                 &d);
    ir_sweep(g);
    assert_int_equal(g->output, 6);
    assert_int_equal(g->logits, 5);
    ir_graph_close(g);
}

/* Keys and values of a source belong to the encoder, and so does all that they are made of. */
static void encoder_side(void **state)
{
    Diag d = {0};
    Graph *g =
        ir_parse("s.ir",
                 "kind seq2seq\n%1 = ids : [T] i32\n%2 = weight {name=\"e\"} : [10,8] fp32\n"
                 "%3 = embed %1 %2 : [T,8] fp32\n%4 = cross_append %3 {head_dim=4 kv_heads=1 layer=0} : [T,1,4] fp32\n"
                 "%5 = embed %1 %2 : [T,8] fp32\noutput %5\n",
                 &d);
    const bool *side;

    (void)state;
    assert_non_null(g);
    side = ir_encoder_side(g);
    assert_true(side[3] && side[4]);
    assert_false(side[5]);
    ir_graph_close(g);
}

/* A graph may have more values than 16 bits count. */
static void many(void **state)
{
    Graph *g = ir_graph_new("many");
    Id last = 0;

    (void)state;
    for (int i = 0; i < 70000; i++)
        last = ir_value_add(g, OP_IDS, NULL, (Shape){0}, DT_I32, (Loc){0});
    assert_int_equal(last, 70000);
    ir_graph_close(g);
}

/* Bytes changed at random: a graph or a message, never a crash; a graph that verifies round-trips. */
static void mangled(void **state)
{
    uint64_t seed = 1;

    (void)state;
    for (int i = 0; i < 3000; i++) {
        char *text = strdup(model);
        Diag d = {0};
        Graph *g;

        for (int k = 0; k < 1 + i % 4; k++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            text[(seed >> 33) % strlen(model)] = (char)(9 + (seed >> 20) % 118);
        }
        g = ir_parse("m.ir", text, &d);
        assert_true(g || d.failed);
        if (g && ir_verify(g, &d)) {
            char *one = printed(g), *two;
            Graph *again = ir_parse("m.ir", one, &d);

            assert_non_null(again);
            two = printed(again);
            assert_string_equal(one, two);
            free(one);
            free(two);
            ir_graph_close(again);
        }
        ir_graph_close(g);
        free(text);
    }
}

/* Every op's declared arguments and attributes can be read, and names are unique. */
static void table(void **state)
{
    char name[16];
    bool optional;
    AttrRule rule;

    (void)state;
    for (int op = 1; op < OP_COUNT; op++) {
        assert_int_equal(ir_op_parse(ir_op_name((Op)op)), op);
        for (int i = 0; ir_op_arg((Op)op, i, name, &optional); i++)
            assert_true(i < IR_MAX_ARGS && name[0]);
        for (int i = 0; ir_op_attr((Op)op, i, &rule); i++) {
            Value v = {.op = (Op)op};
            char declared[32];

            snprintf(declared, sizeof declared, "%s:", rule.name);
            assert_non_null(strstr(ir_op_attrs((Op)op), declared));

            if (!rule.required && rule.kind == ATTR_WORD)
                assert_string_equal(ir_word(&v, rule.name), rule.s);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(op_mistakes),
        cmocka_unit_test(asked),
        cmocka_unit_test(sweep),
        cmocka_unit_test(mangled),
        cmocka_unit_test(table),
        cmocka_unit_test(text_mistakes),
        cmocka_unit_test(entry),
        cmocka_unit_test(sweep_roots),
        cmocka_unit_test(encoder_side),
        cmocka_unit_test(many),
        cmocka_unit_test(recurrence_mistakes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
