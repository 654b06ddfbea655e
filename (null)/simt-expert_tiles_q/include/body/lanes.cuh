// lanes.cuh - the end of a beam search step: from the best continuations of each row to new hypotheses and the lanes of
// the next step, and whether the search is over. One warp, in shared memory; kernels/ref/beam.c has it in plain loops.
//
//   lane          one running sequence of the search; `width` of them, a row of logits each
//   entry         a continuation of a row by one id: id and total = sum of log-probabilities; `take` of a row, best first
//   hypothesis    a finished sequence: an entry with an end id, or any at the length limit
//   diverse group lanes [first, first + size) that choose after earlier groups have chosen (Vijayakumar et al. 2016);
//                 without diversity all lanes are one such group
#pragma once
#include "device/fragment.cuh"
#include "device/io.h"
#include "device/order.cuh"
#include "device/warp.cuh"

struct BeamBest { // a continuation; id -1: none, nor any behind it
    float total;
    int id;
};
struct BeamEntry : BeamBest {
    float logp; // of id, under the raw logits
};

// Where a merge of rows stands in one of them: its entries are taken best first.
struct BeamHead {
    int at, best;    // entries before `at` are taken; index of the best that is not, -1: none
    float left;      // its total less the diversity penalty
    float last;      // the same of the entry taken last, and its id
    int last_id;
};

// What a block knows of its search, in shared memory.
template <class K> struct BeamGroup {
    FtxBeam beam;
    FtxParams params;
    int row, lane, slot, length, prompt, limit; // row: of lane 0
    int live;              // lanes that have a row of logits: 1 in the step that ends the prompt
    int take;              // entries of a row that are looked at
    int inverse;           // 65536 / take, rounded up: i / take is i * inverse >> 16, for few entries
    int ends[most(1, K::END_IDS)];
    bool ahead;            // the lanes' owners are already in shared memory
    float score;           // this lane's sum of log-probabilities
    float norm, far;       // length ^ length_penalty: after this step; of the longest hypothesis that may follow
    int size;              // lanes of a diverse group; all lanes where there are none
    float rate;            // diversity penalty; 0 where the next id is forced
    int slots[K::WIDTH];
    float scores[K::WIDTH]; // the lanes' sums
    // results of the merge: lane i goes on from lane parent[i] with id next[i]
    int parent[K::WIDTH], next[K::WIDTH], moved, done, finish, broken; // broken: no row has an entry
    u32 kept[ceil_div(K::WIDTH, 32)]; // bit i: hypothesis i is new
    float total[K::WIDTH], logp[K::WIDTH];
    float hyp_score[K::WIDTH], hyp_sum[K::WIDTH];
    int hyp_length[K::WIDTH], hyp_end[K::WIDTH], hyp_from[K::WIDTH], hyp_last[K::WIDTH];
    float hyp_logp[K::WIDTH]; // of hyp_last
    BeamHead head[K::WIDTH]; // of rows
};

template <class K> DEVICE bool ends_at(const BeamGroup<K> &g, int id)
{
    bool end = false;
#pragma unroll 1
    for (int i = 0; i < g.params.n_ends; i++)
        end = end || g.ends[i] == id;
    return end;
}

// The only id that may follow, -1: any.
template <class K> DEVICE int forced_id(const BeamGroup<K> &g)
{
    if (g.beam.forced_bos >= 0 && g.length == g.prompt)
        return g.beam.forced_bos;
    return g.length + 1 == g.limit ? g.beam.forced_eos : -1;
}

// --- a diverse group, or all lanes: [first, first + g.size) ------------------------------------------

// One thread: stores a hypothesis in a free place of its group, or in place of a worse one.
template <class K> DEVICE void keep_hypothesis(BeamGroup<K> &g, int first, int parent, const BeamEntry &e, bool end)
{
    const int n = g.length + 1 - g.prompt;
    const float score = e.total / g.norm;
    int worst = first;
#pragma unroll 1
    for (int i = first + 1; i < first + g.size; i++)
        if (g.hyp_length[worst] && (!g.hyp_length[i] || g.hyp_score[i] < g.hyp_score[worst]))
            worst = i;
    if (g.hyp_length[worst] && g.hyp_score[worst] >= score)
        return;
    g.hyp_score[worst] = score;
    g.hyp_sum[worst] = e.total;
    g.hyp_length[worst] = n;
    g.hyp_end[worst] = end;
    g.hyp_from[worst] = parent;
    g.hyp_last[worst] = e.id;
    g.hyp_logp[worst] = e.logp;
}

// One warp: whether the search is over (g.done), and how its best hypothesis ends (g.finish). Thread i handles lanes i
// and i + 32. A diverse group that is over stops here: its lanes counted for the penalty of later groups in this step.
template <class K> DEVICE void judge(BeamGroup<K> &g)
{
    static_assert(K::WIDTH <= 64, "two lanes of the search for each of the warp");
    constexpr int EACH = ceil_div(K::WIDTH, 32);
    const int width = g.beam.width, size = g.size;
    const bool limit = g.length + 1 >= g.limit, early = g.beam.early == 1;
    const float far = g.far;
    u32 key[EACH], top = 0; // of scores; 0: none
    bool done = true, end[EACH], best = false;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const int i = lane_id() + 32 * k;
        key[k] = i < width && g.hyp_length[i] ? order_key(g.hyp_score[i] + 0.0f) : 0;
        end[k] = i < width && g.hyp_end[i];
        top = key[k] > top ? key[k] : top;
    }
    top = warp_most(top);
#pragma unroll
    for (int k = EACH - 1; k >= 0; k--) { // of equal ones the first
        const u32 all = warp_ballot(top && key[k] == top), ends = warp_ballot(end[k]);
        best = all ? ends >> (__ffs(all) - 1) & 1 : best;
    }
#pragma unroll 1
    for (int first = 0; first < width; first += size) {
        const float mean = g.total[first] / far;
        u32 worst = ~0u;
        int n = 0;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const int i = lane_id() + 32 * k;
            const bool mine = key[k] && i >= first && i < first + size;
            worst = mine && key[k] < worst ? key[k] : worst;
            n += __popc(warp_ballot(mine));
        }
        worst = warp_min(worst);
        const bool over = limit || (early && n == size) || !(mean > (n == size ? order_value(worst) : -1e9f));
        done = done && over;
        if (size < width && over) {
            warp_sync();
            for (int i = first + lane_id(); i < first + size; i += 32)
                g.total[i] = negative_infinity();
        }
    }
    if (lane_id() == 0) {
        g.finish = best ? 1 : 2;
        g.done = done;
    }
}

// The total of an entry less the diversity penalty: `rate` for each lane of an earlier group that takes its id in this
// step. Called several times for one entry, with equal results each time: fmaf leaves the compiler no choice of
// contraction.
template <class K> DEVICE float total_left(const BeamGroup<K> &g, int first, const BeamEntry &e)
{
    int n = 0;
#pragma unroll 1
    for (int i = 0; i < first; i++)
        n += g.total[i] > negative_infinity() && g.next[i] == e.id;
    return n ? fmaf(-g.rate, (float)n, e.total) : e.total;
}

// The place of the row's best entry after the one taken last; 0: none. Entries are sorted by their totals, which the
// penalty only lowers: the scan stops at the first total below the best found.
template <class K> DEVICE u64 find_head(BeamGroup<K> &g, const BeamEntry *entry, int first, int row)
{
    BeamHead &h = g.head[row];
    const BeamEntry *b = entry + row * g.take;
    const auto behind = [&](float left, int id) { return left < h.last || (left == h.last && id > h.last_id); };
#pragma unroll 1
    while (h.at < g.take && b[h.at].id >= 0 && !behind(total_left<K>(g, first, b[h.at]), b[h.at].id))
        h.at++;
    h.best = -1;
#pragma unroll 1
    for (int i = h.at; i < g.take && b[i].id >= 0 && !(h.best >= 0 && b[i].total < h.left); i++) {
        const float left = total_left<K>(g, first, b[i]);
        if (behind(left, b[i].id) && (h.best < 0 || left > h.left || (left == h.left && b[i].id < b[h.best].id))) {
            h.best = i;
            h.left = left;
        }
    }
    return h.best < 0 ? 0 : place_of(h.left + 0.0f, row);
}

// One warp: the lanes of the group from the `running`-th on have no continuation.
template <class K> DEVICE void give_nothing(BeamGroup<K> &g, int first, int running)
{
    for (int i = running + lane_id(); i < g.size; i += 32) {
        g.parent[first + i] = g.next[first + i] = 0;
        g.logp[first + i] = 0.0f;
        g.total[first + i] = negative_infinity();
    }
    warp_sync();
}

// The same as `choose` below, without diversity and for at most 32 * EACH entries: thread i holds the entries i,
// i + 32, ... and counts for each the entries that come before it.
template <class K, int EACH> DEVICE void choose_few(BeamGroup<K> &g, const BeamEntry *entry, int first, int from, int n)
{
    const bool last = g.length + 1 >= g.limit;
    const int size = g.size, inverse = g.inverse, n_ends = g.params.n_ends;
    BeamEntry e[EACH];
    u32 key[EACH], ends[EACH]; // 0: none
    int row[EACH], rank[EACH], at[EACH], valid = 0, ending = 0;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const int i = lane_id() + 32 * k;
        e[k] = i < n ? entry[i] : BeamEntry{{0.0f, -1}, 0.0f};
        key[k] = e[k].id >= 0 ? order_key(e[k].total + 0.0f) : 0;
        row[k] = from + (i * inverse >> 16);
        ends[k] = n_ends ? warp_ballot(key[k] && ends_at<K>(g, e[k].id)) : 0;
        rank[k] = 0;
        valid += __popc(warp_ballot(key[k] != 0));
        ending += __popc(ends[k]);
    }
#pragma unroll
    for (int half = 0; half < EACH; half++)
#pragma unroll 1
        for (int j = 0; j < 32 && j + 32 * half < n; j += 8)
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const u32 other = shuffle(key[half], j + i);
#pragma unroll
                for (int k = 0; k < EACH; k++) // of equal ones the first
                    rank[k] += other + (j + i + 32 * half < lane_id() + 32 * k) > key[k];
            }
#pragma unroll
    for (int k = 0; k < EACH; k++)
        at[k] = rank[k];
#pragma unroll
    for (int half = 0; half < EACH; half++)
#pragma unroll 1
        for (u32 left = ends[half]; left; left &= left - 1) { // entries that end take no lane
            const int other = shuffle(rank[half], __ffs(left) - 1);
#pragma unroll
            for (int k = 0; k < EACH; k++)
                at[k] -= other < rank[k];
        }
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (key[k] && !(ends[k] >> lane_id() & 1) && at[k] < size) {
            g.parent[first + at[k]] = row[k];
            g.next[first + at[k]] = e[k].id;
            g.total[first + at[k]] = e[k].total;
            g.logp[first + at[k]] = e[k].logp;
        }
    if (valid && lane_id() == 0)
        g.broken = 0;
    if (last || ending)
#pragma unroll 1
        for (int i = 0; i < least(valid, size); i++) {
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                const bool end = ends[k] >> lane_id() & 1;
                if (key[k] && rank[k] == i && (last || end))
                    keep_hypothesis<K>(g, first, row[k], e[k], end);
            }
            warp_sync();
        }
    give_nothing<K>(g, first, valid - ending);
}

// One warp: merges the rows' entries [live][take] in shared memory, best first, into hypotheses and the group's next
// lanes. A thread handles one or two rows.
template <class K> DEVICE void choose(BeamGroup<K> &g, const BeamEntry *entry, int first)
{
    const bool last = g.length + 1 >= g.limit;
    const int lane = lane_id(), from = g.live == 1 ? 0 : first, rows = g.live == 1 ? 1 : g.size, n = rows * g.take;
    int running = 0;
    if (K::BLOCKS == 1 && g.rate == 0.0f && n <= 64) { // not with two blocks an SM: too few registers
        if (n <= 32)
            choose_few<K, 1>(g, entry + from * g.take, first, from, n);
        else
            choose_few<K, 2>(g, entry + from * g.take, first, from, n);
        return;
    }
    u64 place[2] = {0, 0};
#pragma unroll
    for (int k = 0; k < 2; k++)
        if (lane + 32 * k < rows) {
            g.head[from + lane + 32 * k] = BeamHead{0, -1, 0.0f, -negative_infinity(), -1};
            place[k] = find_head<K>(g, entry, first, from + lane + 32 * k);
        }
    warp_sync();
#pragma unroll 1
    for (int rank = 0; running < g.size || rank < g.size; rank++) {
        const u64 top = warp_most(place[0] > place[1] ? place[0] : place[1]);
        if (!top)
            break;
        const int row = place_id(top), who = row - from;
        const BeamEntry &from_row = entry[row * g.take + g.head[row].best];
        const BeamEntry e = {{place_value(top), from_row.id}, from_row.logp};
        warp_sync();
        if (lane == who % 32) {
            g.head[row].last = e.total;
            g.head[row].last_id = e.id;
            const u64 next = find_head<K>(g, entry, first, row);
            place[0] = who / 32 ? place[0] : next;
            place[1] = who / 32 ? next : place[1];
        }
        const bool end = ends_at<K>(g, e.id);
        if (lane == 0) {
            g.broken = 0;
            if ((last || end) && rank < g.size)
                keep_hypothesis<K>(g, first, row, e, end);
            if (!end && running < g.size) {
                g.parent[first + running] = row;
                g.next[first + running] = e.id;
                g.total[first + running] = e.total;
                g.logp[first + running] = e.logp;
            }
        }
        running += !end;
        warp_sync();
    }
    give_nothing<K>(g, first, running);
}

// One warp: the lanes of the next step; diverse groups choose one after another.
template <class K> DEVICE void choose_all(BeamGroup<K> &g, const BeamEntry *entry)
{
    if (lane_id() == 0)
        g.broken = 1;
#pragma unroll 1
    for (int first = 0; first < g.beam.width; first += g.size)
        choose<K>(g, entry, first);
    u32 moved = 0;
#pragma unroll
    for (int k = 0; k < ceil_div(K::WIDTH, 32); k++) {
        const int i = lane_id() + 32 * k;
        const bool mine = i < g.beam.width;
        moved |= warp_ballot(mine && g.parent[i] != i);
        const u32 kept = warp_ballot(mine && g.hyp_from[i] >= 0);
        if (lane_id() == 0)
            g.kept[k] = kept;
    }
    if (lane_id() == 0)
        g.moved = moved != 0;
}
template <class K> DEVICE bool any_kept(const BeamGroup<K> &g)
{
    u32 kept = 0;
#pragma unroll
    for (int k = 0; k < ceil_div(K::WIDTH, 32); k++)
        kept |= g.kept[k];
    return kept != 0;
}
