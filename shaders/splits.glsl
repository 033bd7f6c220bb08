// Workgroups that divide the columns of a tile: each leaves its sums, and the last of them to finish adds up all in order.
//
// Requires SPLITS, THREADS, N_SUMS sums of type SUM, of SUM_WORDS words, in each invocation, sums_at, counters_at, and the
// bindings SUMS and SUMS + 1. Workgroup z is the number of the part. No loop over `sums` may stay rolled, or compilers keep
// them in memory: on an H200 products took ten times as long where the loops that add up wrote to `sums`.
layout(set = 0, binding = SUMS) coherent buffer Sums { SUM all_sums[]; };
layout(set = 0, binding = SUMS + 1) coherent buffer Counters { uint counters[]; };

shared bool is_last;

// The first of `count` columns or blocks for this workgroup, and the end, if it takes `step` at a time.
uvec2 own_part(uint count, uint step) {
    if (SPLITS == 1) return uvec2(0, count);
    const uint share = ((count + step - 1u) / step + SPLITS - 1u) / SPLITS * step, first = gl_WorkGroupID.z * share;
    return uvec2(first, min(first + share, count));
}

uint first_sum() {
    const uint tile = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    return sums_at / SUM_WORDS + tile * SPLITS * N_SUMS * THREADS + gl_LocalInvocationIndex;
}

// Leave the sums of this workgroup; true in the last one of its tile.
bool leave_sums() {
    const uint at = first_sum() + gl_WorkGroupID.z * N_SUMS * THREADS;
    const uint tile = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    [[unroll]] for (uint i = 0; i < N_SUMS; i++) all_sums[at + i * THREADS] = sums[i];
    memoryBarrierBuffer();
    barrier();
    if (gl_LocalInvocationIndex == 0) is_last = atomicAdd(counters[counters_at + tile], 1u) + 1u == SPLITS;
    barrier();
    if (!is_last) return false;
    memoryBarrierBuffer();
    if (gl_LocalInvocationIndex == 0) counters[counters_at + tile] = 0;  // for the next dispatch
    return true;
}

// Sum `i` of all workgroups of the tile.
SUM total(uint i) {
    SUM sum = SUM(0);
    [[dont_unroll]] for (uint split = 0; split < SPLITS; split++)
        sum += all_sums[first_sum() + (split * N_SUMS + i) * THREADS];
    return sum;
}
