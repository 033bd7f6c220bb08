// The best of all parts of a row, from x at x_at, where best.comp stored n_parts of them.

void merge_parts(uint row) {
    const uint MORE = SLOTS / BEST - 1u; // parts merged at once with the best so far
    const uint me = gl_LocalInvocationID.x;
    for (uint i = me; i < BEST; i += gl_WorkGroupSize.x) slots[i] = NOTHING;
    for (uint first = 0u; first < n_parts; first += MORE) {
        uint n = min(MORE, n_parts - first) * BEST, n_slots = 2u * BEST;
        while (n_slots < n + BEST) n_slots *= 2u;
        for (uint i = me; i < n_slots - BEST; i += gl_WorkGroupSize.x) {
            slots[BEST + i] = i < n ? x[x_at / 2u + (row * n_parts + first) * BEST + i] : NOTHING;
        }
        barrier();
        merge_runs(n_slots);
    }
}
