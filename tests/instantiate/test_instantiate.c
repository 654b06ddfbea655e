/* test_instantiate.c - template to code for every target: constants, cache, workers, resources,
 * NVRTC's reasons.
 *
 * The templates are in this file: it defines catalog_text and catalog_headers itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <dirent.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "compiler/instantiate/parts.h"
#include "runtime/base/file.h"
#include "tests/skip.h"

/* --- the catalog of this test ------------------------------------------------------------- */

static const char *const header_names[] = {"device/types.cuh", "scale.cuh", "unused.cuh"};
static const char *header_texts[] = {
    "#pragma once\ntypedef unsigned short bf16;\n",
    "#pragma once\n#include \"device/types.cuh\"\n"
    "template <class K> __device__ void scale(const float *x, float *y)\n"
    "{\n    y[threadIdx.x] = x[threadIdx.x] * K::F + K::N;\n}\n",
    "#error never included\n",
};

static const char scale_template[] =
    "//@ kernel scale\n"
    "//@ consts N: 1\n"
    "#include \"scale.cuh\"\n"
    "struct Config {\n"
    "    using T = @T@;\n"
    "    static constexpr int N = @N@;\n"
    "    static constexpr float F = @F@;\n"
    "};\n"
    "struct Args { const float *x; float *y; };\n"
    "extern \"C\" __global__ void __launch_bounds__(32) @NAME@(Args a)\n"
    "{\n    __shared__ float s[64];\n    s[threadIdx.x] = a.x[threadIdx.x];\n    __syncthreads();\n"
    "    scale<Config>(s, a.y);\n}\n";

/* More values than registers: the compiler must spill. */
static const char spill_template[] =
    "extern \"C\" __global__ void __launch_bounds__(1024, 2) @NAME@(const float *x, float *y)\n"
    "{\n    float v[80];\n#pragma unroll\n    for (int i = 0; i < 80; i++) v[i] = x[i * 1024 + "
    "threadIdx.x];\n"
    "    __syncthreads();\n#pragma unroll\n    for (int i = 0; i < 80; i++) y[(79 - i) * 1024 + "
    "threadIdx.x] = v[i] * v[(i * 7) % 80];\n}\n";

static const char kinds_template[] =
    "struct alignas(16) Four { float x, y, z, w; };\n"
    "extern \"C\" __global__ void __launch_bounds__(64) @NAME@(const Four *p, Four *q, float *f, unsigned *n)\n"
    "{\n"
    "    __shared__ Four s[128];\n"
    "    __shared__ unsigned long long b;\n"
    "    const unsigned at = (unsigned)__cvta_generic_to_shared(&s[threadIdx.x]);\n"
    "    asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16;\" ::\"r\"(at), \"l\"(p + threadIdx.x) : "
    "\"memory\");\n"
    "    asm volatile(\"cp.async.ca.shared.global [%0], [%1], 8;\" ::\"r\"(at + 512), \"l\"(p + 64) : \"memory\");\n"
    "    asm volatile(\"cp.async.ca.shared.global [%0], [%1], 4;\" ::\"r\"(at + 1024), \"l\"(p + 65) : \"memory\");\n"
    "    asm volatile(\"cp.async.wait_all;\" ::: \"memory\");\n"
    "#if __CUDA_ARCH__ >= 900\n"
    "    asm volatile(\"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 64, [%2];\"\n"
    "                 ::\"r\"(at), \"l\"(p), \"r\"((unsigned)__cvta_generic_to_shared(&b)) : \"memory\");\n"
    "#endif\n"
    "    __syncthreads();\n"
    "    Four v = p[threadIdx.x + 200];\n"
    "    float g = f[threadIdx.x], d = s[threadIdx.x ^ 1].x, e = 0, h = 0, i = 0;\n"
    "    asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%4,%5,%5}, {%4,%5}, "
    "{%0,%1,%2,%3};\"\n"
    "                 : \"+f\"(d), \"+f\"(e), \"+f\"(h), \"+f\"(i) : \"r\"(__float_as_uint(v.x)), "
    "\"r\"(__float_as_uint(g)));\n"
    "    asm volatile(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(g) : \"f\"(g));\n"
    "    v.y = v.y * g + d;\n"
    "    v.z = __shfl_xor_sync(~0u, v.z, 1) + e + h + i;\n"
    "    q[threadIdx.x] = v;\n"
    "    asm volatile(\"fence.acq_rel.gpu;\" ::: \"memory\");\n"
    "    asm volatile(\"red.global.add.u32 [%0], %1;\" ::\"l\"(n + threadIdx.x), \"r\"(threadIdx.x) : \"memory\");\n"
    "    f[threadIdx.x] = g;\n"
    "}\n";

static const char broken_template[] =
    "//@ kernel broken\n\nextern \"C\" __global__ void @NAME@()\n{\n    int a = nothing;\n}\n";
static const char nameless_template[] = "extern \"C\" __global__ void other() {}\n";

static const char variants_template[] = "//@ kernel scale\n"
                                        "//@ variant plain | LAST=0\n"
                                        "//@ variant head | LAST=1\n"
                                        "//@ head: text     using KV = @T@; // of the head\n"
                                        "int last = @LAST@, n = @N@;\n"
                                        "enum { @REGIONS@ };\n"
                                        "//@ plain, tail: text void @NAME@(Args a);\n"
                                        "//@ tail,head: text void @NAME@(HeadArgs a);\n";

const char *catalog_text(const char *name)
{
    return !strcmp(name, "scale.cu")    ? scale_template
           : !strcmp(name, "spill.cu")  ? spill_template
           : !strcmp(name, "kinds.cu")  ? kinds_template
           : !strcmp(name, "broken.cu") ? broken_template
           : !strcmp(name, "twin.cu")   ? variants_template
           : !strcmp(name, "none.cu")   ? nameless_template
                                        : NULL;
}

size_t catalog_headers(const char *const **names, const char *const **texts)
{
    *names = header_names;
    *texts = header_texts;
    return LEN(header_names);
}

/* --- helpers ------------------------------------------------------------------------------- */

static char cache[64];

static int set_up(void **state)
{
    (void)state;
    strcpy(cache, "/tmp/ftx-test-instantiate-XXXXXX");
    return !mkdtemp(cache) || setenv("FTX_CACHE", cache, 1);
}

static size_t cached(bool unlink_all)
{
    DIR *dir = opendir(cache);
    size_t n = 0;

    for (struct dirent *e; dir && (e = readdir(dir));) {
        char path[400];

        if (e->d_name[0] == '.')
            continue;
        n++;
        snprintf(path, sizeof path, "%s/%s", cache, e->d_name);
        if (unlink_all)
            unlink(path);
    }
    if (dir)
        closedir(dir);
    return n;
}

static int tear_down(void **state)
{
    (void)state;
    cached(true);
    return rmdir(cache);
}

static void need_nvrtc(void)
{
    if (nvrtc_version())
        return;
#if FTX_REQUIRE_NVRTC
    fail_msg("%s", nvrtc_missing());
#else
    SKIP("%s", nvrtc_missing());
#endif
}

static Instance *instance(Arena *a, const char *template_name, int n)
{
    Instance *i = arena_new(a, Instance);

    i->family = "scale";
    i->entry = arena_printf(a, "scale__n%d", n);
    i->template_name = template_name;
    i->device = KD_CUDA;
    i->note = "for %37 of llama.lua:48";
    i->n_consts = 3;
    i->consts = arena_array(a, Const, 3);
    i->consts[0] = (Const){"T", CONST_TYPE, DT_BF16, 0};
    i->consts[1] = (Const){"N", CONST_INT, n, 0};
    i->consts[2] = (Const){"F", CONST_FLOAT, 0, 1e-5};
    return i;
}

static Plan plan_of(uint32_t id, const char *name)
{
    return (Plan){.target = {.id = id, .name = name}};
}

static void check_image(const Plan *p, const Code *c, size_t i)
{
    Resources r;
    const Bytes image = {(const char *)c->cubin + c->images[i].at, c->images[i].bytes};

    assert_int_equal(c->images[i].at % 64, 0);
    assert_true((size_t)c->images[i].at + c->images[i].bytes <= c->cubin_bytes);
    assert_true(cubin_resources(image, p->instances.at[i]->entry, &r));
    assert_int_equal(r.registers, p->instances.at[i]->registers);
}

/* --- tests --------------------------------------------------------------------------------- */

static void text_has_constants_and_heading(void **state)
{
    (void)state;
    Arena *a = arena_open();
    const char *t = instantiate_text(instance(a, "scale.cu", -3), (Target){.id = 901, .name = "sm_90a"}, a);

    assert_non_null(strstr(t, "// made by ftxc from scale.cu, for %37 of llama.lua:48\n"));
    assert_non_null(strstr(t, "nvcc -gencode=arch=compute_90a,code=sm_90a -std=c++17 -I. -cubin scale__n-3.cu"));
    assert_non_null(strstr(t, "using T = bf16;"));
    assert_non_null(strstr(t, "N = -3;"));
    assert_non_null(strstr(t, "F = 9.99999975e-06f;") ? "" : strstr(t, "F = 1e-05f;"));
    assert_non_null(strstr(t, "__launch_bounds__(32) scale__n-3(Args a)"));
    assert_null(strchr(strstr(t, "#line"), '@'));
    Instance *nine = instance(a, "scale.cu", 1);
    nine->consts[2].f = 1000.00006103515625; /* a float that eight digits do not tell from the next one */
    assert_non_null(strstr(instantiate_text(nine, (Target){.id = 901, .name = "sm_90a"}, a), "F = 1000.00006f;"));
    t = instantiate_text(instance(a, "scale.cu", 1), (Target){.id = 1201, .name = "sm_120a"}, a);
    assert_non_null(strstr(t, "arch=compute_120a,code=sm_120a"));
    t = instantiate_text(instance(a, "scale.cu", 1), (Target){.id = 802, .name = "compute_80"}, a);
    assert_non_null(strstr(t, "nvcc -arch=compute_80 -std=c++17 -I. -ptx"));
    arena_close(a);
}

/* A line for variants stands where it is in their texts, and is empty in others; the numbers of the variant are filled in as
 * constants are. */
static void variants_have_their_lines(void **state)
{
    (void)state;
    Arena *a = arena_open();
    /* a name that begins like another one is another one */
    const Const zero[] = {{"LASTS", CONST_INT, 5, 0}, {"LAST", CONST_INT, 0, 0}}, one = {"LAST", CONST_INT, 1, 0};
    Const regions[] = {{"RING_AT", CONST_INT, 0, 0}, {"SUMS_AT", CONST_INT, 4096, 0}};
    Instance *i = instance(a, "twin.cu", 7);

    i->variant = "plain";
    i->fixed = zero;
    i->n_fixed = 2;
    i->regions = regions;
    i->n_regions = 2;
    assert_string_equal(text_body(i, a), "\n\n\n\nint last = 0, n = 7;\nenum { RING_AT = 0, SUMS_AT = 4096 };\n"
                                         "void scale__n7(Args a);\n\n");
    i->variant = "head";
    i->fixed = &one;
    i->n_fixed = 1;
    i->n_regions = 0;
    assert_string_equal(text_body(i, a),
                        "\n\n\n    using KV = bf16; // of the head\nint last = 1, n = 7;\nenum {  };\n\n"
                        "void scale__n7(HeadArgs a);\n");
    arena_close(a);
}

static void headers_are_those_included(void **state)
{
    (void)state;
    size_t at[8];

    assert_int_equal(catalog_includes(scale_template, at, 8), 2);
    assert_int_equal(at[0], 0);
    assert_int_equal(at[1], 1);
    assert_int_equal(catalog_includes("#include <scale.h>\n#include \"scale.cuh\"\n", at, 8), 2);
    assert_int_equal(catalog_includes(spill_template, at, 8), 0);
}

static void comments_are_stripped(void **state)
{
    static const struct {
        const char *text, *lines, *code; /* with and without lines that are empty */
    } cases[] = {
        {"", "", ""},
        {"int a;", "int a;\n", "int a;\n"},
        {"a /* b */ c\n", "a   c\n", "a   c\n"},
        {"a/**/b/***/c\n", "a b c\n", "a b c\n"},
        {"a; // b\n\n\n  // c\nd;\t \n", "a;\n\n\n\nd;\n", "a;\nd;\n"},
        {"a; /* b\n c */ d;\n", "a;\n d;\n", "a;   d;\n"},
        {"a // b \\\n still b\nc\n", "a\n\nc\n", "a\nc\n"},
        {"s = \"/* no */ // no\"; // yes\n", "s = \"/* no */ // no\";\n", "s = \"/* no */ // no\";\n"},
        {"s = \"\\\"//\\\\\"; // yes\n", "s = \"\\\"//\\\\\";\n", "s = \"\\\"//\\\\\";\n"},
        {"c = '\"', d = '\\''; // yes\n", "c = '\"', d = '\\'';\n", "c = '\"', d = '\\'';\n"},
        {"n = 1'000; // it's\n", "n = 1'000;\n", "n = 1'000;\n"},
        {"#define A 1 \\\n\nb\n", "#define A 1 \\\n\nb\n", "#define A 1 \\\n\nb\n"},
        {"s = R\"(\" // )\"; // kept\n", "s = R\"(\" // )\"; // kept\n", "s = R\"(\" // )\"; // kept\n"},
        {"a / b /* not closed", "a / b\n", "a / b\n"},
        {"\"not closed // \n b // c\n", "\"not closed //\n b\n", "\"not closed //\n b\n"},
    };
    Arena *a = arena_open();

    (void)state;
    for (size_t i = 0; i < LEN(cases); i++) {
        assert_string_equal(catalog_strip(cases[i].text, true, a), cases[i].lines);
        assert_string_equal(catalog_strip(cases[i].text, false, a), cases[i].code);
    }
    arena_close(a);
}

static void all_targets_compile(void **state)
{
    static const Target targets[] = {{.id = 800, .name = "sm_80"},     {.id = 860, .name = "sm_86"},
                                     {.id = 890, .name = "sm_89"},     {.id = 901, .name = "sm_90a"},
                                     {.id = 1001, .name = "sm_100a"},  {.id = 1201, .name = "sm_120a"},
                                     {.id = 802, .name = "compute_80"}};
    Arena *a = arena_open();

    (void)state;
    need_nvrtc();
    for (size_t t = 0; t < LEN(targets); t++) {
        Plan p = plan_of(targets[t].id, targets[t].name);
        Code c;
        Diag d = {0};

        for (int n = 0; n < 3; n++)
            *arena_push(a, p.instances) = instance(a, "scale.cu", n);
        Instance *matmul = instance(a, NULL, 9);
        matmul->device = KD_MATMUL;
        *arena_push(a, p.instances) = matmul;
        if (!instantiate_compile(&p, a, &c, NULL, NULL, &d))
            fail_msg("%s", d.text);
        assert_int_equal(c.images[3].bytes, 0);
        for (int n = 0; n < 3; n++) {
            if (targets[t].id == 802) {
                const char *ptx = (const char *)c.cubin + c.images[n].at;

                assert_int_equal(ptx[c.images[n].bytes - 1], '\0');
                assert_non_null(strstr(ptx, p.instances.at[n]->entry));
                continue;
            }
            check_image(&p, &c, (size_t)n);
            assert_int_equal(p.instances.at[n]->static_smem, 256);
            assert_int_equal(p.instances.at[n]->spill_bytes, 0);
            assert_int_equal(p.instances.at[n]->stack_bytes, 0);
            assert_in_range(p.instances.at[n]->registers, 4, 64);
        }
        assert_non_null(strstr(c.source, "// ===== file scale.cuh\n"));
        assert_non_null(strstr(c.source, "// ===== file scale__n2.cu\n"));
        assert_null(strstr(c.source, "never included"));
    }
    arena_close(a);
}

static void spills_are_seen(void **state)
{
    Arena *a = arena_open();
    Plan p = plan_of(901, "sm_90a");
    Code c;
    Diag d = {0};
    Resources r;

    (void)state;
    need_nvrtc();
    *arena_push(a, p.instances) = instance(a, "spill.cu", 5);
    if (!instantiate_compile(&p, a, &c, NULL, NULL, &d))
        fail_msg("%s", d.text);
    assert_int_equal(p.instances.at[0]->registers, 32);
    assert_true(p.instances.at[0]->stack_bytes > 0);
    assert_true(p.instances.at[0]->spill_bytes >= p.instances.at[0]->stack_bytes);
    assert_true(cubin_resources((Bytes){c.cubin, c.images[0].bytes}, "scale__n5", &r));
    assert_int_equal(r.barriers, 1);
    assert_true(r.code[CODE_LOCAL] > 0);
    assert_int_equal(r.code[CODE_BARRIER], 1);
    assert_in_range(r.code[CODE_LOAD], 80, 200);
    assert_in_range(r.code[CODE_STORE], 80, 200);
    arena_close(a);
}

/* One instruction of each kind, as each target encodes it. */
static void classes_are_seen(void **state)
{
    static const struct {
        uint32_t id;
        const char *name;
    } targets[] = {{800, "sm_80"}, {890, "sm_89"}, {901, "sm_90a"}, {1001, "sm_100a"}, {1201, "sm_120a"}};

    (void)state;
    need_nvrtc();
    for (size_t t = 0; t < LEN(targets); t++) {
        Arena *a = arena_open();
        Plan p = plan_of(targets[t].id, targets[t].name);
        const bool bulk = targets[t].id >= 900;
        Code c;
        Diag d = {0};
        Resources r;
        uint32_t sum = 0;

        *arena_push(a, p.instances) = instance(a, "kinds.cu", bulk);
        if (!instantiate_compile(&p, a, &c, NULL, NULL, &d))
            fail_msg("%s", d.text);
        assert_true(cubin_resources((Bytes){c.cubin, c.images[0].bytes}, p.instances.at[0]->entry, &r));
        const struct {
            CodeClass is;
            uint32_t n;
        } want[] = {{CODE_MATRIX, 1},  {CODE_ASYNC16, 1}, {CODE_ASYNC, 2},  {CODE_LOAD16, 1},
                    {CODE_LOAD, 1},    {CODE_STORE16, 1}, {CODE_STORE, 1},  {CODE_SPECIAL, 1},
                    {CODE_SHUFFLE, 1}, {CODE_BULK, bulk}, {CODE_ATOMIC, 1}, {CODE_LOCAL, 0}};
        for (size_t i = 0; i < LEN(want); i++)
            if (r.code[want[i].is] != want[i].n)
                fail_msg("%s: %u of %s, expected %u", targets[t].name, r.code[want[i].is], code_class_name(want[i].is),
                         want[i].n);
        assert_true(r.code[CODE_BARRIER] >= 1 && r.code[CODE_SHARED] >= 1 && r.code[CODE_FMA] >= 1);
        assert_true(r.code[CODE_FENCE] >= 1); /* two on sm_120 */
        for (int k = 0; k < CODE_COUNT; k++)
            sum += r.code[k];
        assert_int_equal(sum, r.instructions);
        assert_int_equal(r.barriers, 1);
        arena_close(a);
    }
}

static void count_calls(void *user, uint64_t done, uint64_t all)
{
    size_t *n = user;

    assert_true(done <= all);
    ++*n;
}

static void compile_one(Arena *a, int n, uint32_t id, const char *target, Code *c)
{
    Plan p = plan_of(id, target);
    Diag d = {0};
    size_t calls = 0;

    *arena_push(a, p.instances) = instance(a, "scale.cu", n);
    if (!instantiate_compile(&p, a, c, count_calls, &calls, &d))
        fail_msg("%s", d.text);
    assert_int_equal(calls, 1);
}

/* An entry of the cache is used (a marked one comes back), a damaged one is not. */
static void cache_is_used_and_checked(void **state)
{
    Arena *a = arena_open();
    Code first, again;
    Bytes b;

    (void)state;
    need_nvrtc();
    compile_one(a, 70, 901, "sm_90a", &first);
    const size_t n = cached(false);
    compile_one(a, 70, 901, "sm_90a", &again);
    assert_int_equal(cached(false), n);
    assert_int_equal(first.images[0].bytes, again.images[0].bytes);
    assert_memory_equal(first.cubin, again.cubin, first.cubin_bytes);
    compile_one(a, 70, 890, "sm_89", &again);
    assert_int_equal(cached(false), n + 1);
    header_texts[0] = "// a comment\n#pragma once\n\ntypedef unsigned short bf16; // another\n";
    compile_one(a, 70, 901, "sm_90a", &again);
    assert_int_equal(cached(false), n + 1);
    header_texts[0] = "#pragma once\ntypedef unsigned short bf16, changed;\n";
    compile_one(a, 70, 901, "sm_90a", &again);
    assert_int_equal(cached(false), n + 2);
    header_texts[2] = "#error still not included\n";
    compile_one(a, 70, 901, "sm_90a", &again);
    assert_int_equal(cached(false), n + 2);

    const Hash128 key = {1, 2};
    char path[200];

    cache_write(key, (Bytes){"hello", 6});
    assert_true(cache_read(key, a, &b));
    assert_string_equal(b.at, "hello");
    snprintf(path, sizeof path, "%s/%016x%016x.code", cache, 2, 1);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    fseek(f, -2, SEEK_END);
    fputc('x', f);
    fclose(f);
    assert_false(cache_read(key, a, &b));
    assert_int_equal(truncate(path, 20), 0);
    assert_false(cache_read(key, a, &b));
    arena_close(a);
}

static void unwritable_cache_is_no_error(void **state)
{
    Arena *a = arena_open();
    Code c;

    (void)state;
    need_nvrtc();
    setenv("FTX_CACHE", "/proc/nowhere", 1);
    compile_one(a, 71, 901, "sm_90a", &c);
    setenv("FTX_CACHE", "0", 1);
    compile_one(a, 71, 901, "sm_90a", &c);
    setenv("FTX_CACHE", cache, 1);
    arena_close(a);
}

/* Two processes compile the same kernels with one cache: both succeed with the same bytes. */
static void two_processes_share_the_cache(void **state)
{
    Arena *a = arena_open();
    pid_t pids[2];
    Code c;

    (void)state;
    need_nvrtc();
    cached(true);
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            Plan p = plan_of(901, "sm_90a");
            Diag d = {0};

            for (int n = 80; n < 86; n++)
                *arena_push(a, p.instances) = instance(a, "scale.cu", n);
            _exit(instantiate_compile(&p, a, &c, NULL, NULL, &d) ? 0 : 1);
        }
    }
    for (int i = 0; i < 2; i++) {
        int status;

        waitpid(pids[i], &status, 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_int_equal(cached(false), 6);
    compile_one(a, 80, 901, "sm_90a", &c);
    assert_int_equal(cached(false), 6);
    arena_close(a);
}

static void broken_kernels_say_why(void **state)
{
    Arena *a = arena_open();
    Plan p = plan_of(901, "sm_90a"), q = plan_of(901, "sm_90a");
    Code c;
    Diag d = {0}, e = {0};

    (void)state;
    need_nvrtc();
    *arena_push(a, p.instances) = instance(a, "scale.cu", 7);
    *arena_push(a, p.instances) = instance(a, "broken.cu", 90);
    assert_false(instantiate_compile(&p, a, &c, NULL, NULL, &d));
    assert_string_equal(d.text, "scale__n90 does not compile for sm_90a: "
                                "broken.cu(5): error: identifier \"nothing\" is undefined");
    *arena_push(a, q.instances) = instance(a, "none.cu", 91);
    assert_false(instantiate_compile(&q, a, &c, NULL, NULL, &e));
    assert_non_null(strstr(e.text, "none.cu: the compiled code has no kernel scale__n91"));
    arena_close(a);
}

static bool crash_at_two(void *user, size_t i, Bytes *out)
{
    (void)user;
    if (i == 2)
        abort();
    *out = (Bytes){strdup("done"), 5};
    return i != 4;
}

static bool count_done(void *user, size_t i, bool ok, Bytes b)
{
    size_t *n = user;

    assert_string_equal(b.at, "done");
    assert_int_equal(ok, i != 4);
    ++*n;
    return true;
}

static void a_dead_worker_is_named(void **state)
{
    size_t died, n = 0;

    (void)state;
    assert_true(workers_run(0, crash_at_two, count_done, &n, &died));
    assert_true(workers_run(2, crash_at_two, count_done, &n, &died));
    assert_int_equal(n, 2);
    assert_false(workers_run(6, crash_at_two, count_done, &n, &died));
    assert_int_equal(died, 2);
}

/* Job 3 has a result whose second page cannot be read, so half of it arrives. */
static bool half_at_three(void *user, size_t i, Bytes *out)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p;

    if (i != 3)
        return crash_at_two(user, 0, out);
    p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + page, page, PROT_NONE))
        return false;
    memcpy(p, "done", 5);
    *out = (Bytes){p, 2 * page};
    return true;
}

static void half_a_result_is_none(void **state)
{
    size_t died, n = 0;

    (void)state;
    assert_false(workers_run(4, half_at_three, count_done, &n, &died));
    assert_int_equal(died, 3);
    assert_true(n <= 3);
}

static bool stop_at_once(void *user, size_t i, bool ok, Bytes b)
{
    (void)i, (void)ok, (void)b;
    ++*(size_t *)user;
    return false;
}

/* Where no pipe can be made the jobs run in this process, until `done` says stop. */
static void without_workers(void **state)
{
    struct rlimit files, none;
    size_t died, n = 0;
    bool ok;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    none = (struct rlimit){0, files.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    ok = workers_run(2, crash_at_two, stop_at_once, &n, &died);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    assert_false(ok);
    assert_int_equal(n, 1);
}

/* A truncated or changed cubin is read without a crash. */
static void broken_cubins_are_refused(void **state)
{
    Arena *a = arena_open();
    Code c;
    Resources r;

    (void)state;
    need_nvrtc();
    compile_one(a, 75, 901, "sm_90a", &c);
    for (size_t n = 0; n < c.images[0].bytes; n += 7) {
        char *cut = malloc(n + 1);

        memcpy(cut, c.cubin, n);
        cubin_resources((Bytes){cut, n}, "scale__n75", &r);
        free(cut);
    }
    uint32_t seed = 1;
    for (int i = 0; i < 3000; i++) {
        char *bad = malloc(c.images[0].bytes);

        memcpy(bad, c.cubin, c.images[0].bytes);
        for (int k = 0; k < 4; k++) {
            seed = seed * 1664525 + 1013904223;
            const size_t at = k < 2 ? seed / 7 % 64 : seed / 7 % c.images[0].bytes;
            bad[at] = (char)(seed >> 24);
        }
        cubin_resources((Bytes){bad, c.images[0].bytes}, "scale__n75", &r);
        free(bad);
    }
    assert_false(cubin_resources((Bytes){c.cubin, c.images[0].bytes}, "scale__n76", &r));
    arena_close(a);
}

static void emitted_files_are_whole(void **state)
{
    Arena *a = arena_open();
    Plan p = plan_of(901, "sm_90a");
    Diag d = {0};
    FileMap m;
    char path[300];
    static const char *const files[] = {"scale__n3.cu", "scale.cuh", "device/types.cuh"};

    (void)state;
    *arena_push(a, p.instances) = instance(a, "scale.cu", 3);
    snprintf(path, sizeof path, "%s/emit", cache);
    assert_true(instantiate_emit(&p, path, &d));
    for (size_t i = 0; i < LEN(files); i++) {
        snprintf(path, sizeof path, "%s/emit/%s", cache, files[i]);
        assert_int_equal(file_map(path, &m, NULL), FTX_OK);
        file_unmap(&m);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/emit/device", cache);
    rmdir(path);
    snprintf(path, sizeof path, "%s/emit", cache);
    assert_int_equal(rmdir(path), 0);
    assert_false(instantiate_emit(&p, "/proc/nowhere", &d));
    assert_non_null(strstr(d.text, "/proc/nowhere"));
    arena_close(a);
}

/* A line for each kernel: its hash changes with the text, not with comments. */
static void texts_are_listed(void **state)
{
    Arena *a = arena_open();
    Plan p = plan_of(901, "sm_90a");
    Diag d = {0}, full = {0};
    char path[300], line[4][200] = {{0}}, entry[100], target[40];
    unsigned long long key[4] = {0};

    (void)state;
    snprintf(path, sizeof path, "%s/texts", cache);
    setenv("FTX_TEXTS", path, 1);
    *arena_push(a, p.instances) = instance(a, "scale.cu", 3);
    *arena_push(a, p.instances) = instance(a, "scale.cu", 4);
    assert_true(instantiate_list(&p, &d));
    const char *const header = header_texts[0];
    header_texts[0] = "#pragma once // a remark\n/* another */\n\ntypedef unsigned short bf16;\n";
    p.instances.n = 1;
    assert_true(instantiate_list(&p, &d));
    header_texts[0] = "#pragma once\ntypedef unsigned bf16;\n";
    assert_true(instantiate_list(&p, &d));
    header_texts[0] = header;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (int i = 0; i < 4; i++) {
        assert_non_null(fgets(line[i], sizeof line[i], f));
        assert_int_equal(sscanf(line[i], "%39s %99s %16llx", target, entry, &key[i]), 3);
        assert_string_equal(target, "sm_90a");
        assert_string_equal(entry, i == 1 ? "scale__n4" : "scale__n3");
    }
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
    unlink(path);
    assert_true(key[0] == key[2] && key[0] != key[1] && key[0] != key[3]);

    setenv("FTX_TEXTS", "/proc/nowhere/texts", 1);
    assert_false(instantiate_list(&p, &d));
    assert_non_null(strstr(d.text, "FTX_TEXTS: cannot open /proc/nowhere/texts"));
    setenv("FTX_TEXTS", "/dev/full", 1);
    assert_false(instantiate_list(&p, &full));
    assert_non_null(strstr(full.text, "FTX_TEXTS: cannot write /dev/full: No space left on device"));
    unsetenv("FTX_TEXTS");
    assert_true(instantiate_list(&p, &d));
    arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_has_constants_and_heading),
        cmocka_unit_test(texts_are_listed),
        cmocka_unit_test(variants_have_their_lines),
        cmocka_unit_test(headers_are_those_included),
        cmocka_unit_test(comments_are_stripped),
        cmocka_unit_test(all_targets_compile),
        cmocka_unit_test(spills_are_seen),
        cmocka_unit_test(classes_are_seen),
        cmocka_unit_test(cache_is_used_and_checked),
        cmocka_unit_test(unwritable_cache_is_no_error),
        cmocka_unit_test(two_processes_share_the_cache),
        cmocka_unit_test(broken_kernels_say_why),
        cmocka_unit_test(a_dead_worker_is_named),
        cmocka_unit_test(half_a_result_is_none),
        cmocka_unit_test(without_workers),
        cmocka_unit_test(broken_cubins_are_refused),
        cmocka_unit_test(emitted_files_are_whole),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
