// rows.cuh - how many rows of a launch are live, and which row of the input an output row reads.
#pragma once
#include "device/io.h"
#include "device/types.cuh"

// Rows of the step: its tokens, or with ROWS_S its sequences.
template <int ROWS_S> DEVICE int live_rows(const FtxStep *step) { return ROWS_S ? step->rows : step->tokens; }

// LAST: row m of the output is computed from the last token of sequence m.
template <int LAST> DEVICE int source_row(const FtxRow *rows, int m)
{
    return LAST ? rows[m].q_start + rows[m].q_len - 1 : m;
}
