/* test_stored.c - checkpoints that were quantised before: their numbers bit for bit as stored/make.py multiplies them out,
 * the form in which codes are kept, and what is refused. */
#include "files.h"

#include <jansson.h>
#include <math.h>

#include "compiler/weights/stored.h"

enum { ROWS = 32, COLUMNS = 128 };

static const struct {
    const char *name;
    CodedForm form; /* NONE: the matrices become numbers */
} cases[] = {
    {"gptq", {DT_INT4, PACKED_FP16_ZEROS, 32}},
    {"gptq-sym", {DT_INT4, PACKED_FP16, 128}},
    {"gptq-v2", {DT_INT4, PACKED_FP16_ZEROS, 64}},
    {"gptq-8", {DT_INT8, PACKED_FP16_ZEROS, 32}},
    {"gptq-row", {DT_INT4, PACKED_FP16_ZEROS, 128}},
    {"gptq-256", {DT_INT4, PACKED_FP16_ZEROS, 128}},
    {"gptq-bf16", {DT_INT4, PACKED_FP32_MINIMA, 32}},
    {"awq", {DT_INT4, PACKED_FP16_ZEROS, 32}},
    {"awq-old", {DT_INT4, PACKED_FP16_ZEROS, 64}},
    {"pack", {DT_INT4, PACKED_FP32, 32}},
    {"pack-zeros", {DT_INT4, PACKED_FP16_ZEROS, 64}},
    {"pack-8", {DT_INT8, PACKED_FP32, 128}},
    {"pack-8-zeros", {DT_INT8, PACKED_FP32_MINIMA, 128}},
    {"int8", {DT_INT8, PACKED_FP32, 128}},
    {"int8-zeros", {DT_INT8, PACKED_FP16_ZEROS, 128}},
    {"float", {DT_FP8, PACKED_FP16, 128}}, /* scales of bf16, which fp16 has */
    {"float-tensor", {DT_FP8, PACKED_FP32, 128}},
    {"float-block", {DT_FP8, PACKED_FP32, 64}},
    {"float-group", {DT_FP8, PACKED_FP32, 32}},
    {"fp8", {DT_FP8, PACKED_FP32, 128}},
    {"fp8-block", {DT_FP8, PACKED_FP32, 16}},
    {"fp8-inv", {DT_FP8, PACKED_FP32, 128}},
    {"bitnet", {DT_INT4, PACKED_FP32, 128}},
    {"bitnet-old", {DT_INT4, PACKED_FP32, 128}},
};

static float *read_floats(const char *name, size_t n)
{
    float *f = malloc(n * sizeof *f);
    char path[200];
    FILE *in;

    snprintf(path, sizeof path, "tests/weights/stored/%s/want.bin", name);
    in = fopen(path, "rb");
    assert_non_null(in);
    assert_int_equal(fread(f, sizeof *f, n, in), n);
    assert_int_equal(fgetc(in), EOF);
    fclose(in);
    return f;
}

/* The codes of weight w, as rows of `of`. */
static Id coded_value(Graph *g, Id w, Id of)
{
    const Value *v = ir_value(g, w), *rows = ir_value(g, of);
    const Id id = add_value(g, OP_QUANTISE, of, 0, 0, rows->shape.dim[0].n, rows->shape.dim[1].n);

    ir_attr_word(g, id, "to", ir_word(v, "codes"));
    ir_attr_int(g, id, "group", ir_int(v, "group"));
    ir_attr_int(g, id, "scales", ir_int(v, "scales"));
    ir_attr_int(g, id, "stored", 1);
    return id;
}

static void check_values(const Checkpoint *c, const Spec *spec, Id id, Arena *keep, const float *want, const char *what)
{
    Diag d = {0};
    float *got;
    size_t n;

    if (!weights_value(c, spec, id, keep, &got, &n, &d))
        fail_msg("%s: %s", what, d.text);
    for (size_t i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("%s: element %zu is %.9g, expected %.9g", what, i, (double)got[i], (double)want[i]);
}

/* Every matrix as numbers, and those that keep their codes also by way of the codes. */
static void values(void **state)
{
    (void)state;
    for (size_t i = 0; i < LEN(cases); i++) {
        float *want = read_floats(cases[i].name, 2 * ROWS * COLUMNS);
        Spec spec = {.graph = ir_graph_new("tiny")};
        Arena *keep = arena_open();
        char path[200];
        Checkpoint *c;
        Diag d = {0};

        snprintf(path, sizeof path, "tests/weights/stored/%s", cases[i].name);
        if (!checkpoint_open(path, keep, &c, &d))
            fail_msg("%s", d.text);
        assert_non_null(checkpoint_stored(c));
        assert_non_null(strstr(checkpoint_stored(c), cases[i].form.type
                                                         ? ": 2 matrices are codes with scales"
                                                         : ": 2 become numbers of the type of the other weights"));
        for (int m = 0; m < 2; m++) {
            const int64_t columns = strcmp(cases[i].name, "gptq-256") == 0 ? 512 : COLUMNS; /* groups of 256 */
            const Id id = add_weight(spec.graph, m ? "b.weight" : "a.weight", ROWS * COLUMNS / columns, columns);

            checkpoint_mark(c, &spec);
            assert_string_equal(ir_word(ir_value(spec.graph, id), "codes"),
                                cases[i].form.type ? dtype_name(cases[i].form.type) : "");
            check_values(c, &spec, id, keep, want + m * ROWS * COLUMNS, cases[i].name);
            if (!cases[i].form.type)
                continue;
            assert_int_equal(ir_int(ir_value(spec.graph, id), "group"), cases[i].form.group);
            assert_int_equal(ir_int(ir_value(spec.graph, id), "scales"), cases[i].form.scales);
            check_values(c, &spec, coded_value(spec.graph, id, id), keep, want + m * ROWS * COLUMNS, cases[i].name);
        }
        assert_true(checkpoint_check(c, &spec, &d)); /* every other tensor is used */
        checkpoint_close(c);
        ir_graph_close(spec.graph);
        arena_close(keep);
        free(want);
    }
}

/* The experts of gpt-oss: as the class has them, transposed too, and bf16 holds all of them. */
static void experts(void **state)
{
    enum { X = 2, N = 32, K = 128 };
    float *want = read_floats("mxfp4", X * N * K), *turned = malloc(sizeof *turned * X * N * K);
    Spec spec = {.graph = ir_graph_new("tiny")};
    Arena *keep = arena_open();
    Checkpoint *c;
    Diag d = {0};
    const Id id = add_weight(spec.graph, "a", X * K, N);
    const Id transposed = add_value(spec.graph, OP_TRANSPOSE, id, 0, 0, X * N, K);
    (void)state;

    ir_attr_int(spec.graph, id, "stack", X);
    ir_attr_int(spec.graph, transposed, "stack", X);
    if (!checkpoint_open("tests/weights/stored/mxfp4", keep, &c, &d))
        fail_msg("%s", d.text);
    check_values(c, &spec, id, keep, want, "mxfp4");
    assert_true(checkpoint_check(c, &spec, &d));
    for (int x = 0; x < X; x++)
        for (int n = 0; n < N; n++)
            for (int k = 0; k < K; k++)
                turned[(x * N + n) * K + k] = want[(x * K + k) * N + n];
    check_values(c, &spec, transposed, keep, turned, "mxfp4 transposed");
    checkpoint_mark(c, &spec);
    assert_true(ir_int(ir_value(spec.graph, id), "across"));
    check_values(c, &spec, coded_value(spec.graph, id, transposed), keep, turned, "mxfp4 by its codes");
    for (int i = 0; i < X * N * K; i++)
        assert_true(bf16_to_float(bf16_from_float(want[i])) == want[i]);
    checkpoint_close(c);
    ir_graph_close(spec.graph);
    arena_close(keep);
    free(want);
    free(turned);
}

/* --- refused ------------------------------------------------------------------------------------------------ */

/* A checkpoint of tensors of zeros, "name type rows,columns;..."; behind I64 perhaps its numbers: "2=16,64". said: the line
 * that the summary has of it, or NULL. */
static bool apply_said(const char *config, const char *tensors, char said[400], Diag *d)
{
    static unsigned char data[1 << 16];
    Arena *keep = arena_open();
    Checkpoint *c;
    char header[4000] = "{", path[256];
    size_t n = 1, bytes = 0;
    json_error_t why;
    json_t *json = json_loads(config, 0, &why);
    bool ok;

    assert_non_null(json);
    for (const char *at = tensors; *at; at += strcspn(at, ";"), at += *at == ';') {
        char name[64], type[16], shape[64];
        size_t elements = 1;

        assert_int_equal(sscanf(at, "%63s %15s %63[0-9,]", name, type, shape), 3);
        for (const char *s = shape; *s; s += strcspn(s, ","), s += *s == ',')
            elements *= (size_t)atoi(s);
        elements *= strcmp(type, "I64") == 0                           ? 8
                    : strstr(type, "32")                               ? 4
                    : strcmp(type, "F16") == 0 || strstr(type, "BF16") ? 2
                                                                       : 1;
        n += (size_t)snprintf(header + n, sizeof header - n,
                              "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", n > 1 ? "," : "",
                              name, type, shape, bytes, bytes + elements);
        at += strcspn(at, "=;");
        for (size_t i = 0; *at == '=' || *at == ','; i++) {
            char *end;
            const int64_t number = strtoll(at + 1, &end, 10);

            at = end;
            assert_true(bytes + 8 * i + 8 <= sizeof data);
            memcpy(data + bytes + 8 * i, &number, 8);
        }
        bytes += elements;
    }
    snprintf(header + n, sizeof header - n, "}");
    strcpy(path, temp_path("stored.safetensors"));
    assert_true(bytes <= sizeof data);
    write_safetensors(path, header, data, bytes);
    memset(data, 0, bytes);
    if (!checkpoint_open(path, keep, &c, d))
        fail_msg("%s", d->text);
    ok = stored_apply(c, json, "config.json", keep, d);
    if (ok && said)
        snprintf(said, 400, "%s", checkpoint_stored(c));
    checkpoint_close(c);
    json_decref(json);
    arena_close(keep);
    return ok;
}

static bool apply(const char *config, const char *tensors, Diag *d)
{
    return apply_said(config, tensors, NULL, d);
}

#define GPTQ "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32"
#define AWQ "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32"
#define PACK "{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\""
#define SCHEME(of) PACK ",\"config_groups\":{\"x\":{\"weights\":{" of "}}}}"
#define FP8 "{\"quant_method\":\"fp8\""
#define BITNET "{\"quant_method\":\"bitnet\""
#define MXFP4 "{\"quant_method\":\"mxfp4\"}"
#define CODES "a.weight_packed I32 16,8;a.weight_shape I64 2=16,64"
#define PACKED "a.weight_packed I32 16,8;a.weight_shape I64 2;a.weight_scale F16 16,2"

static void refused(void **state)
{
    static const struct {
        const char *config, *tensors, *reason;
    } bad[] = {
        {"{}", "", "has no \"quant_method\""},
        {"{\"quant_method\":\"new\"}", "", "the method \"new\" is not read; compile the original"},
        {BITNET "}", "a.weight U8 8,64", "has no \"a.weight_scale\" beside it"},
        {BITNET "}", "a.weight U8 8,64;a.weight_scale F32 2", "does not have one element"},
        {BITNET "}", "a.weight U8 64;a.weight_scale F32 1", "is not a matrix"},
        {BITNET ",\"linear_class\":\"other\"}", "", "\"linear_class\" must be bitlinear or autobitlinear"},
        {BITNET ",\"linear_class\":\"autobitlinear\",\"quantization_mode\":\"online\"}", "",
         "quantization_mode \"online\" rounds the weights at each step"},
        {BITNET ",\"use_rms_norm\":true}", "", "use_rms_norm is not computed"},
        {"{\"quant_method\":\"bitsandbytes\"}", "", "bitsandbytes is not read: its values are indices of a table"},
        {"{\"quant_method\":\"torchao\"}", "", "torchao is not read: its tensors are pickled classes; compile the"},
        {"{\"quant_method\":\"hqq\"}", "", "hqq is not read"},
        {"{\"quant_method\":\"modelopt\"}", "", "modelopt is not read: save the model with quant_method fp8"},
        {GPTQ ",\"bits\":3}", "", "GPTQ with bits 3 is not read, only 4 and 8; compile the original checkpoint"},
        {GPTQ ",\"group_size\":\"x\"}", "", "\"group_size\" must be a whole number"},
        {GPTQ ",\"checkpoint_format\":\"marlin\"}", "", "GPTQ's format \"marlin\" is not read"},
        {GPTQ ",\"dynamic\":{\"-:x\":{},\"+:y\":{\"bits\":8}}}", "",
         "\"dynamic\" gives modules that match \"+:y\" bits and groups of their own, which is not read; compile"},
        {GPTQ "}", "a.qweight I32 8,16", "tensor \"a.qweight\" has no \"a.scales\" beside it"},
        {GPTQ "}", "a.qweight I8 8,16", "tensor \"a.qweight\" is stored as I8, expected I32"},
        {GPTQ "}", "a.qweight I32 8", "tensor \"a.qweight\" is not a matrix"},
        {GPTQ "}", "a.qweight I32 8,16;a.scales F16 2,16", "has no \"a.qzeros\" beside it"},
        {GPTQ "}", "a.qweight I32 8,16;a.scales I8 2,16", "\"a.scales\" is stored as I8, expected F16 BF16 F32"},
        {GPTQ "}", "a.qweight I32 8,16;a.scales F16 3,16;a.qzeros I32 2,2", "\"a.scales\" is [3,16], expected [2,16]"},
        {GPTQ "}", "a.qweight I32 8,16;a.scales F16 2,16;a.qzeros I32 2,3", "\"a.qzeros\" is [2,3], expected [2,2]"},
        {GPTQ "}", "a.qweight I32 9,16;a.scales F16 2,16;a.qzeros I32 2,2", "group_size 32 must divide a row"},
        {GPTQ "}", "a.qweight I32 8,12;a.scales F16 2,12;a.qzeros I32 2,1",
         "group_size 32 must divide a row, 8 the rows"},
        {GPTQ ",\"group_size\":8}", "a.qweight I32 8,16;a.scales F16 8,16;a.qzeros I32 8,2",
         "has groups of 8 elements; 16 must divide a group"},
        {GPTQ "}", "a.qweight I32 8,16;a.scales F16 2,16;a.qzeros I32 2,2;a.g_idx I32 64",
         "tensor \"a.g_idx\" has group 0 at element 32: the elements of a group do not stand side by side (desc_act)"},
        {GPTQ "}", "a.qweight I32 8,16;a.scales F16 2,16;a.qzeros I32 2,2;a.g_idx I32 63", "does not have 64 elements"},
        {GPTQ ",\"desc_act\":true}", "a.qweight I32 8,16;a.scales F16 2,16;a.qzeros I32 2,2",
         "tensor \"a.qweight\" has no \"a.g_idx\" beside it, which desc_act asks for"},
        {GPTQ ",\"desc_act\":1}", "a.qweight I32 8,16;a.scales F16 2,16;a.qzeros I32 2,2",
         "\"desc_act\" must be true or false"},
        {AWQ ",\"bits\":8}", "", "AWQ with bits 8 is not read, only 4; compile the original checkpoint"},
        {AWQ ",\"version\":\"gemv\"}", "", "AWQ's version \"gemv\" is not read, only gemm"},
        {AWQ ",\"modules_to_not_convert\":[\"x\",\"mlp\"]}", "l.mlp.qweight I32 64,2",
         "tensor \"l.mlp.qweight\" has codes, yet modules_to_not_convert names \"mlp\""},
        {AWQ ",\"group_size\":\"x\"}", "", "\"group_size\" must be a whole number"},
        {AWQ "}", "a.qweight I32 64", "tensor \"a.qweight\" is not a matrix"},
        {AWQ "}", "a.qweight I8 64,2", "tensor \"a.qweight\" is stored as I8, expected I32"},
        {AWQ "}", "a.qweight I32 64,2;a.scales F16 2,15;a.qzeros I32 2,2", "\"a.scales\" is [2,15], expected [2,16]"},
        {PACK ",\"transform_config\":{\"a\":1}}", "",
         "\"transform_config\" rotates matrices, which is not read; compile"},
        {PACK ",\"sparsity_config\":{\"format\":\"sparse-24-bitmask\"}}", PACKED,
         "\"sparsity_config\" has the format \"sparse-24-bitmask\", which is not read, only dense; compile"},
        {PACK ",\"sparsity_config\":{\"format\":24}}", PACKED, "\"format\" must be a text"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"nvfp4-pack-quantized\"}", "",
         "the format \"nvfp4-pack-quantized\" of compressed-tensors is not read"},
        {PACK ",\"config_groups\":{\"x\":{\"format\":\"marlin-24\"}}}", "", "the format \"marlin-24\""},
        {PACK "}", "a.weight_packed I32 16,8", "has no \"a.weight_shape\" beside it"},
        {PACK "}", PACKED, "is [16,8], which is not 0 rows of 0 codes"},
        {PACK "}", "a.weight_packed I32 16,8;a.weight_shape I64 3;a.weight_scale F16 16,2",
         "and \"a.weight_shape\" are not a matrix and its shape"},
        {PACK "}", "a.weight_packed I32 128;a.weight_shape I64 2=16,64;a.weight_scale F16 16,2",
         "and \"a.weight_shape\" are not a matrix and its shape"},
        {PACK "}", "a.weight_packed I32 16,8;a.weight_shape I64 2=8,64;a.weight_scale F16 16,2",
         "is [16,8], which is not 8 rows of 64 codes"},
        {PACK "}", CODES, "has no \"a.weight_scale\" beside it"},
        {PACK "}", CODES ";a.weight_scale F16 16,2;a.weight_g_idx I32 64",
         "tensor \"a.weight_g_idx\" has group 0 at element 32: the elements of a group do not stand side by side "
         "(actorder)"},
        {SCHEME("\"actorder\":\"group\""), CODES ";a.weight_scale F16 16,2",
         "tensor \"a.weight_packed\" has no \"a.weight_g_idx\" beside it, which actorder asks for"},
        {SCHEME("\"actorder\":\"dynamic\""), CODES ";a.weight_scale F16 16,2", "which actorder asks for"},
        {SCHEME("\"actorder\":true"), CODES ";a.weight_scale F16 16,2", "which actorder asks for"},
        {PACK "}", CODES ";a.weight_scale F16 16,2;a.weight_zero_point I8 2,2", "is stored as I8, expected I32"},
        {PACK "}", CODES ";a.weight_scale F16 16,2;a.weight_zero_point I32 1,2", "is [1,2], expected [2,2]"},
        {SCHEME("\"num_bits\":\"4\""), CODES ";a.weight_scale F16 16,2", "\"num_bits\" must be a whole number"},
        {SCHEME("\"group_size\":\"x\""), CODES ";a.weight_scale F16 16,2", "\"group_size\" must be a whole number"},
        {SCHEME("\"symmetric\":1"), CODES ";a.weight_scale F16 16,2", "\"symmetric\" must be true or false"},
        {SCHEME("\"type\":4"), CODES ";a.weight_scale F16 16,2", "\"type\" must be a text"},
        {PACK "}", "a.weight I8 16", "tensor \"a.weight\" is not a matrix"},
        {PACK "}", "a.weight F8_E4M3 16,64", "has no \"a.weight_scale\" beside it"},
        {SCHEME("\"strategy\":1"), "a.weight F8_E4M3 16,64;a.weight_scale F16 16,1", "\"strategy\" must be a text"},
        {FP8 "}", "a.weight F8_E4M3 16;a.weight_scale F32 1", "tensor \"a.weight\" is not a matrix"},
        {PACK ",\"ignore\":[\"a\"]}", PACKED, "is quantised, yet \"ignore\" of quantization_config names its module"},
        {SCHEME("\"num_bits\":4"), "a.weight I8 16,64;a.weight_scale F16 16,1",
         "tensor \"a.weight\" has values of 8 bits (int), quantization_config says 4 (int)"},
        {SCHEME("\"group_size\":32"), "a.weight I8 16,64;a.weight_scale F16 16,1",
         "has groups of 64 elements, quantization_config says 32"},
        {SCHEME("\"symmetric\":false"), "a.weight I8 16,64;a.weight_scale F16 16,1",
         "has no zeros, quantization_config says symmetric=false"},
        {SCHEME("\"symmetric\":true"), "a.weight I8 16,64;a.weight_scale F16 16,1;a.weight_zero_point I8 16,1",
         "has zeros, quantization_config says symmetric=true"},
        {PACK "}", "a.weight I8 16,64;a.weight_scale F16 16,3", "has 3 groups, which do not divide the 64 elements"},
        {PACK "}", "a.weight I8 16,64;a.weight_scale F16 15,2", "\"a.weight_scale\" is [15,2], expected [16,2]"},
        {PACK "}", "a.weight I8 16,64;a.weight_scale F16 16,1;a.weight_zero_point I8 16,2",
         "is [16,2], expected [16,1]"},
        {PACK "}", "a.weight I8 16,40;a.weight_scale F16 16,1", "has groups of 40 elements; 16 must divide a group"},
        {PACK "}", "a.weight F8_E5M2 16,64;a.weight_scale F16 16,1", "is stored as F8_E5M2, expected F8_E4M3"},
        {SCHEME("\"type\":\"float\",\"strategy\":\"block\""), "a.weight F8_E4M3 16,64;a.weight_scale F16 1,1",
         "\"block_structure\" must be two sizes"},
        {FP8 ",\"fmt\":\"e5m2\"}", "", "fp8 of the kind \"e5m2\" is not read, only e4m3; compile the original"},
        {FP8 ",\"weight_block_size\":[128]}", "", "\"weight_block_size\" must be two sizes"},
        {FP8 ",\"weight_block_size\":[128,0]}", "", "\"weight_block_size\" must be two sizes"},
        {FP8 "}", "a.weight F8_E4M3 16,64", "has no \"a.weight_scale\" beside it"},
        {FP8 "}", "a.weight F8_E4M3 16,64;a.weight_scale F32 15", "is not [16,1]: a scale for each 1 x 64 elements"},
        {FP8 ",\"weight_block_size\":[16,16]}", "a.weight F8_E4M3 16,60;a.weight_scale_inv F32 1,3",
         "tensor \"a.weight_scale_inv\" is not [1,4]: a scale for each 16 x 16 elements"},
        {FP8 ",\"modules_to_not_convert\":[\"a\"]}", "a.weight F8_E4M3 16,64;a.weight_scale F32 1",
         "is stored as F8_E4M3, yet quantization_config leaves its module out"},
        {MXFP4, "a_blocks U8 2,4,3,15", "tensor \"a_blocks\" is not [experts, rows, K / 32, 16]"},
        {MXFP4, "a_blocks U8 2,4,3,16", "tensor \"a_blocks\" has no \"a_scales\" beside it"},
        {MXFP4, "a_blocks U8 2,4,3,16;a_scales U8 2,4,4",
         "tensor \"a_scales\" does not have a scale for each 16 bytes"},
    };
    (void)state;

    for (size_t i = 0; i < LEN(bad); i++) {
        Diag d = {0};

        if (apply(bad[i].config, bad[i].tensors, &d))
            fail_msg("%s was not refused: %s", bad[i].tensors, bad[i].config);
        if (!strstr(d.text, bad[i].reason))
            fail_msg("expected \"%s\" in: %s", bad[i].reason, d.text);
    }
}

/* A configuration may name a module that is not quantised; tensors that nothing reads are taken with their matrix. */
static void accepted(void **state)
{
    static const char *const good[][2] = {
        {GPTQ ",\"group_size\":-1}", "a.qweight I32 8,16;a.scales F16 1,16;a.qzeros I32 1,2;a.g_idx I32 64"},
        {GPTQ ",\"dynamic\":{},\"new\":[1]}", "b.weight F16 4,4"},
        {GPTQ ",\"dynamic\":{\"-:.*gate\":{}}}",
         "a.qweight I32 8,16;a.scales F16 2,16;a.qzeros I32 2,2;gate.weight F16 4,4"},
        {GPTQ ",\"desc_act\":true,\"static_groups\":true}", "a.qweight I32 8,16;a.scales F16 2,16;a.qzeros I32 2,2"},
        {GPTQ ",\"desc_act\":true,\"group_size\":-1}", "a.qweight I32 8,16;a.scales F16 1,16;a.qzeros I32 1,2"},
        {AWQ ",\"modules_to_not_convert\":null}", "a.qweight I32 64,2;a.scales F16 2,16;a.qzeros I32 2,2"},
        {SCHEME("\"num_bits\":4,\"group_size\":64,\"symmetric\":true"),
         CODES ";a.weight_scale F16 16,1;a.weight_g_idx I32 64"},
        {SCHEME("\"actorder\":\"weight\""), CODES ";a.weight_scale F16 16,2"},
        {SCHEME("\"actorder\":\"group\""), CODES ";a.weight_scale F16 16,1"}, /* one group: any order is this one */
        {PACK ",\"sparsity_config\":{}}", CODES ";a.weight_scale F16 16,2"},
        {PACK ",\"ignore\":[\"b\",7]}", "a.weight I8 16,64;a.weight_scale F16 16;b.weight F16 4,4"},
        {FP8 "}", "a.weight F8_E4M3 16,64;a.weight_scale F32 16;a.input_scale F32 1"},
        {FP8 ",\"weight_block_size\":null}", "a.weight F8_E4M3 16,64;a.weight_scale F32 16,1"},
    };
    (void)state;

    for (size_t i = 0; i < LEN(good); i++) {
        Diag d = {0};

        if (!apply(good[i][0], good[i][1], &d))
            fail_msg("%s", d.text);
    }
}

/* What of a checkpoint is not followed is said. */
static void said(void **state)
{
    static const char cache[] = "; its scales for the KV cache are not used: see precision.kv";
    static const char rows[] = "; its scheme for activations is not used: see precision.activations";
    static const struct {
        const char *config, *tensors;
        bool rows, cache;
    } checkpoints[] = {
        {FP8 "}", "a.weight F8_E4M3 16,64;a.weight_scale F32 16,1", false, false},
        {FP8 ",\"activation_scheme\":\"dynamic\"}", "a.weight F8_E4M3 16,64;a.weight_scale F32 16,1", true, false},
        {FP8 "}", "a.weight F8_E4M3 16,64;a.weight_scale F32 16,1;b.k_scale F32 1", false, true},
        {FP8 "}", "a.weight F8_E4M3 16,64;a.weight_scale F32 16,1;b.kv_scale F32 1", false, true},
        {FP8 "}", "a.weight F8_E4M3 16,64;a.weight_scale F32 16,1;a.output_scale F32 1", false, false},
        {PACK "}", "a.weight I8 16,64;a.weight_scale F16 16,1;b.v_scale F32 1", false, true},
        {PACK ",\"kv_cache_scheme\":{\"num_bits\":8}}", "a.weight I8 16,64;a.weight_scale F16 16,1", false, true},
        {BITNET "}", "a.weight U8 8,64;a.weight_scale F32 1", true, false},
        {PACK ",\"kv_cache_scheme\":null}", "a.weight I8 16,64;a.weight_scale F16 16,1", false, false},
    };
    (void)state;

    for (size_t i = 0; i < LEN(checkpoints); i++) {
        char line[400];
        Diag d = {0};

        if (!apply_said(checkpoints[i].config, checkpoints[i].tensors, line, &d))
            fail_msg("%s", d.text);
        if (checkpoints[i].rows != !!strstr(line, rows) || checkpoints[i].cache != !!strstr(line, cache))
            fail_msg("%s, %s: %s", checkpoints[i].config, checkpoints[i].tensors, line);
    }
}

/* What is no number is found where it is packed: a code of e4m3, a scale of MXFP4, as it lies and transposed, a scale and a
 * product of a zero of int8, whose codes are kept. */
static void not_finite(void **state)
{
    static const struct {
        const char *config, *header, *reason;
        unsigned char bytes[64];
        int64_t rows, columns;
        Op op; /* what is made of the weight */
    } bad[] = {
        {FP8 "}",
         "{\"a.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,16],\"data_offsets\":[0,32]},"
         "\"a.weight_scale\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[32,36]}}",
         "tensor \"a.weight\": element [1,2] is NaN",
         {[18] = 0xff, [34] = 0x80, [35] = 0x3f},
         2,
         16,
         OP_WEIGHT},
        {FP8 "}",
         "{\"a.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,16],\"data_offsets\":[0,32]},"
         "\"a.weight_scale\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[32,36]}}",
         "tensor \"a.weight\": element [1,2] is NaN",
         {[17] = 0x7e, [18] = 0x7f, [34] = 0x80, [35] = 0x3f},
         2,
         16,
         OP_QUANTISE},
        {MXFP4,
         "{\"a.weight_blocks\":{\"dtype\":\"U8\",\"shape\":[1,2,1,16],\"data_offsets\":[0,32]},"
         "\"a.weight_scales\":{\"dtype\":\"U8\",\"shape\":[1,2,1],\"data_offsets\":[32,34]}}",
         "tensor \"a.weight\": element [0,0,1] is NaN",
         {[16] = 2, [33] = 0xff},
         32,
         2,
         OP_WEIGHT},
        {MXFP4,
         "{\"a.weight_blocks\":{\"dtype\":\"U8\",\"shape\":[1,2,1,16],\"data_offsets\":[0,32]},"
         "\"a.weight_scales\":{\"dtype\":\"U8\",\"shape\":[1,2,1],\"data_offsets\":[32,34]}}",
         "tensor \"a.weight\": element [0,0,1] is NaN",
         {[16] = 2, [33] = 0xff},
         32,
         2,
         OP_TRANSPOSE},
        {PACK "}",
         "{\"a.weight\":{\"dtype\":\"I8\",\"shape\":[2,16],\"data_offsets\":[0,32]},"
         "\"a.weight_scale\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[32,40]}}",
         "tensor \"a.weight\": element [1,0] is infinity",
         {[38] = 0x80, [39] = 0x7f},
         2,
         16,
         OP_QUANTISE},
        {PACK "}",
         "{\"a.weight\":{\"dtype\":\"I8\",\"shape\":[2,16],\"data_offsets\":[0,32]},"
         "\"a.weight_scale\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[32,40]},"
         "\"a.weight_zero_point\":{\"dtype\":\"I8\",\"shape\":[2,1],\"data_offsets\":[40,42]}}",
         "tensor \"a.weight\": element [1,0] is infinity",
         {[36] = 0xff, [37] = 0xff, [38] = 0x7f, [39] = 0x7f, [40] = 1, [41] = 1}, /* the largest number, times 129 */
         2,
         16,
         OP_QUANTISE},
    };
    static const size_t ends[LEN(bad)] = {36, 36, 34, 34, 40, 42}; /* bytes of the data */
    (void)state;

    for (size_t i = 0; i < LEN(bad); i++) {
        Spec spec = {.graph = ir_graph_new("tiny")};
        Arena *keep = arena_open();
        json_error_t why;
        json_t *config = json_loads(bad[i].config, 0, &why);
        char path[256];
        Checkpoint *c;
        Diag d = {0};
        Id id = add_weight(spec.graph, "a.weight", bad[i].rows, bad[i].columns);
        float *got;
        size_t n;

        strcpy(path, temp_path("nan.safetensors"));
        write_safetensors(path, bad[i].header, bad[i].bytes, ends[i]);
        assert_true(checkpoint_open(path, keep, &c, &d) && stored_apply(c, config, "config.json", keep, &d));
        checkpoint_mark(c, &spec);
        if (bad[i].op == OP_QUANTISE)
            id = coded_value(spec.graph, id, id);
        if (bad[i].op == OP_TRANSPOSE) {
            id = add_value(spec.graph, OP_TRANSPOSE, id, 0, 0, bad[i].columns, bad[i].rows);
            ir_attr_int(spec.graph, id, "stack", 1);
        }
        assert_false(weights_value(c, &spec, id, keep, &got, &n, &d));
        if (!strstr(d.text, bad[i].reason))
            fail_msg("expected \"%s\" in: %s", bad[i].reason, d.text);
        checkpoint_close(c);
        json_decref(config);
        ir_graph_close(spec.graph);
        arena_close(keep);
    }
}

/* Scales of MXFP4 are fp16 where fp16 has all of them; a scale that is NaN is found by way of the codes, too. */
static void mxfp4_scales(void **state)
{
    static const unsigned char exponents[] = {103, 104, 143, 144, 255};
    (void)state;

    for (size_t i = 0; i < LEN(exponents); i++) {
        const unsigned char e = exponents[i];
        unsigned char data[34] = {[0] = 0x72, [17] = 0xf9, [32] = 120, [33] = e};
        Spec spec = {.graph = ir_graph_new("tiny")};
        Arena *keep = arena_open();
        json_error_t why;
        json_t *config = json_loads(MXFP4, 0, &why);
        Checkpoint *c;
        Diag d = {0};
        const Id id = add_weight(spec.graph, "a.weight", 32, 2);
        const Id turned = add_value(spec.graph, OP_TRANSPOSE, id, 0, 0, 2, 32);
        char path[256];
        float *got, *want;
        size_t n;

        strcpy(path, temp_path("mxfp4.safetensors"));
        write_safetensors(path,
                          "{\"a.weight_blocks\":{\"dtype\":\"U8\",\"shape\":[1,2,1,16],\"data_offsets\":[0,32]},"
                          "\"a.weight_scales\":{\"dtype\":\"U8\",\"shape\":[1,2,1],\"data_offsets\":[32,34]}}",
                          data, sizeof data);
        ir_attr_int(spec.graph, turned, "stack", 1);
        assert_true(checkpoint_open(path, keep, &c, &d) && stored_apply(c, config, "config.json", keep, &d));
        checkpoint_mark(c, &spec);
        assert_int_equal(ir_int(ir_value(spec.graph, id), "scales"), e == 103 || e == 144 ? PACKED_FP32 : PACKED_FP16);
        if (e == 255) {
            assert_false(weights_value(c, &spec, coded_value(spec.graph, id, turned), keep, &got, &n, &d));
            assert_non_null(strstr(d.text, "tensor \"a.weight\": element [0,0,1] is NaN"));
        } else {
            assert_true(weights_value(c, &spec, turned, keep, &want, &n, &d) && want[1] == 6 * 0x1p-7f &&
                        want[35] == -6 * ldexpf(1, e - 127));
            check_values(c, &spec, coded_value(spec.graph, id, turned), keep, want, "mxfp4 by its codes");
        }
        checkpoint_close(c);
        json_decref(config);
        ir_graph_close(spec.graph);
        arena_close(keep);
    }
}

/* The form that holds codes of fp8 as they are: groups divide rows and blocks, scales are fp16 where fp16 has all of them. */
static void forms(void **state)
{
    static const struct {
        const char *block; /* rows and columns of a block; NULL: one scale */
        int rows, columns;
        float scale; /* of the last block; the others have 1 */
        CodedForm form;
    } kinds[] = {
        {NULL, 3, 256, 0.125f, {DT_FP8, PACKED_FP16, 128}},    {NULL, 3, 256, 0.1f, {DT_FP8, PACKED_FP32, 128}},
        {NULL, 3, 48, 0x1p-24f, {DT_FP8, PACKED_FP16, 16}},    {NULL, 3, 48, 0x1p-25f, {DT_FP8, PACKED_FP32, 16}},
        {NULL, 3, 24, 1, {DT_NONE, PACKED_FP16, 0}},           {"128,128", 130, 192, 3, {DT_FP8, PACKED_FP16, 64}},
        {"128,128", 1, 128, 3, {DT_FP8, PACKED_FP16, 128}},    {"2,40", 4, 80, 3, {DT_NONE, PACKED_FP16, 0}},
        {"1,96", 2, 384, 65536.0f, {DT_FP8, PACKED_FP32, 32}}, {"4,512", 4, 256, 2, {DT_FP8, PACKED_FP16, 128}},
    };
    static unsigned char data[1 << 16];
    (void)state;

    for (size_t i = 0; i < LEN(kinds); i++) {
        int rows = 1 << 20, columns = 1 << 20;
        char config[200], header[400], path[256];
        const int elements = kinds[i].rows * kinds[i].columns;
        Spec spec = {.graph = ir_graph_new("tiny")};
        const Id id = add_weight(spec.graph, "a.weight", kinds[i].rows, kinds[i].columns);
        Arena *keep = arena_open();
        const float one = 1;
        json_error_t why;
        json_t *json;
        Checkpoint *c;
        Diag d = {0};
        int down, across;

        if (kinds[i].block)
            assert_int_equal(sscanf(kinds[i].block, "%d,%d", &rows, &columns), 2);
        down = (kinds[i].rows + rows - 1) / rows;
        across = (kinds[i].columns + columns - 1) / columns;
        snprintf(config, sizeof config, FP8 "%s%s%s}", kinds[i].block ? ",\"weight_block_size\":[" : "",
                 kinds[i].block ? kinds[i].block : "", kinds[i].block ? "]" : "");
        snprintf(header, sizeof header,
                 "{\"a.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]},"
                 "\"a.weight_scale%s\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%d,%d]}}",
                 kinds[i].rows, kinds[i].columns, elements, kinds[i].block ? "_inv" : "", down, across, elements,
                 elements + 4 * down * across);
        for (int k = 0; k < elements; k++)
            data[k] = (unsigned char)(k % 127);
        for (int k = 0; k < down * across; k++)
            memcpy(data + elements + 4 * k, k + 1 < down * across ? &one : &kinds[i].scale, 4);
        strcpy(path, temp_path("forms.safetensors"));
        write_safetensors(path, header, data, (size_t)(elements + 4 * down * across));
        json = json_loads(config, 0, &why);
        if (!checkpoint_open(path, keep, &c, &d) || !stored_apply(c, json, "config.json", keep, &d))
            fail_msg("%s", d.text);
        checkpoint_mark(c, &spec);
        assert_string_equal(ir_word(ir_value(spec.graph, id), "codes"), kinds[i].form.type ? "fp8" : "");
        if (kinds[i].form.type) {
            float *want = malloc(sizeof *want * (size_t)elements);

            assert_int_equal(ir_int(ir_value(spec.graph, id), "group"), kinds[i].form.group);
            assert_int_equal(ir_int(ir_value(spec.graph, id), "scales"), kinds[i].form.scales);
            for (int k = 0; k < elements; k++) {
                const int block = k / kinds[i].columns / rows * across + k % kinds[i].columns / columns;

                want[k] = e4m3_to_float((uint8_t)(k % 127)) * (block + 1 < down * across ? 1 : kinds[i].scale);
            }
            check_values(c, &spec, coded_value(spec.graph, id, id), keep, want, "forms");
            free(want);
        }
        checkpoint_close(c);
        json_decref(json);
        ir_graph_close(spec.graph);
        arena_close(keep);
    }
}

/* int8 with one scale for the whole matrix. */
static void one_scale(void **state)
{
    Spec spec = {.graph = ir_graph_new("tiny")};
    const Id id = add_weight(spec.graph, "a.weight", 2, 16);
    const float scale = 0.25f;
    signed char bytes[36];
    float want[32];
    Arena *keep = arena_open();
    json_error_t why;
    json_t *config = json_loads(PACK "}", 0, &why);
    char path[256];
    Checkpoint *c;
    Diag d = {0};
    (void)state;

    for (int i = 0; i < 32; i++)
        want[i] = scale * (float)(bytes[i] = (signed char)(7 * i - 110));
    memcpy(bytes + 32, &scale, sizeof scale);
    strcpy(path, temp_path("one.safetensors"));
    write_safetensors(path,
                      "{\"a.weight\":{\"dtype\":\"I8\",\"shape\":[2,16],\"data_offsets\":[0,32]},"
                      "\"a.weight_scale\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[32,36]}}",
                      bytes, sizeof bytes);
    assert_true(checkpoint_open(path, keep, &c, &d) && stored_apply(c, config, "config.json", keep, &d));
    checkpoint_mark(c, &spec);
    check_values(c, &spec, id, keep, want, "one scale");
    check_values(c, &spec, coded_value(spec.graph, id, id), keep, want, "one scale, as codes");
    checkpoint_close(c);
    json_decref(config);
    ir_graph_close(spec.graph);
    arena_close(keep);
}

/* Files that may say how a checkpoint is quantised must be JSON. */
static void no_json(void **state)
{
    Arena *keep = arena_open();
    char path[256];
    Checkpoint *c;
    Diag d = {0};
    (void)state;

    strcpy(path, temp_path("model.safetensors"));
    write_safetensors(path, "{}", NULL, 0);
    write_text(temp_path("config.json"), "{\n\"quantization_config\": }");
    assert_false(checkpoint_open(path, keep, &c, &d));
    if (!strstr(d.text, "config.json:2: is not JSON"))
        fail_msg("%s", d.text);
    arena_close(keep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),     cmocka_unit_test(experts),   cmocka_unit_test(mxfp4_scales),
        cmocka_unit_test(refused),    cmocka_unit_test(accepted),  cmocka_unit_test(said),
        cmocka_unit_test(not_finite), cmocka_unit_test(one_scale), cmocka_unit_test(forms),
        cmocka_unit_test(no_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
