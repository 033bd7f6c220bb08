// Scores of pools of positions become a mask: a workgroup a token. A pool's score lies at its last position; positions of
// one that has no end yet are chosen. The lowest score that is chosen is found digit by digit, from the highest on, by
// counting.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(std430, set = 0, binding = 1) buffer Y { uint y[]; };
layout(push_constant) uniform Push {
    uint rows, y_at;
    uint positions; // a word of the step block
    uint width, n_chosen, pool;
};

const uint HIDDEN = 0xf149f2cau; // the bits of -1e30

shared uint counts[256];
shared uint lowest, n_left;

// Ranks order as the values of these bits; -0 and 0 are equal.
uint rank_of(uint bits) {
    if (bits == 0x80000000u) bits = 0u;
    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}

void main() {
    const uint token = gl_WorkGroupID.x, me = gl_LocalInvocationID.x;
    if (token >= row_count(rows)) return;
    const uint n = step_words[positions + token] + 1u, from = y_at + token * width;
    const uint n_pools = n / pool, first = n_pools <= n_chosen ? 0u : n_pools * pool;
    for (uint i = first + me; i < n; i += 256u) y[from + i] = 0u;
    if (first == 0u) return;
    const uint score = from + pool - 1u;
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
        for (uint j = 0u; j < pool; j++) y[from + i * pool + j] = value;
    }
}
