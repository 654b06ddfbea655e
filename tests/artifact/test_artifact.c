/* test_artifact.c - what is written is read back, twice written is the same bytes, and no damaged
 * byte is believed. */
#include "small.h"

#include <sys/stat.h>

static unsigned char *read_whole(const char *path, size_t *bytes)
{
    FileMap map;
    FtxError err;
    unsigned char *p;

    if (file_map(path, &map, &err))
        fail_msg("%s", err.text);
    *bytes = map.bytes;
    p = aligned_alloc(64, (map.bytes + 63) / 64 * 64);
    assert_non_null(p);
    memcpy(p, map.at, map.bytes);
    file_unmap(&map);
    return p;
}

static void write_small(Small *s, const char *path)
{
    Diag d = {0};

    if (!artifact_write(path, &s->parts, NULL, NULL, &d))
        fail_msg("%s", d.text);
}

static void check_plans(const Artifact *a)
{
    assert_int_equal(a->n_plans, 3);
    for (uint32_t i = 0; i < a->n_plans; i++) {
        const ArtifactPlan *p = &a->plans[i];
        const FtxKernel *k = &p->kernels[0];
        const int64_t variables[VAR_COUNT] = {17, 2, 132};
        int64_t grid;
        double eps;

        assert_int_equal(p->head->target, small_targets[i]);
        assert_int_equal(p->n_kernels, 1);
        assert_int_equal(p->n_programs, 2);
        assert_int_equal(k->n_operands, 3);
        assert_string_equal(artifact_string(a, k->family), "linear");
        assert_int_equal(p->consts[k->first_const], 42);
        memcpy(&eps, &p->consts[k->first_const + 1], sizeof eps);
        assert_true(eps == 1e-5);
        assert_int_equal(expr_run(p->exprs + k->grid[0][0], k->grid[0][1], variables, VAR_COUNT, &grid, NULL), FTX_OK);
        assert_int_equal(grid, 3);
        assert_string_equal(artifact_string(a, p->launches[3].label), "layer 0: down");
        assert_int_equal(p->operands[p->launches[1].first_operand + 2].offset, 2048);
        assert_string_equal(artifact_string(a, p->buffers[2].name), "x");
        assert_int_equal(p->cubin != NULL, i > 0);
        assert_int_equal(p->source != NULL, i > 0);
    }
}

static void test_round_trip(void **state)
{
    const char *path = temp_path("round.ftx");
    Artifact a;
    FtxError err;
    Small s;
    (void)state;

    small_begin(&s);
    write_small(&s, path);
    if (artifact_open(path, &a, &err))
        fail_msg("%s", err.text);
    assert_int_equal(artifact_verify(&a, &err), FTX_OK);
    assert_string_equal(artifact_string(&a, a.facts->name), "small");
    assert_string_equal(a.spec, s.spec.text);
    assert_string_equal(a.build, "ftxc test\n");
    assert_int_equal(a.facts->vocab, 16);
    assert_int_equal(a.facts->parameters, 40);
    assert_memory_equal(&a.facts->decode, &s.spec.decode, sizeof s.spec.decode);
    assert_int_equal(a.n_bad_words, LEN(small_words));
    assert_memory_equal(a.bad_words, small_words, sizeof small_words);
    assert_int_equal(a.tokenizer_bytes, 6);
    assert_memory_equal(a.tokenizer, "tokens", 6);
    assert_int_equal((uintptr_t)a.weight_data % 4096, 0);
    assert_int_equal(a.n_weights, 4);
    assert_string_equal(artifact_string(&a, a.weights[2].name), "g");
    assert_true(dtype_load(artifact_weight(&a, 0), 8, DT_BF16) == 1.0f);
    assert_true(dtype_load(artifact_weight(&a, 2), 1, DT_FP32) == 33.0f / 8);
    assert_true(dtype_load(artifact_weight(&a, 3), 0, DT_FP32) == 1.0f);
    check_plans(&a);
    small_walk(&a);
    artifact_close(&a);
    small_end(&s);
}

/* Plans of one target keep their names, GPUs and kernels apart. */
static void test_plans_of_one_target(void **state)
{
    const char *path = temp_path("plans-of-one.ftx");
    static Plan plans[3];
    static Code codes[3];
    Artifact a;
    FtxError err;
    Small s;
    (void)state;

    small_begin(&s);
    for (size_t i = 0; i < LEN(plans); i++) {
        plans[i] = s.plans[i == 0 ? 0 : 1];
        codes[i] = s.codes[i == 0 ? 0 : 1];
    }
    plans[2].head.name = small_string(&s, &plans[2], "h200");
    plans[2].head.device = small_string(&s, &plans[2], "NVIDIA H200");
    plans[2].head.lower_bound = 4000;
    s.parts.plans = plans;
    s.parts.codes = codes;
    write_small(&s, path);
    if (artifact_open(path, &a, &err))
        fail_msg("%s", err.text);
    assert_int_equal(a.n_plans, 3);
    assert_string_equal(artifact_string(&a, a.plans[1].head->name), "sm_90a");
    assert_string_equal(artifact_string(&a, a.plans[1].head->device), "");
    assert_string_equal(artifact_string(&a, a.plans[2].head->name), "h200");
    assert_string_equal(artifact_string(&a, a.plans[2].head->device), "NVIDIA H200");
    assert_int_equal(a.plans[2].head->lower_bound, 4000);
    assert_ptr_not_equal(a.plans[1].kernels, a.plans[2].kernels);
    assert_ptr_not_equal(a.plans[1].cubin, a.plans[2].cubin);
    assert_ptr_equal(artifact_plan(&a, 901, "NVIDIA H200"), &a.plans[2]);
    assert_ptr_equal(artifact_plan(&a, 901, "NVIDIA H100 80GB HBM3"), &a.plans[1]);
    small_walk(&a);
    artifact_close(&a);
    small_end(&s);
}

/* A folder takes the artifact's place while its weights are written. */
static void make_folder(void *user, uint64_t done, uint64_t all)
{
    (void)done, (void)all;
    mkdir(user, 0700);
}

/* An artifact that cannot be put in its place leaves no sidecar. */
static void test_sidecar_goes(void **state)
{
    char path[256], beside[256];
    Diag d = {0};
    Small s;
    (void)state;

    strcpy(path, temp_path("goes.ftx"));
    strcpy(beside, temp_path("goes.ftxw"));
    small_begin(&s);
    s.parts.sidecar = true;
    assert_false(artifact_write(path, &s.parts, make_folder, path, &d));
    assert_int_equal(access(beside, F_OK), -1);
    assert_int_equal(rmdir(path), 0);
    small_end(&s);
}

/* More strings than their table has places at first; each is stored once; facts that a decoder does not use are kept. */
static void test_many_strings(void **state)
{
    enum { MANY = 1500 };
    const char *path = temp_path("many.ftx");
    const ArtifactPlan *p;
    Artifact a;
    FtxError err;
    Small s;
    (void)state;

    small_begin(&s);
    s.spec.pad = 5;
    s.spec.source_vocab = 9;
    for (int i = 0; i <= MANY; i++) {
        FtxBuffer b = s.plans[0].buffers.at[0];

        if (i < MANY)
            b.name = small_string(&s, &s.plans[0], arena_printf(s.keep, "buffer %d", i));
        *arena_push(s.keep, s.plans[0].buffers) = b;
    }
    write_small(&s, path);
    if (artifact_open(path, &a, &err))
        fail_msg("%s", err.text);
    p = &a.plans[0];
    assert_int_equal(p->n_buffers, 4 + MANY + 1);
    for (int i = 0; i < MANY; i++)
        assert_string_equal(artifact_string(&a, p->buffers[4 + i].name), arena_printf(s.keep, "buffer %d", i));
    assert_int_equal(p->buffers[4 + MANY].name, p->buffers[0].name);
    assert_int_equal(a.plans[1].buffers[0].name, p->buffers[0].name);
    assert_int_equal(a.facts->pad, 5);
    assert_int_equal(a.facts->source_vocab, 9);
    artifact_close(&a);
    small_end(&s);
}

static void test_same_bytes(void **state)
{
    unsigned char *a, *b;
    size_t m, n;
    Small s;
    (void)state;

    small_begin(&s);
    write_small(&s, temp_path("a.ftx"));
    a = read_whole(temp_path("a.ftx"), &m);
    small_end(&s);
    small_begin(&s);
    write_small(&s, temp_path("b.ftx"));
    b = read_whole(temp_path("b.ftx"), &n);
    small_end(&s);
    assert_int_equal(m, n);
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
}

static void test_without_weights(void **state)
{
    const char *path = temp_path("tables.ftx");
    Artifact a;
    FtxError err;
    Small s;
    (void)state;

    small_begin(&s);
    s.parts.checkpoint = NULL;
    s.parts.tokenizer = NULL;
    write_small(&s, path);
    if (artifact_open(path, &a, &err))
        fail_msg("%s", err.text);
    assert_int_equal(artifact_verify(&a, &err), FTX_OK);
    assert_null(a.weight_data);
    assert_null(a.tokenizer);
    assert_null(artifact_weight(&a, 0));
    assert_null(artifact_weight(&a, 2));
    for (uint32_t i = 1; i < 4; i += 2) { /* position 1, first pair: cos 1, sin 1 */
        assert_true(dtype_load(artifact_weight(&a, i), 0, DT_FP32) == 1.0f);
        assert_true(dtype_load(artifact_weight(&a, i), 4, DT_FP32) == 0.540302277f);
        assert_true(dtype_load(artifact_weight(&a, i), 5, DT_FP32) == 0.841470957f);
    }
    small_walk(&a);
    artifact_close(&a);
    small_end(&s);
}

/* Where the weights of a file of its own are not looked for: beside bytes in memory, in another folder, and beside a path
 * that leaves no room for their name. */
static void sidecar_names(const char *path)
{
    _Alignas(64) unsigned char copy[1 << 16];
    char long_path[4096], *name;
    FtxError err;
    FileMap map;
    Artifact a;

    assert_int_equal(file_map(path, &map, &err), FTX_OK);
    assert_true(map.bytes <= sizeof copy);
    assert_int_equal(artifact_open_bytes(map.at, map.bytes, &a, &err), FTX_EFORMAT);
    assert_string_equal(err.text, "its weights are in a file of their own, and it is in memory");
    memcpy(copy, map.at, map.bytes);
    name = memmem(copy, map.bytes, "beside.ftxw", 12);
    assert_non_null(name);
    name[0] = '/';
    small_seal(copy, map.bytes);
    assert_int_equal(file_write_whole(temp_path("s"), copy, map.bytes, &err), FTX_OK);
    assert_int_equal(artifact_open(temp_path("s"), &a, &err), FTX_EFORMAT);
    assert_non_null(strstr(err.text, "its weights are said to be in \"/eside.ftxw\", which is no plain file name"));

    assert_int_equal(file_write_whole(temp_path("s"), map.at, map.bytes, &err), FTX_OK);
    file_unmap(&map);
    snprintf(long_path, sizeof long_path, "%s", temp_path(""));
    for (size_t n = strlen(long_path); n < sizeof long_path - 4; n += 2)
        strcpy(long_path + n, "./");
    strcat(long_path, "s");
    assert_int_equal(artifact_open(long_path, &a, &err), FTX_EIO);
    assert_non_null(strstr(err.text, "the path of its weights is too long"));
}

static void test_sidecar(void **state)
{
    char path[256], beside[256];
    Artifact a;
    FtxError err;
    FILE *f;
    Small s;
    (void)state;

    strcpy(path, temp_path("beside.ftx"));
    strcpy(beside, temp_path("beside.ftxw"));
    small_begin(&s);
    s.parts.sidecar = true;
    write_small(&s, path);
    if (artifact_open(path, &a, &err))
        fail_msg("%s", err.text);
    assert_int_equal(artifact_verify(&a, &err), FTX_OK);
    assert_true(dtype_load(artifact_weight(&a, 0), 8, DT_BF16) == 1.0f);
    artifact_close(&a);

    f = fopen(beside, "r+b"); /* one weight of another model */
    assert_non_null(f);
    fputc(7, f);
    fclose(f);
    assert_int_equal(artifact_open(path, &a, &err), FTX_OK);
    assert_int_equal(artifact_verify(&a, &err), FTX_EFORMAT);
    assert_non_null(strstr(err.text, "beside.ftxw is damaged"));
    artifact_close(&a);

    sidecar_names(path);

    assert_int_equal(truncate(beside, 10), 0);
    assert_int_equal(artifact_open(path, &a, &err), FTX_EFORMAT);
    assert_non_null(strstr(err.text, "has 10 bytes of weights"));
    assert_int_equal(unlink(beside), 0);
    assert_int_equal(artifact_open(path, &a, &err), FTX_EIO);
    assert_non_null(strstr(err.text, "beside.ftxw"));
    small_end(&s);
}

/* A compile that fails over its weights leaves no file, nor a piece of one. */
/* Without a plan, and with more plans than a reader has room for. */
static void test_number_of_plans(void **state)
{
    static const struct {
        size_t n;
        const char *message;
    } cases[] = {
        {0, "it has no plan for any target"},
        {ARTIFACT_MAX_PLANS, NULL},
        {ARTIFACT_MAX_PLANS + 1, "it has more than 16 plans"},
    };
    const char *path = temp_path("plans.ftx");
    static Plan plans[ARTIFACT_MAX_PLANS + 1];
    static Code codes[ARTIFACT_MAX_PLANS + 1];
    Small s;
    (void)state;

    small_begin(&s);
    for (size_t i = 0; i < LEN(plans); i++) {
        plans[i] = s.plans[1];
        codes[i] = s.codes[1];
        plans[i].head.target = plans[i].target.id = 801 + 10 * (uint32_t)i;
    }
    s.parts.plans = plans;
    s.parts.codes = codes;
    for (size_t i = 0; i < LEN(cases); i++) {
        FtxError err = {0};
        Artifact a;

        s.parts.n_plans = cases[i].n;
        write_small(&s, path);
        assert_int_equal(artifact_open(path, &a, &err), cases[i].message ? FTX_EFORMAT : FTX_OK);
        if (cases[i].message && !strstr(err.text, cases[i].message))
            fail_msg("expected \"%s\" in: %s", cases[i].message, err.text);
        artifact_close(&a);
    }
    small_end(&s);
}

static void test_nothing_half_written(void **state)
{
    char path[256], command[400];
    Diag d = {0};
    Small s;
    (void)state;

    strcpy(path, temp_path("half.ftx"));
    small_begin(&s);
    ir_attr_word(s.spec.graph, s.packing.weights.at[2].value, "name", "h");
    s.parts.sidecar = true;
    s.parts.checkpoint = NULL;
    for (int sidecar = 0; sidecar < 2; sidecar++) {
        FILE *f = fopen(temp_path("nan.safetensors"), "wb");
        const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[4,8],\"data_offsets\":[0,128]},"
                              "\"h\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[128,160]}}";
        const uint64_t n = sizeof header - 1;
        const uint32_t nan = 0x7fc00000;
        Checkpoint *c;

        assert_non_null(f);
        fwrite(&n, 8, 1, f);
        fwrite(header, 1, n, f);
        for (int i = 0; i < 40; i++)
            fwrite(&nan, 4, 1, f);
        fclose(f);
        d = (Diag){0};
        assert_true(checkpoint_open(temp_path("nan.safetensors"), s.keep, &c, &d));
        s.parts.checkpoint = c;
        s.parts.sidecar = sidecar;
        assert_false(artifact_write(path, &s.parts, NULL, NULL, &d));
        assert_non_null(strstr(d.text, "tensor \"a\": element [0,0] is NaN"));
        snprintf(command, sizeof command, "! ls %s* 2>/dev/null | grep -q .", path);
        assert_int_equal(system(command), 0);
        checkpoint_close(c);
    }
    small_end(&s);
}

static void test_bad_words(void **state)
{
    static const struct {
        int32_t ids[6];
        uint32_t n;
        const char *why; /* NULL: they are fine */
    } cases[] = {
        {{0}, 0, NULL},
        {{~0, 1, 2, 3, ~15}, 5, NULL},
        {{~0, 1, 2, 3, 4, ~5}, 6, "its bad words have 6 ids, at most 5"},
        {{~0, 1}, 2, "its last bad word has no end"},
        {{~0, 16, ~1}, 3, "id 16 of its bad words is not below vocab 16"},
        {{~16}, 1, "id 16 of its bad words is not below vocab 16"},
        {{INT32_MIN}, 1, "id 2147483647 of its bad words is not below vocab 16"},
    };
    const char *path = temp_path("words.ftx");
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        Artifact a;
        FtxError err = {0};
        Small s;

        small_begin(&s);
        s.spec.bad_words = cases[i].ids;
        s.spec.n_bad_words = cases[i].n;
        write_small(&s, path);
        assert_int_equal(artifact_open(path, &a, &err), cases[i].why ? FTX_EFORMAT : FTX_OK);
        if (cases[i].why)
            assert_non_null(strstr(err.text, cases[i].why));
        else
            assert_int_equal(a.n_bad_words, cases[i].n);
        artifact_close(&a);
        small_end(&s);
    }
}

/* --- versions and plans ---------------------------------------------------------------------- */

static void test_versions(void **state)
{
    Small s;
    size_t n;
    unsigned char *p;
    FtxHeader *h;
    Artifact a;
    FtxError err;
    (void)state;

    small_begin(&s);
    write_small(&s, temp_path("version.ftx"));
    p = read_whole(temp_path("version.ftx"), &n);
    h = (FtxHeader *)p;
    h->format = FTX_FORMAT + 1;
    h->version_minor = 99;
    assert_int_equal(artifact_open_bytes(p, n, &a, &err), FTX_EVERSION);
    assert_non_null(strstr(err.text, "the artifact is newer: ftxc 0.99"));
    assert_non_null(strstr(err.text, "update libftx"));
    h->format = FTX_FORMAT - 1;
    assert_int_equal(artifact_open_bytes(p, n, &a, &err), FTX_EVERSION);
    assert_non_null(strstr(err.text, "the artifact is older"));
    assert_non_null(strstr(err.text, "make a new one: ftxc compile SPEC"));
    h->magic[0] = 'G';
    assert_int_equal(artifact_open_bytes(p, n, &a, &err), FTX_EFORMAT);
    assert_non_null(strstr(err.text, "not an ftx artifact"));
    free(p);
    small_end(&s);
}

/* Targets, and the GPUs that their plans are tuned for: 'H' H200, 'h' H100, ' ' any. */
static void test_plan_choice(void **state)
{
    static const struct {
        uint32_t have[4];
        const char *for_gpu;
        uint32_t want, got;
        size_t at;
    } cases[] = {
        {{0}, "    ", 0, 0, 0},
        {{0, 901}, "    ", 901, 901, 1},
        {{0, 800}, "    ", 800, 800, 1},
        {{0, 800}, "    ", 860, 800, 1},      /* a plain cubin runs on later devices of its major */
        {{0, 800, 860}, "    ", 890, 860, 2}, /* the highest of them */
        {{0, 860}, "    ", 800, 9999, 0},     /* and not on earlier ones */
        {{0, 800}, "    ", 901, 9999, 0},     /* nor on another major */
        {{0, 900}, "    ", 901, 900, 1},
        {{0, 901}, "    ", 1001, 9999, 0},     /* an `a` cubin is for one device */
        {{0, 901, 802}, "    ", 1001, 802, 2}, /* PTX serves what is later */
        {{802, 902}, "    ", 1201, 902, 1},
        {{802, 902}, "    ", 860, 802, 0},
        {{902}, "    ", 860, 9999, 0},
        {{802, 900}, "    ", 901, 900, 1}, /* code before text */
        {{802}, "    ", 0, 9999, 0},
        {{0, 901, 901, 901}, " h H", 901, 901, 3}, /* the GPU's own */
        {{0, 901, 901, 901}, " H h", 901, 901, 1},
        {{0, 901, 901}, " h  ", 901, 901, 2}, /* that for any */
        {{0, 901, 901}, "  h ", 901, 901, 1},
        {{901, 901}, "hh  ", 901, 901, 0},      /* the first: it runs there, too */
        {{900, 902, 901}, "HHh ", 901, 901, 2}, /* the target goes before the name */
        {{0, 901}, "H   ", 901, 901, 1},
    };
    (void)state;

    for (size_t i = 0; i < LEN(cases); i++) {
        FtxPlan heads[4] = {0};
        Artifact a = {.strings = "\0NVIDIA H200\0NVIDIA H100"};
        const ArtifactPlan *p;

        for (int k = 0; k < 4 && (k == 0 || cases[i].have[k]); k++) {
            heads[k].target = cases[i].have[k];
            heads[k].device = cases[i].for_gpu[k] == 'H' ? 1 : cases[i].for_gpu[k] == 'h' ? 13 : 0;
            a.plans[a.n_plans++].head = &heads[k];
        }
        p = artifact_plan(&a, cases[i].want, "NVIDIA H200");
        if ((p ? p->head->target : 9999) != cases[i].got || (p && p != &a.plans[cases[i].at]))
            fail_msg("case %zu gives %u", i, p ? p->head->target : 9999);
    }
}

/* --- damage ---------------------------------------------------------------------------------- */

static void open_and_walk(const unsigned char *p, size_t n, size_t *accepted, size_t *refused)
{
    Artifact a;
    FtxError err = {0};

    if (artifact_open_bytes(p, n, &a, &err)) {
        assert_true(err.text[0] != '\0');
        ++*refused;
        return;
    }
    small_walk(&a);
    artifact_verify(&a, &err);
    artifact_close(&a);
    ++*accepted;
}

/* The weights stand before the section table: everything but their bytes is flipped. */
static void test_flipped_bytes(void **state)
{
    static const unsigned char flips[] = {0x01, 0x80, 0xff, 0x7f};
    size_t n, accepted = 0, refused = 0, sealed_refused = 0;
    unsigned char *p, *q;
    const FtxSection *table;
    Small s;
    (void)state;

    small_begin(&s);
    write_small(&s, temp_path("flip.ftx"));
    p = read_whole(temp_path("flip.ftx"), &n);
    q = aligned_alloc(64, (n + 63) / 64 * 64);
    assert_non_null(q);
    table = (const FtxSection *)(p + ((const FtxHeader *)p)->sections_at);
    const FtxSection *weights = &table[((const FtxHeader *)p)->sections - 1];
    assert_int_equal(weights->kind, FTX_SEC_WEIGHTS);
    for (size_t i = 0; i < n; i++) {
        if (i >= weights->offset && i < weights->offset + weights->bytes)
            continue;
        for (size_t k = 0; k < LEN(flips); k++) {
            memcpy(q, p, n);
            q[i] ^= flips[k];
            open_and_walk(q, n, &accepted, &refused);
            small_seal(q, n);
            open_and_walk(q, n, &accepted, &sealed_refused);
        }
    }
    assert_true(sealed_refused > 1000 && refused > 1000);
    free(p);
    free(q);
    small_end(&s);
}

/* Every 32-bit word outside the weights takes values that like to break sums. */
static void test_hostile_words(void **state)
{
    static const uint32_t values[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffff8, 0x10000};
    size_t n, accepted = 0, refused = 0;
    unsigned char *p, *q;
    Small s;
    (void)state;

    small_begin(&s);
    s.parts.checkpoint = NULL;
    write_small(&s, temp_path("words.ftx"));
    p = read_whole(temp_path("words.ftx"), &n);
    q = aligned_alloc(64, (n + 63) / 64 * 64);
    assert_non_null(q);
    for (size_t i = 0; i + 4 <= n; i += 4)
        for (size_t k = 0; k < LEN(values); k++) {
            memcpy(q, p, n);
            memcpy(q + i, &values[k], 4);
            small_seal(q, n);
            open_and_walk(q, n, &accepted, &refused);
        }
    assert_true(refused > 1000);
    free(p);
    free(q);
    small_end(&s);
}

static void test_truncated(void **state)
{
    size_t n, accepted = 0, refused = 0;
    unsigned char *p;
    Small s;
    (void)state;

    small_begin(&s);
    write_small(&s, temp_path("cut.ftx"));
    p = read_whole(temp_path("cut.ftx"), &n);
    for (size_t i = 0; i < n; i++) {
        unsigned char *q = i ? aligned_alloc(64, (i + 63) / 64 * 64) : NULL;

        if (i)
            memcpy(q, p, i);
        open_and_walk(q, i, &accepted, &refused);
        if (i >= sizeof(FtxHeader)) { /* a header that agrees with the length */
            ((FtxHeader *)q)->file_bytes = i;
            open_and_walk(q, i, &accepted, &refused);
        }
        free(q);
    }
    assert_int_equal(accepted, 0);
    free(p);
    small_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),      cmocka_unit_test(test_sidecar_goes),
        cmocka_unit_test(test_many_strings),    cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_without_weights), cmocka_unit_test(test_sidecar),
        cmocka_unit_test(test_bad_words),       cmocka_unit_test(test_versions),
        cmocka_unit_test(test_plan_choice),     cmocka_unit_test(test_plans_of_one_target),
        cmocka_unit_test(test_flipped_bytes),   cmocka_unit_test(test_hostile_words),
        cmocka_unit_test(test_truncated),       cmocka_unit_test(test_nothing_half_written),
        cmocka_unit_test(test_number_of_plans),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
