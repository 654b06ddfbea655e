/* test_offload.c - which weights stay in host memory, and what a step copies: by hand for one plan, then drawn plans and budgets
 * against a walk through their launches, byte by byte. */
#include "layered.h"
#include "runtime/device/offload.h"

static const Memory memory = {{0}};

static Offload *opened(const Layered *l, int64_t gpu_layers, uint64_t gpu_memory)
{
    FtxError err = {0};
    Offload *o;

    must(offload_open(&memory, &l->t.artifact, &l->t.plan, gpu_layers, gpu_memory, &o, &err), &err);
    return o;
}

static void labels_name_layers(void **state)
{
    static const struct {
        const char *label;
        int layer;
        const char *rest;
    } cases[] = {
        {"layer 3: qkv", 3, ": qkv"},
        {"layer 12: qkv", 12, ": qkv"},
        {"layer 0", 0, ""},
        {"lm head", -1, "lm head"},
        {"layer : x", -1, "layer : x"},
        {"layers 3: x", -1, "layers 3: x"},
        {"", -1, ""},
        {"layer 1234567: x", -1, "layer 1234567: x"},
        {"a layer 3", -1, "a layer 3"},
        {"layer -3: x", -1, "layer -3: x"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *rest;

        assert_int_equal(artifact_layer(cases[i].label, &rest), cases[i].layer);
        assert_string_equal(rest, cases[i].rest);
    }
}

/* --- by hand --------------------------------------------------------------------------------------- */

static void all_layers_stay(void **state)
{
    Layered *l = layered(false);

    (void)state;
    for (int64_t n = LAYERS - 1; n <= LAYERS + 1; n++) { /* one layer alone would need as much staging as it saves */
        Offload *o = opened(l, n, 0);

        assert_int_equal(o->layers, LAYERS);
        assert_int_equal(o->gpu_layers, LAYERS);
        assert_int_equal(o->n_copies, 0);
        assert_int_equal(o->staging_bytes, 0);
        assert_int_equal(o->weights[UNREAD_WEIGHT].place, OFFLOAD_UNUSED);
        assert_int_equal(o->gpu_bytes + o->host_bytes, l->weights[UNREAD_WEIGHT].offset);
        assert_int_equal(o->host_bytes, n < LAYERS ? room_of(l, 0) : 0);
        offload_close(o);
    }
    free(l);
}

static void the_last_layers_go(void **state)
{
    Layered *l = layered(false);
    Offload *o = opened(l, 2, 0);
    size_t n;

    (void)state;
    assert_int_equal(o->gpu_layers, 2);
    for (uint32_t i = 0; i < WEIGHTS; i++)
        assert_int_equal(o->weights[i].place, i == 0                                     ? OFFLOAD_ROWS
                                              : i == UNREAD_WEIGHT                       ? OFFLOAD_UNUSED
                                              : i >= of_layer(2) && i < of_layer(LAYERS) ? OFFLOAD_COPIED
                                                                                         : OFFLOAD_GPU);
    assert_int_equal(o->staging_bytes, room_of_layer(l, ODD));
    assert_int_equal(o->row_bytes, room_of(l, 0));

    /* STEP_16 copies qkv and down in one piece, STEP_ANY qkv and the other form of down in two. */
    const FtxProgram *p = l->t.programs;
    assert_int_equal(o->n_copies, 4 + 8 + 4);
    const OffloadCopy *c = offload_copies(o, p[L_STEP_16].first_launch + 1 + 2 * 3, &n);
    assert_int_equal(n, 1);
    assert_int_equal(c->at, 0);
    assert_int_equal(c->from, room_of_layer(l, 2));
    assert_int_equal(c->bytes, room_of(l, of_layer(3)) + l->weights[of_layer(3) + 1].bytes);
    c = offload_copies(o, p[L_STEP_ANY].first_launch + 1 + 2 * 3, &n);
    assert_int_equal(n, 2);
    assert_int_equal(c[0].bytes, l->weights[of_layer(3)].bytes);
    assert_int_equal(c[1].at, room_of(l, of_layer(3)) + room_of(l, of_layer(3) + 1));
    for (uint32_t i = 0; i < 1 + 2 * 2; i++) { /* before the first layer of the host */
        offload_copies(o, p[L_STEP_16].first_launch + i, &n);
        assert_int_equal(n, 0);
    }
    offload_copies(o, p[L_STEP_16].first_launch + 1 + 2 * 3 + 1, &n); /* the second launch of a layer */
    assert_int_equal(n, 0);
    offload_close(o);
    free(l);
}

/* A head that reads the embedding's rows keeps them on the GPU. */
static void tied_rows_stay(void **state)
{
    Layered *l = layered(true);
    Offload *o = opened(l, FTX_NO_GPU_LAYERS, 0);

    (void)state;
    assert_int_equal(o->gpu_layers, 0);
    assert_int_equal(o->weights[0].place, OFFLOAD_GPU);
    assert_int_equal(o->row_bytes, 0);
    offload_close(o);
    free(l);
}

/* A weight of two layers, as ALBERT has them, and one that another kernel than a lookup reads, stay. */
static void shared_weights_stay(void **state)
{
    Layered *l = layered(false);
    const FtxProgram *p = &l->t.programs[L_DECODE_4];
    Offload *o;

    (void)state;
    l->t.operands[l->t.launches[p->first_launch + 1 + 2 * 5 + 1].first_operand + 1].offset =
        l->weights[of_layer(4)].offset;
    o = opened(l, FTX_NO_GPU_LAYERS, 0);
    assert_int_equal(o->weights[of_layer(4)].layer, -1);
    assert_int_equal(o->weights[of_layer(4)].place, OFFLOAD_GPU);
    assert_int_equal(o->weights[of_layer(5) + 1].place, OFFLOAD_COPIED);
    offload_close(o);

    l->t.kernels[L_EMBED].family = l->t.kernels[L_HEAD].family;
    o = opened(l, FTX_NO_GPU_LAYERS, 0);
    assert_int_equal(o->weights[0].place, OFFLOAD_GPU);
    offload_close(o);
    free(l);
}

static void bad_wishes_are_refused(void **state)
{
    Layered *l = layered(false);
    FtxError err = {0};
    Offload *o;

    (void)state;
    assert_int_equal(offload_open(&memory, &l->t.artifact, &l->t.plan, 0, 1000, &o, &err), FTX_EINVAL);
    assert_null(o);
    assert_non_null(strstr(err.text, "gpu_memory (--gpu-memory) is 0.000 GB, and with all 6 layers in host memory"));
    l->t.operands[1].offset = l->weights[WEIGHTS - 1].offset + l->weights[WEIGHTS - 1].bytes;
    assert_int_equal(offload_open(&memory, &l->t.artifact, &l->t.plan, 1, 0, &o, &err), FTX_EFORMAT);
    assert_null(o);
    assert_non_null(strstr(err.text, "embed: operand 1 is no weight"));
    free(l);
}

/* Spans are whole: the weights of a place that lie side by side in the artifact, gaps between them included. */
static void spans_cover_what_is_read(void **state)
{
    Layered *l = layered(false);
    Offload *o = opened(l, 3, 0);
    OffloadSpan s;
    uint32_t at = 0;

    (void)state;
    assert_true(offload_span(o, &at, &s));
    assert_int_equal(s.place, OFFLOAD_ROWS);
    assert_int_equal(s.to, o->host_bytes - o->row_bytes);
    assert_true(offload_span(o, &at, &s));
    assert_int_equal(s.place, OFFLOAD_GPU);
    assert_int_equal(s.stored, l->weights[of_layer(0)].offset);
    assert_int_equal(s.to, 0);
    assert_int_equal(s.bytes, l->weights[of_layer(2) + 2].offset + l->weights[of_layer(2) + 2].bytes - s.stored);
    assert_true(offload_span(o, &at, &s));
    assert_int_equal(s.place, OFFLOAD_COPIED);
    assert_int_equal(s.bytes, l->weights[SHARED - 1].offset + l->weights[SHARED - 1].bytes - s.stored);
    assert_true(offload_span(o, &at, &s));
    assert_int_equal(s.place, OFFLOAD_GPU);
    assert_int_equal(s.stored, l->weights[SHARED].offset);
    assert_int_equal(s.bytes, room_of(l, SHARED) + l->weights[HEAD].bytes);
    assert_false(offload_span(o, &at, &s));
    offload_close(o);
    free(l);
}

/* --- drawn ------------------------------------------------------------------------------------------ */

static uint32_t seed;

static uint32_t drawn(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

/* Other sizes; launches that read other weights, of their layer or not; a launch whose label names another layer. */
static void disturb(Layered *l)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < WEIGHTS; i++) {
        const uint64_t old = l->weights[i].offset;

        weight(l, i, 1 + drawn(drawn(4) ? 20 : 200), &at);
        for (uint32_t k = 0; k < l->t.n_operands; k++) /* upwards: no new offset is an old one still to come */
            if (l->t.operands[k].space == FTX_SPACE_WEIGHTS && l->t.operands[k].reserved == 0 &&
                l->t.operands[k].offset == old) {
                l->t.operands[k].offset = l->weights[i].offset;
                l->t.operands[k].reserved = 1;
            }
    }
    l->t.facts.weight_bytes = at;
    for (uint32_t n = drawn(6); n > 0; n--) {
        FtxOperand *o = &l->t.operands[drawn(l->t.n_operands)];

        if (o->space == FTX_SPACE_WEIGHTS)
            o->offset = l->weights[drawn(WEIGHTS)].offset;
    }
    const uint32_t to = 1 + drawn(2 * LAYERS), from = 1 + drawn(2 * LAYERS);
    for (int p = 0; p < L_PROGRAMS; p++) { /* a launch between those of another layer */
        FtxLaunch *first = &l->t.launches[l->t.programs[p].first_launch];

        first[to].label = first[from].label;
    }
}

/* Which byte of the weight block each byte of the staging area holds, + 1; 0: none. */
static uint32_t staging[L_BYTES];
static bool unread[WEIGHTS]; /* copied, and not read yet */

static void copy(const Offload *o, const OffloadCopy *c)
{
    const Artifact *a = o->artifact;

    assert_true(c->bytes > 0 && c->at + c->bytes <= o->staging_bytes && c->from + c->bytes <= o->host_bytes);
    for (uint64_t k = 0; k < c->bytes; k++)
        staging[c->at + k] = 0;
    for (uint32_t i = 0; i < a->n_weights; i++)
        for (uint64_t k = 0; o->weights[i].place == OFFLOAD_COPIED && k < a->weights[i].bytes; k++)
            if (o->weights[i].from + k >= c->from && o->weights[i].from + k < c->from + c->bytes) {
                unread[i] = true;
                staging[c->at + o->weights[i].from + k - c->from] = (uint32_t)(a->weights[i].offset + k + 1);
            }
}

static void check_all_read(void)
{
    for (int i = 0; i < WEIGHTS; i++)
        assert_false(unread[i]);
}

/* Every launch finds its weights where they are said to be, and nothing is copied that no launch reads. Returns the bytes copied. */
static uint64_t walk(const Offload *o, const ArtifactPlan *p, const FtxProgram *g)
{
    const Artifact *a = o->artifact;
    uint64_t bytes = 0;

    memset(staging, 0, sizeof staging);
    for (uint32_t l = g->first_launch; l < g->first_launch + g->n_launches; l++) {
        const FtxOperand *operand = &p->operands[p->launches[l].first_operand];
        size_t n;
        const OffloadCopy *c = offload_copies(o, l, &n);

        if (n)
            check_all_read();
        for (size_t i = 0; i < n; i++) {
            copy(o, &c[i]);
            bytes += c[i].bytes;
        }
        for (uint32_t k = 0; k < p->kernels[p->launches[l].kernel].n_operands; k++) {
            uint64_t inside;

            if (operand[k].space != FTX_SPACE_WEIGHTS)
                continue;
            const uint32_t i = offload_find(a, operand[k].offset, &inside);
            assert_int_equal(inside, 0);
            assert_int_not_equal(o->weights[i].place, OFFLOAD_UNUSED);
            unread[i] = false;
            for (uint64_t b = 0; o->weights[i].place == OFFLOAD_COPIED && b < a->weights[i].bytes; b++)
                assert_int_equal(staging[o->weights[i].at + b], a->weights[i].offset + b + 1);
        }
    }
    check_all_read();
    return bytes;
}

/* No two weights share a byte of their place, none is outside of it, and none is in two places. */
static void check_places(const Offload *o)
{
    static uint8_t taken[2][2 * L_BYTES];
    const Artifact *a = o->artifact;
    uint64_t host = 0, gpu = 0;

    memset(taken, 0, sizeof taken);
    for (uint32_t i = 0; i < a->n_weights; i++) {
        const OffloadWeight *w = &o->weights[i];
        const bool on_gpu = w->place == OFFLOAD_GPU;
        const uint64_t to = on_gpu ? w->at : w->from;

        if (w->place == OFFLOAD_UNUSED)
            continue;
        *(on_gpu ? &gpu : &host) += (a->weights[i].bytes + 255) / 256 * 256;
        assert_int_equal(to % 256, 0);
        assert_int_equal(w->at % 256, 0);
        assert_true(to + a->weights[i].bytes <= (on_gpu ? o->gpu_bytes : o->host_bytes));
        for (uint64_t k = 0; k < a->weights[i].bytes; k++)
            assert_false(taken[on_gpu][to + k]++);
    }
    assert_int_equal(gpu, o->gpu_bytes);
    assert_int_equal(host, o->host_bytes);
}

/* The spans bring each weight that is read to its place, and write nothing outside of it. */
static void check_spans(const Offload *o)
{
    static uint32_t block[2][2 * L_BYTES];
    const Artifact *a = o->artifact;
    OffloadSpan s;
    uint32_t at = 0;

    memset(block, 0, sizeof block);
    while (offload_span(o, &at, &s)) {
        assert_true(s.to + s.bytes <= (s.place == OFFLOAD_GPU ? o->gpu_bytes : o->host_bytes));
        for (uint64_t k = 0; k < s.bytes; k++)
            block[s.place == OFFLOAD_GPU][s.to + k] = (uint32_t)(s.stored + k + 1);
    }
    for (uint32_t i = 0; i < a->n_weights; i++) {
        const OffloadWeight *w = &o->weights[i];
        const bool on_gpu = w->place == OFFLOAD_GPU;

        for (uint64_t k = 0; w->place != OFFLOAD_UNUSED && k < a->weights[i].bytes; k++)
            assert_int_equal(block[on_gpu][(on_gpu ? w->at : w->from) + k], a->weights[i].offset + k + 1);
    }
}

static void drawn_plans_find_their_weights(void **state)
{
    uint64_t copied = 0;

    (void)state;
    for (uint32_t turn = 0; turn < 300; turn++) {
        Layered *l = layered(turn % 5 == 0);
        Offload *o;
        uint64_t most = 0;

        seed = turn + 1;
        disturb(l);
        o = opened(l, turn % 7 == 0 ? FTX_NO_GPU_LAYERS : (int)(1 + drawn(LAYERS)), 0);
        check_places(o);
        check_spans(o);
        for (int p = 0; p < L_PROGRAMS; p++) {
            const uint64_t bytes = walk(o, &l->t.plan, &l->t.programs[p]);

            most = bytes > most ? bytes : most;
        }
        assert_int_equal(most, o->step_bytes);
        copied += most;
        offload_close(o);
        free(l);
    }
    assert_true(copied > 0);
}

/* With each budget from too little to too much: the fewest layers leave, and what is on the GPU fits. */
static void budgets_are_kept(void **state)
{
    unsigned refused = 0, rows_only = 0, whole = 0, some = 0;

    (void)state;
    for (uint32_t turn = 0; turn < 40; turn++) {
        Layered *l = layered(turn % 5 == 0);
        uint32_t stayed = 0;
        uint64_t all = 0;

        seed = turn + 1;
        disturb(l);
        Offload *o = opened(l, LAYERS, 0);
        all = o->gpu_bytes;
        offload_close(o);
        for (uint64_t budget = 1; budget < all + 1024; budget += 1 + drawn(300)) {
            FtxError err;

            if (offload_open(&memory, &l->t.artifact, &l->t.plan, 0, budget, &o, &err)) {
                refused++;
                assert_int_equal(stayed, 0);
                Offload *none = opened(l, FTX_NO_GPU_LAYERS, 0);
                assert_true(none->gpu_bytes + none->staging_bytes > budget);
                offload_close(none);
                continue;
            }
            assert_true(o->gpu_bytes + o->staging_bytes <= budget);
            assert_true(o->gpu_layers >= stayed); /* more memory never holds fewer layers */
            stayed = o->gpu_layers;
            assert_int_equal(o->host_bytes == 0, budget >= all);
            if (o->gpu_layers + 2 < o->layers) { /* one layer more would not fit */
                Offload *more = opened(l, o->gpu_layers + 1, 0);

                assert_true(more->gpu_bytes + more->staging_bytes > budget);
                offload_close(more);
            }
            whole += !o->host_bytes;
            rows_only += o->host_bytes && o->gpu_layers == o->layers;
            some += o->gpu_layers < o->layers;
            offload_close(o);
        }
        free(l);
    }
    assert_true(refused > 40 && whole > 40 && some > 40 && rows_only > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_name_layers),       cmocka_unit_test(all_layers_stay),
        cmocka_unit_test(the_last_layers_go),       cmocka_unit_test(tied_rows_stay),
        cmocka_unit_test(shared_weights_stay),      cmocka_unit_test(bad_wishes_are_refused),
        cmocka_unit_test(spans_cover_what_is_read), cmocka_unit_test(drawn_plans_find_their_weights),
        cmocka_unit_test(budgets_are_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
