// processors.cuh - the logits processors of Hugging Face's generate, in its order: bias, repetition penalty, presence and
// frequency penalty, no_repeat_ngram, bad words, min_length. The temperature is applied by the draw (body/draw.cuh),
// since it does not change the order of the logits.
//
// A block works on RANGE neighbouring ids. First it gathers in shared memory what the row's history and settings say
// about each of them, one 32-bit word an id (gather_facts); then each logit is processed once (process).
#pragma once
#include "device/atomic.cuh"
#include "device/block.cuh"
#include "device/io.h"

// The word of an id:  | BANNED 1 bit | SEEN 1 | BIAS_AT 12: index of its bias + 1, 0: none | TIMES 18: how often generated |
constexpr u32 TIMES = (1u << 18) - 1, BIAS_AT = 1u << 18, SEEN = 1u << 30, BANNED = 1u << 31;
enum { MOST_BIASES = 4095 };

// Whether the row has processors other than biases.
DEVICE bool changes(const FtxParams &p, const FtxRow &row)
{
    return p.repetition != 1.0f || p.presence != 0.0f || p.frequency != 0.0f || p.ngram > 0 || p.n_words > 0 || row.kv_len < p.min_length;
}

// Fills facts[RANGE]: the word of an id is facts[index_of(id)]; ids with an index of RANGE or more are left out. shift[i]: the sum
// of all biases of the id of bias[i]. The whole block; ends with a barrier.
template <int RANGE, int THREADS, class F>
DEVICE void gather_facts(u32 *facts, float *shift, const FtxParams &p, const FtxRow &row, const int *history, const int *ends,
                         const FtxBias *bias, const int *words, F index_of)
{
    const int n = row.kv_len;
    block_sync(); // all are done with the previous range
    for (int i = threadIdx.x; i < RANGE; i += THREADS)
        facts[i] = 0;
    block_sync();
    const bool repeats = p.repetition != 1.0f, counts = p.presence != 0.0f || p.frequency != 0.0f;
    const int seen_from = !repeats ? n : p.window > 0 && n > p.window ? n - p.window : 0;
    const int count_from = counts ? row.prompt : n;
    for (int i = least(seen_from, count_from) + threadIdx.x; i < n; i += THREADS) {
        const u32 at = index_of(history[i]);
        if (at < RANGE) {
            if (i >= seen_from)
                shared_atomic_or(&facts[at], SEEN);
            if (i >= count_from)
                shared_atomic_add(&facts[at], 1u);
        }
    }
    if (p.ngram > 0) // ban every id that followed an earlier occurrence of the last n - 1 tokens
        for (int i = threadIdx.x; i + p.ngram <= n; i += THREADS) {
            const u32 at = index_of(history[i + p.ngram - 1]);
            bool same = at < RANGE;
            for (int k = 0; same && k < p.ngram - 1; k++)
                same = history[i + k] == history[n - p.ngram + 1 + k];
            if (same)
                shared_atomic_or(&facts[at], BANNED);
        }
    for (int i = threadIdx.x; i < p.n_words; i += THREADS) { // ban a word's last id where its other ids are the last tokens
        const u32 at = words[i] < 0 ? index_of(~words[i]) : RANGE;
        int k = i; // ids of the word from k on match the history
        if (at >= RANGE)
            continue;
        while (k > 0 && words[k - 1] >= 0 && n - i + k > 0 && history[n - i + k - 1] == words[k - 1])
            k--;
        if (k == 0 || words[k - 1] < 0)
            shared_atomic_or(&facts[at], BANNED);
    }
    if (n < p.min_length)
        for (int i = threadIdx.x; i < p.n_ends; i += THREADS) {
            const u32 at = index_of(ends[i]);
            if (at < RANGE)
                shared_atomic_or(&facts[at], BANNED);
        }
    for (int i = threadIdx.x; i < p.n_bias; i += THREADS) {
        const u32 at = index_of(bias[i].id);
        if (at >= RANGE)
            continue;
        bool first = true; // biases of the same id are added in their order, by the thread of the first
        for (int k = 0; k < i; k++)
            first = first && bias[k].id != bias[i].id;
        if (first) {
            float sum = bias[i].value;
            for (int k = i + 1; k < p.n_bias; k++)
                if (bias[k].id == bias[i].id)
                    sum += bias[k].value;
            shift[i] = sum;
            shared_atomic_or(&facts[at], BIAS_AT * (i + 1));
        }
    }
    block_sync();
}

DEVICE float process(float x, u32 fact, const float *shift, const FtxParams &p)
{
    if (fact) {
        const u32 bias = fact / BIAS_AT & MOST_BIASES, times = fact & TIMES;
        if (bias)
            x += shift[bias - 1];
        if (fact & SEEN)
            x = x < 0.0f ? x * p.repetition : x / p.repetition;
        if (times)
            x -= p.presence + p.frequency * (float)times;
        if (fact & BANNED)
            return __int_as_float((int)0xff800000u);
    }
    return x;
}
