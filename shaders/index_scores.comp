// Scores of an indexer: a workgroup scores PART pools of positions for one token, one per invocation, HEADS heads at a
// time. The key and the score of a pool are those of its last position.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#define CACHE_BINDING 3
#include "cache.glsl"

const uint PART = 128u, HEADS = 8u;
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint K_OCTETS = 16u;
layout(std430, set = 0, binding = 1) readonly buffer Q { float q[]; };
layout(std430, set = 0, binding = 2) readonly buffer Weights { float weights[]; };
layout(std430, set = 0, binding = 4) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, q_at, weights_at, cache_at, y_at;
    uint sequences, positions, table, table_width, block_size; // indices in the step block
    uint n_head, k_dim, k_row_words, k_scale_words;
    uint width, n_chosen, pool;
};

shared vec4 queries[HEADS * K_OCTETS * 2u];
shared float head_weights[HEADS];

void main() {
    const uint token = gl_WorkGroupID.y, me = gl_LocalInvocationID.x;
    if (token >= row_count(rows)) return;
    const uint newest = step_words[positions + token], n_pools = (newest + 1u) / pool, start = gl_WorkGroupID.x * PART;
    if (start >= n_pools || n_pools <= n_chosen) return;
    const uint position = (start + me + 1u) * pool - 1u;
    uint row = 0u;
    if (position <= newest) {
        const uint sequence = step_words[sequences + token];
        const uint block = step_words[table + sequence * table_width + position / block_size];
        row = cache_at + (block * block_size + position % block_size) * k_row_words;
    }
    float score = 0.0;
    for (uint first = 0u; first < n_head; first += HEADS) {
        barrier();
        for (uint i = me; i < HEADS * K_OCTETS * 8u; i += PART) {
            const uint head = first + i / (K_OCTETS * 8u), column = i % (K_OCTETS * 8u);
            const bool real = head < n_head && column < k_dim;
            queries[i / 4u][i % 4u] = real ? q[q_at + (token * n_head + head) * k_dim + column] : 0.0;
        }
        if (me < HEADS) head_weights[me] = first + me < n_head ? weights[weights_at + token * n_head + first + me] : 0.0;
        barrier();
        if (position > newest) continue;
        float products[HEADS];
        for (uint h = 0u; h < HEADS; h++) products[h] = 0.0;
        for (uint j = 0u; j < K_OCTETS; j++) {
            const Octet key = load_octet(row, j, k_scale_words);
            const vec4 a = octet_half(key, 0u), b = octet_half(key, 1u);
            for (uint h = 0u; h < HEADS; h++) {
                const uint at = (h * K_OCTETS + j) * 2u;
                products[h] += dot(a, queries[at]) + dot(b, queries[at + 1u]);
            }
        }
        for (uint h = 0u; h < HEADS; h++) score += head_weights[h] * max(products[h], 0.0);
    }
    if (position <= newest) y[y_at + token * width + position] = score;
}
