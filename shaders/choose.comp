// Converts scores of pools of positions to a mask; one workgroup per token. A pool's score is at its last position, and
// positions of an incomplete pool are always selected. With n_local all positions have scores, a pool's score is its
// highest, also for an incomplete pool, and the latest n_local pools are selected first. The lowest selected score is found
// digit by digit from the highest, by counting.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(std430, set = 0, binding = 1) buffer Y { uint y[]; };
layout(push_constant) uniform Push {
    uint rows, y_at;
    uint positions; // index in the step block
    uint width, n_chosen, pool, n_local;
};

const uint HIGHEST = 0x7f61b1e6u; // the bits of 3e38
const uint HIDDEN = 0xf149f2cau; // the bits of -1e30

shared uint counts[256];
shared uint lowest, n_left;

// Ranks sort like the values of these bits; -0 equals 0.
uint rank_of(uint bits) {
    if (bits == 0x80000000u) bits = 0u;
    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}

void main() {
    const uint token = gl_WorkGroupID.x, me = gl_LocalInvocationID.x;
    if (token >= row_count(rows)) return;
    const uint n = step_words[positions + token] + 1u, from = y_at + token * width;
    const uint n_pools = (n_local > 0u ? n + pool - 1u : n) / pool, first = n_pools <= n_chosen ? 0u : n_pools * pool;
    for (uint i = first + me; i < n; i += 256u) y[from + i] = 0u;
    if (first == 0u) return;
    const uint score = from + (n_local > 0u ? 0u : pool - 1u);
    for (uint i = me; i < n_pools && n_local > 0u; i += 256u) {
        float best = uintBitsToFloat(y[from + i * pool]);
        for (uint j = i * pool + 1u; j < min((i + 1u) * pool, n); j++) best = max(best, uintBitsToFloat(y[from + j]));
        y[score + i * pool] = i + n_local >= n_pools ? HIGHEST : floatBitsToUint(best);
    }
    if (me == 0u) {
        lowest = 0u;
        n_left = n_chosen;
    }
    for (int shift = 24; shift >= 0; shift -= 8) {
        counts[me] = 0u;
        barrier();
        const uint known = shift == 24 ? 0u : 0xffffffffu << uint(shift + 8);
        for (uint i = me; i < n_pools; i += 256u) {
            const uint rank = rank_of(y[score + i * pool]);
            if ((rank & known) == lowest) atomicAdd(counts[rank >> uint(shift) & 255u], 1u);
        }
        barrier();
        if (me == 0u) {
            uint digit = 255u, left = n_left;
            while (counts[digit] < left) left -= counts[digit--];
            lowest |= digit << uint(shift);
            n_left = left;
        }
        barrier();
    }
    for (uint i = me; i < n_pools; i += 256u) {
        const uint value = rank_of(y[score + i * pool]) >= lowest ? 0u : HIDDEN;
        for (uint j = i * pool; j < min((i + 1u) * pool, n); j++) y[from + j] = value;
    }
}
