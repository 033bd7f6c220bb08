// The BEST highest of many values in descending order, ties by the lower id: sorted runs in a workgroup's shared memory
// are merged pairwise into runs of the same length. BEST and SLOTS are powers of two.

layout(local_size_x_id = 0) in; // at least BEST
layout(constant_id = 1) const uint BEST = 64u;

#define SLOTS 2048u

shared uvec2 slots[SLOTS]; // key, id

#include "ranks.glsl"

// True if a sorts before b.
void order(uint i, uint j) {
    uvec2 a = slots[i], b = slots[j];
    if (before(b, a)) {
        slots[i] = b;
        slots[j] = a;
    }
}

// Sorts each block of `n` slots, a bitonic run.
void sort_bitonic(uint size, uint n_slots) {
    for (uint apart = size / 2u; apart > 0u; apart /= 2u) {
        for (uint p = gl_LocalInvocationID.x; p < n_slots / 2u; p += gl_WorkGroupSize.x) {
            uint i = 2u * p - (p & (apart - 1u));
            order(i, i + apart);
        }
        barrier();
    }
}

// Sorts the first slots, a power of two, into runs of BEST (Batcher 1968).
void sort_runs(uint n_slots) {
    for (uint size = 2u; size <= BEST; size *= 2u) {
        for (uint p = gl_LocalInvocationID.x; p < n_slots / 2u; p += gl_WorkGroupSize.x) {
            uint i = p & (size / 2u - 1u), block = 2u * (p - i);
            order(block + i, block + size - 1u - i);
        }
        barrier();
        sort_bitonic(size / 2u, n_slots);
    }
}

// Merges the sorted runs of the first slots into one: the better ones of a run and a mirrored run are a bitonic run.
void merge_runs(uint n_slots) {
    while (n_slots > BEST) {
        n_slots /= 2u;
        for (uint i = gl_LocalInvocationID.x; i < n_slots; i += gl_WorkGroupSize.x) {
            uvec2 other = slots[n_slots + (i ^ (BEST - 1u))];
            if (before(other, slots[i])) slots[i] = other;
        }
        barrier();
        sort_bitonic(BEST, n_slots);
    }
}
