// A workgroup attends with some heads of one token to one part of the positions, one position per invocation.
// attention_merge.comp merges several parts.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "common.glsl"
#include "attention_arguments.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint PART = 128u; // positions per part
layout(constant_id = 1) const uint HEADS = 4u;
layout(constant_id = 2) const uint K_OCTETS = 8u;
layout(constant_id = 3) const uint V_QUADS = 16u;
layout(constant_id = 4) const bool HAS_SINKS = false;
layout(constant_id = 5) const bool ONE_PART = false; // the only part, whose result is final
layout(constant_id = 6) const uint block_size = 32u;
layout(constant_id = 7) const float softcap = 0.0;
layout(constant_id = 8) const uint mask = 0u;
layout(constant_id = 9) const uint ADDED = 0u;
layout(constant_id = 10) const bool OF_STEP = false;
layout(constant_id = 11) const bool LOG_SUM = false; // append the logarithm of the sum to each result
#define HADAMARD_ID 12
#include "hadamard.glsl"
#include "attention.glsl"
#include "attention_mask.glsl"
#include "attention_general.glsl"

const uint SLICES = V_QUADS >= PART ? 1u : PART / V_QUADS;

shared vec4 queries[HEADS * K_OCTETS * 2u];
shared float weights[HEADS * PART];
shared float parts[HEADS * 32u];
shared vec4 sums[HEADS * PART];

#ifdef CACHE_QUANTIZED
HADAMARD_OF(rotated_query, queries, K_BLOCK, K_FACTOR)
HADAMARD_ROWS(rotate_queries, rotated_query, queries, HEADS, K_OCTETS * 2u, K_OCTETS * 2u, PART)
HADAMARD_OF(rotated_result, sums, V_BLOCK, V_FACTOR)
#endif

void main() {
    uint token = gl_WorkGroupID.z;
    if (token >= row_count(rows)) return;
    uint groups = (heads_per_key + HEADS - 1u) / HEADS;
    uint head_kv = gl_WorkGroupID.y / groups, first_head = gl_WorkGroupID.y % groups * HEADS;
    uint n_heads = min(HEADS, heads_per_key - first_head);
    first_head += head_kv * heads_per_key;
    uint position = step_words[positions + token], sequence = step_words[sequences + token];
    uint oldest = oldest_seen(position), newest = newest_seen(position, sequence);
    uint start = (oldest / PART + gl_WorkGroupID.x) * PART;
    if (start > newest) return;
    uint me = gl_LocalInvocationID.x, n_head = n_head_kv * heads_per_key;

    for (uint i = me; i < HEADS * K_OCTETS * 8u; i += PART) {
        uint h = i / (K_OCTETS * 8u), column = i % (K_OCTETS * 8u);
        bool real = h < n_heads && column < k_dim;
        queries[i / 4u][i % 4u] = real ? q[q_at + (token * n_head + first_head + h) * k_dim + column] : 0.0;
    }
    barrier();
#ifdef CACHE_QUANTIZED
    if (HADAMARD_KEYS) rotate_queries(me);
#endif

    uint key_position = start + me;
    bool visible = key_position >= oldest && key_position <= newest;
    float scores[HEADS];
    for (uint h = 0; h < HEADS; h++) scores[h] = 0.0;
    if (visible) {
        uint row = cache_at + row_of(sequence, key_position, head_kv) * k_row_words;
        for (uint j = 0; j < K_OCTETS; j++) {
            Octet key = load_key(row, head_kv, j);
            vec4 a = octet_half(key, 0u), b = octet_half(key, 1u);
            for (uint h = 0; h < HEADS; h++) {
                scores[h] += dot(a, queries[(h * K_OCTETS + j) * 2u]) + dot(b, queries[(h * K_OCTETS + j) * 2u + 1u]);
            }
        }
    }
    for (uint h = 0; h < HEADS; h++) {
        float added = visible ? added_to_score(first_head + min(h, n_heads - 1u), token, key_position, position) : 0.0;
        scores[h] = visible ? capped(scores[h]) + added : LOWEST;
        float top = subgroupMax(scores[h]);
        if (subgroupElect()) parts[h * 32u + gl_SubgroupID] = top;
    }
    barrier();
    float tops[HEADS];
    for (uint h = 0; h < HEADS; h++) {
        tops[h] = parts[h * 32u];
        for (uint i = 1; i < gl_NumSubgroups; i++) tops[h] = max(tops[h], parts[h * 32u + i]);
        weights[h * PART + me] = visible ? exp(scores[h] - tops[h]) : 0.0;
    }
    barrier();
    for (uint h = 0; h < HEADS; h++) {
        float total = subgroupAdd(weights[h * PART + me]);
        if (subgroupElect()) parts[h * 32u + gl_SubgroupID] = total;
    }

    // Values: an invocation processes four columns of every SLICES-th position.
    uint n_keys = min(PART, newest + 1u - start), first_key = oldest > start ? oldest - start : 0u;
    uint n_used = ONE_PART ? 1u : n_parts;
    for (uint first_quad = 0; first_quad < V_QUADS; first_quad += PART) {
        uint quad = first_quad + me % min(V_QUADS, PART), slice = me / min(V_QUADS, PART);
        vec4 sum[HEADS];
        for (uint h = 0; h < HEADS; h++) sum[h] = vec4(0.0);
        if (quad < V_QUADS && slice < SLICES) {
            for (uint i = first_key + slice; i < n_keys; i += SLICES) {
                uint row = cache_at + v_cache + row_of(sequence, start + i, head_kv) * v_row_words;
                vec4 value = value_quad(row, head_kv, quad);
                for (uint h = 0; h < HEADS; h++) sum[h] += weights[h * PART + i] * value;
            }
        }
        barrier();
        for (uint h = 0; h < HEADS; h++) sums[h * PART + me] = sum[h];
        barrier();
        uint width = min(V_QUADS, PART);
        for (uint i = me; i < n_heads * width; i += PART) {
            uint h = i / width, at = i % width, head = first_head + h;
            if (first_quad + at >= V_QUADS) continue;
            vec4 total = vec4(0.0);
            for (uint s = 0; s < SLICES; s++) total += sums[h * PART + s * width + at];
            float factor = 1.0;
            uint to = y_at + ((token * n_head + head) * n_used + gl_WorkGroupID.x) * (V_QUADS * 4u + 4u);
            if (ONE_PART) {
                float sum_of_weights = 0.0;
                for (uint s = 0; s < gl_NumSubgroups; s++) sum_of_weights += parts[h * 32u + s];
                float top = tops[h], sink = HAS_SINKS ? sinks[sinks_at + head] : LOWEST;
                float highest = max(top, sink);
                factor = exp(top - highest);
                float all = sum_of_weights * factor + (HAS_SINKS ? exp(sink - highest) : 0.0);
                factor /= all;
                to = y_at + (token * n_head + head) * (v_dim + uint(LOG_SUM));
                if (LOG_SUM && first_quad + at == 0u) y[to + v_dim] = highest + log(all);
            }
            if (ONE_PART && HADAMARD_VALUES) sums[h * PART + at] = total * factor; // which no other invocation reads
            for (uint c = 0; c < 4u && !(ONE_PART && HADAMARD_VALUES); c++) {
                uint column = (first_quad + at) * 4u + c;
                if (column < v_dim) y[to + column] = total[c] * factor;
            }
            if (!ONE_PART && first_quad == 0u && at == 0u) {
                float sum_of_weights = 0.0;
                for (uint s = 0; s < gl_NumSubgroups; s++) sum_of_weights += parts[h * 32u + s];
                y[to + V_QUADS * 4u] = tops[h];
                y[to + V_QUADS * 4u + 1u] = sum_of_weights;
            }
        }
#ifdef CACHE_QUANTIZED
        if (!ONE_PART || !HADAMARD_VALUES) continue;
        barrier();
        for (uint i = me; i < n_heads * width; i += PART) {
            const uint h = i / width, at = i % width;
            const vec4 result = rotated_result(h * PART, at);
            const uint to = y_at + (token * n_head + first_head + h) * (v_dim + uint(LOG_SUM)) + (first_quad + at) * 4u;
            for (uint c = 0; c < 4u && first_quad + at < V_QUADS; c++) y[to + c] = result[c];
        }
#endif
    }
}
