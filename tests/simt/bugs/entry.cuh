// entry.cuh - the beginning of a step behind another one: what may be read ahead of which wait (FREE_DEPENDENTS).
// BUG: 0 none, else what is wrong.
//
//   the previous step ── entry ── second ── third        length: what every step reads and the last kernel counts up
//
// The entry lets the second start while the previous step still runs, so the second may read weights alone before its
// wait; it lets the third start behind that, so the third may read ahead what the previous step has left.
enum Part { STEP_IN_FRONT, ENTRY, SECOND, THIRD };
struct Args {
    const float *w; // [32]
    int *length;
    float *y; // [3][32]
    u64 part;
};

DEVICE void body(const Args &a)
{
    const int lane = lane_id();
    if (a.part == STEP_IN_FRONT) {
        if (lane == 0)
            *a.length += 1;
    } else if (a.part == ENTRY) {
        launch_dependents();
        wait_for_previous();
        a.y[lane] = (float)*a.length;
    } else if (a.part == SECOND) {
        const float w = a.w[lane];
        int length = 0;
        if (BUG == 1) // 1: the length as the previous step may not have left it yet
            length = *a.length;
        if (BUG == 2) // 2: the third may start before that step has ended
            launch_dependents();
        wait_for_previous();
        launch_dependents();
        if (BUG != 1)
            length = *a.length;
        a.y[32 + lane] = a.y[lane] * w + (float)length;
    } else {
        const int length = *a.length;
        wait_for_previous();
        a.y[64 + lane] = a.y[32 + lane] + (float)length;
    }
}
