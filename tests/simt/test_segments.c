/* test_segments.c - `beam` on segments of the logits gives the same result as `beam` on all logits: both forms run on
 * the same searches, on rows with ties, with -inf, with only zeros, with NaN. */
#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/instantiate/instantiate.h"

enum { WIDTH = 4, SLOTS = 12, ROWS = 10, LENGTH = 40, ENDS = 3, BIASES = 2, OPERANDS = 19 };

static bool wide;
static uint64_t dice;

static int below(int n)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (int)((dice >> 33) % (uint64_t)n);
}

/* --- the kernel in two forms ----------------------------------------------------------------------- */

typedef struct Forms {
    Arena *keep;
    Graph *g;
    Catalog catalog;
    Build *build;
    int V;
    Instance *in[2]; /* [0] without segments, [1] with */
    Fitted fit[2];
} Forms;

static void fit_form(Forms *f, bool segments)
{
    int64_t *params = arena_array(f->keep, int64_t, f->g->values.n * CONTRACT_MAX_FORMS);
    Target target;
    Diag d = {0};

    if (!target_parse("sm_90a", &target, &d))
        fail_msg("%s", d.text);
    const ProgramFacts facts = {.g = f->g,
                                .decode = true,
                                .bucket = ROWS,
                                .t_max = ROWS,
                                .s_max = ROWS,
                                .target = target_facts(target),
                                .kv = DT_FP16,
                                .params = params};

    for (Id v = 1; v < f->g->values.n; v++)
        params[v * CONTRACT_MAX_FORMS] = 1;
    params[f->g->logits * CONTRACT_MAX_FORMS + scene_form(&f->catalog, "segments")] = segments;
    for (size_t i = 0; i < f->catalog.n; i++) {
        const Contract *k = f->catalog.at[i];
        const char *reason;
        Binding b;

        if (k->device != KD_CUDA || strcmp(k->family, "beam") != 0)
            continue;
        if (!match_at(&facts, ir_uses(f->g), k, &k->matches.at[!segments], 0, f->g->output, 0, &b, NULL, f->keep) ||
            !contract_fit(&facts, &b, f->keep, f->keep, &f->fit[segments], &reason))
            fail_msg("beam does not fit");
    }
    f->in[segments] = f->fit[segments].instance;
    build_add(f->build, f->in[segments]->entry, instantiate_text(f->in[segments], target, f->keep));
}

static Forms open_forms(int V, Build *build)
{
    static const char text[] =
        "graph \"case\"\nlimits sequences=%d context=%d tokens=64 kv_block=8 kv_pages=72 logit_bias=%d "
        "end_ids=%d beams=%d\n%%1 = ids : [T] i32\n%%2 = weight {name=\"e\"} : [50,8] fp32\n"
        "%%3 = embed %%1 %%2 : [T,8] fp32\n%%4 = select_last %%3 : [S,8] fp32\n"
        "%%5 = weight {name=\"w\"} : [%d,8] fp32\n%%6 = linear %%4 %%5 - : [S,%d] fp32\n"
        "%%7 = sample %%6 : [S] i32\n%%8 = beam %%6 %%7 : [S] i32\noutput %%8\n";
    Forms f = {.keep = arena_open(), .build = build, .V = V};
    Diag d = {0};

    f.g = ir_parse("case", arena_printf(f.keep, text, SLOTS, LENGTH, BIASES, ENDS, WIDTH, V, V), &d);
    if (!f.g || !catalog_open(f.keep, &f.catalog, &d))
        fail_msg("%s", d.text);
    fit_form(&f, false);
    fit_form(&f, true);
    return f;
}

static void close_forms(Forms *f)
{
    ir_graph_close(f->g);
    arena_close(f->keep);
}

/* --- state of the searches -------------------------------------------------------------------------- */

/* What the kernel reads and writes. Rows 0 to 3: a search under way; 4: the first step of a search; 5: no search;
 * 6 to 9: a search, in part of the cases in its last step or with logits processors. */
typedef struct State {
    FtxStep step;
    FtxRow rows[SLOTS];
    FtxParams params[SLOTS];
    FtxBeam beams[SLOTS];
    int32_t ends[SLOTS][ENDS];
    FtxBias bias[SLOTS][BIASES];
    int32_t bad_words[1];
    FtxToken token[64];
    int32_t history[SLOTS][LENGTH], owner[SLOTS][LENGTH], group[SLOTS][WIDTH];
    FtxLane lanes[SLOTS];
    int32_t hyps[SLOTS][LENGTH];
    float logps[2][SLOTS][LENGTH];
    FtxOut out[FTX_OUT_RING][SLOTS];
    int32_t y[SLOTS];
} State;

static void begin_search(State *s, int row, int width, int live, int prompt, int length, int limit, bool simple)
{
    for (int lane = 0; lane < WIDTH; lane++)
        s->group[row][lane] = row + lane; /* slots are numbered as rows; the first step has a row for lane 0 only */
    for (int lane = 0; lane < live; lane++) {
        const int r = row + lane;

        s->rows[r] = (FtxRow){.q_start = r,
                              .q_len = 1,
                              .kv_len = length,
                              .slot = r,
                              .prompt = prompt,
                              .limit = limit,
                              .group = row,
                              .lane = lane};
        s->beams[r] = (FtxBeam){.width = width,
                                .length_penalty = 0.8f,
                                .early = below(3),
                                .forced_bos = -1,
                                .forced_eos = below(4) ? -1 : 7,
                                .emit = 1};
        s->params[r] = (FtxParams){.top_p = 1.0f,
                                   .repetition = simple ? 1.0f : 1.3f,
                                   .n_ends = below(ENDS + 1),
                                   .simple = simple,
                                   .n_bias = simple ? 0 : BIASES,
                                   .ngram = simple ? 0 : 2};
        if (simple && s->beams[r].forced_eos < 0)
            s->params[r].top_needed = width + s->params[r].n_ends;
        if (lane) {
            s->beams[r] = s->beams[row];
            s->params[r] = s->params[row];
        }
    }
    for (int slot = row; slot < row + width; slot++) {
        s->lanes[slot] = (FtxLane){.score = -1.5f * (float)(slot - row),
                                   .token = below(50),
                                   .hyp_length = live > 1 && !below(3) ? 2 : 0,
                                   .hyp_score = -3.0f,
                                   .hyp_sum = -5.0f};
        for (int p = prompt; p < length; p++)
            s->owner[slot][p] = row + below(width);
    }
}

static void make_state(State *s, int V)
{
    *s = (State){.step = {.tokens = ROWS, .rows = ROWS, .decode_rows = ROWS}};
    begin_search(s, 0, WIDTH, WIDTH, 3, 9, LENGTH, true);
    begin_search(s, 4, 1, 1, 6, 6, LENGTH, true);
    begin_search(s, 6, WIDTH, WIDTH, 2, 11, below(2) ? 12 : LENGTH, below(2));
    s->rows[5] = (FtxRow){.q_start = 5, .q_len = 1, .kv_len = 5, .slot = 5, .emit = 1, .group = 5, .lane = -1};
    for (int slot = 0; slot < SLOTS; slot++) {
        for (int p = 0; p < LENGTH; p++)
            s->history[slot][p] = below(V);
        for (int i = 0; i < ENDS; i++)
            s->ends[slot][i] = below(V);
        for (int i = 0; i < BIASES; i++)
            s->bias[slot][i] = (FtxBias){below(V), 1.5f};
    }
}

/* Six kinds of rows. */
static void make_logits(float *x, int V, int kind)
{
    for (int r = 0; r < ROWS; r++, x += V)
        for (int i = 0; i < V; i++) {
            const float v = (float)(below(20001) - 10000) * 1e-3f;

            switch ((kind + r) % 6) {
            case 0: x[i] = v; break;
            case 1: x[i] = floorf(v); break;                                /* many ties */
            case 2: x[i] = i % (V / 3 + 1) == 1 ? v : -INFINITY; break;     /* fewer values than lanes need */
            case 3: x[i] = 0.0f * v; break;                                 /* 0 and -0 */
            case 4: x[i] = i == V - 1 ? 12.0f : i < 3 ? 11.0f : v; break;   /* largest at both ends */
            default: x[i] = r == 8 && i == V / 2 ? NAN : -20.0f + 0.1f * v; /* a NaN in row 8 */
            }
        }
}

/* --- one launch of each form ------------------------------------------------------------------------- */

static void *give(const void *from, size_t bytes, const char *name)
{
    void *p = simt_alloc(bytes, name);

    simt_write(p, from, bytes);
    return p;
}

static void *segments_of_logits(const float *x, float *left, const FtxParams *params, int V)
{
    const size_t bytes = sizeof(FtxSegments) + (size_t)(SLOTS * FTX_SEGMENTS(V)) * sizeof(FtxSegment);
    FtxSegments head = {0};
    FtxSegments *to = simt_alloc(bytes, "$segments");

    simt_fill(to, 0, bytes);
    for (int first = 0, width; first < V; first += width, head.count++) {
        width = below(5) ? V < 400 ? 1 + below(9) : 96 + below(161) : 0;
        width = width < V - first ? width : V - first;
        assert_true(head.count < FTX_SEGMENTS(V));
        for (int r = 0; r < ROWS; r++) {
            FtxSegment p = scene_segment(x + (int64_t)r * V, first, width, 1);

            scene_keep(left + (int64_t)r * V, &p, params[r].top_needed);
            simt_write((FtxSegment *)(to + 1) + (int64_t)r * FTX_SEGMENTS(V) + head.count, &p, sizeof p);
        }
    }
    simt_write(to, &head, sizeof head);
    return to;
}

static void run_form(const Forms *f, bool segments, const float *logits, State *s, SimtSchedule schedule, uint64_t seed)
{
    const Instance *in = f->in[segments];
    const Fitted *fit = &f->fit[segments];
    const int64_t variables[VAR_COUNT] = {[VAR_T] = ROWS, [VAR_S] = ROWS, [VAR_SMS] = 12};
    int32_t sampled[SLOTS] = {[5] = 17};
    State *d = give(s, sizeof *s, "state");
    void *args[32] = {give(logits, sizeof *logits * (size_t)(ROWS * f->V), "logits"),
                      give(sampled, sizeof sampled, "sampled"),
                      &d->step,
                      d->rows,
                      d->params,
                      d->beams,
                      d->ends,
                      d->bias,
                      d->bad_words,
                      d->token,
                      d->history,
                      d->owner,
                      d->group,
                      d->lanes,
                      d->hyps,
                      d->logps,
                      d->out,
                      NULL,
                      d->y};
    size_t n = OPERANDS;
    SimtLaunch l = {.kernel = build_kernel(f->build, in->entry),
                    .args = args,
                    .block = in->block,
                    .smem = in->smem,
                    .overlap = in->overlap};
    FtxError err;

    if (segments) {
        float *left = malloc(sizeof *left * (size_t)(ROWS * f->V));

        memcpy(left, logits, sizeof *left * (size_t)(ROWS * f->V));
        args[17] = segments_of_logits(logits, left, s->params, f->V);
        simt_write(args[0], left, sizeof *left * (size_t)(ROWS * f->V));
        free(left);
    }
    for (size_t i = 0; i < in->contract->scratch.n; i++)
        args[n++] = simt_alloc((size_t)fit->scratch[i], in->contract->scratch.at[i].name);
    for (size_t i = 0; i < in->contract->zeroed.n; i++) {
        args[n] = simt_alloc((size_t)fit->zeroed[i], in->contract->zeroed.at[i].name);
        simt_fill(args[n++], 0, (size_t)fit->zeroed[i]);
    }
    assert_int_equal(l.kernel->args_bytes, n * sizeof *args);
    for (int i = 0; i < 3; i++) {
        int64_t size = 1;

        assert_true(!in->grid[i].n ||
                    expr_run(in->grid[i].words, in->grid[i].n, variables, VAR_COUNT, &size, &err) == FTX_OK);
        l.grid[i] = (unsigned)size;
    }
    simt_schedule(schedule, seed);
    simt_in_front();
    simt_written_in_front(args[0], sizeof *logits * (size_t)(ROWS * f->V));
    if (!simt_launch(&l)) {
        for (size_t i = 0; i < simt_reports(); i++)
            print_message("  %s\n", simt_report(i)->text);
        fail_msg("%s: %zu findings", in->entry, simt_reports());
    }
    for (size_t i = 0; i < in->contract->zeroed.n; i++)
        for (int64_t k = 0; k < fit->zeroed[i]; k++)
            assert_int_equal(((const char *)args[OPERANDS + in->contract->scratch.n + i])[k], 0);
    memcpy(s, d, sizeof *s);
    simt_free_all();
}

/* The two forms add the exponentials in different orders. */
static void near(const char *what, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(a[i] == b[i] || fabsf(a[i] - b[i]) <= 2e-5f))
            fail_msg("%s[%zu]: %.8g by segments, %.8g by logits", what, i, (double)b[i], (double)a[i]);
}

static void same(const State *a, const State *b)
{
    near("log-probability", &a->logps[0][0][0], &b->logps[0][0][0], sizeof a->logps / sizeof(float));
    assert_memory_equal(a->rows, b->rows, sizeof a->rows);
    assert_memory_equal(a->token, b->token, sizeof a->token);
    assert_memory_equal(a->owner, b->owner, sizeof a->owner);
    assert_memory_equal(a->hyps, b->hyps, sizeof a->hyps);
    assert_memory_equal(a->y, b->y, sizeof a->y);
    for (int i = 0; i < SLOTS; i++) {
        near("score", &a->lanes[i].score, &b->lanes[i].score, 1);
        near("hypothesis", &a->lanes[i].hyp_score, &b->lanes[i].hyp_score, 2);
        assert_int_equal(a->lanes[i].token, b->lanes[i].token);
        assert_int_equal(a->lanes[i].hyp_length, b->lanes[i].hyp_length);
        assert_int_equal(a->lanes[i].hyp_end, b->lanes[i].hyp_end);
        for (int k = 0; k < FTX_OUT_RING; k++) {
            assert_int_equal(a->out[k][i].token, b->out[k][i].token);
            assert_int_equal(a->out[k][i].finish, b->out[k][i].finish);
            assert_int_equal(a->out[k][i].length, b->out[k][i].length);
        }
    }
}

static void beams(void **state)
{
    static const int vocabularies[] = {50, 1030, 4097, 8200, 33001};
    char dir[600];
    Forms f[5];
    const size_t n = wide ? 5 : 3;

    (void)state;
    snprintf(dir, sizeof dir, "%s/simt-segments%s", getenv("FTX_BUILD"), wide ? "-long" : "");
    Build *build = build_open(dir);
    for (size_t i = 0; i < n; i++)
        f[i] = open_forms(vocabularies[i], build);
    build_run(build);
    for (size_t i = 0; i < n; i++) {
        const int V = f[i].V;
        float *logits = malloc(sizeof *logits * (size_t)(ROWS * V));

        for (int k = 0; k < (wide ? 30 : 6); k++) {
            State before, by[2];

            dice = (uint64_t)k * 977 + i;
            make_state(&before, V);
            make_logits(logits, V, k);
            by[0] = by[1] = before;
            run_form(&f[i], false, logits, &by[0], SIMT_ROUND_ROBIN, 1);
            run_form(&f[i], true, logits, &by[1], (SimtSchedule)(k % SIMT_SCHEDULES), (uint64_t)k + 1);
            same(&by[0], &by[1]);
            assert_memory_not_equal(&before, &by[0], sizeof before);
        }
        free(logits);
        close_forms(&f[i]);
    }
    build_close(build);
}

int main(int n, char **words)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(beams)};

    wide = n > 1 && strcmp(words[1], "long") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
