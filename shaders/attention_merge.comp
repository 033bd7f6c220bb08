// A workgroup merges the parts that attention_part.comp stored for one head of one token.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool HAS_SINKS = false;
layout(constant_id = 2) const uint mask = 0u;
layout(constant_id = 3) const bool LOG_SUM = false; // append the logarithm of the sum to each result
#define CACHE_QUANTIZED
#define HADAMARD_ID 4
#include "hadamard.glsl"
layout(std430, set = 0, binding = 1) readonly buffer Partial { float partial[]; };
layout(std430, set = 0, binding = 2) readonly buffer Sinks { float sinks[]; };
layout(std430, set = 0, binding = 3) buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, partial_at, sinks_at, y_at;
    uint positions, window, part_size, n_parts;
    uint n_head, v_dim, part_words;
    uint sequences, seq_starts, lengths;
};
#include "attention_mask.glsl"

const uint MOST_THREADS = 128u;
shared vec4 results[MOST_THREADS / 4u]; // to be rotated
HADAMARD_OF(rotated_result, results, V_BLOCK, V_FACTOR)

void main() {
    uint token = gl_WorkGroupID.y, head = gl_WorkGroupID.x, me = gl_LocalInvocationID.x;
    if (token >= row_count(rows)) return;
    uint position = step_words[positions + token];
    uint newest = newest_seen(position, step_words[sequences + token]);
    uint n = newest / part_size - oldest_seen(position) / part_size + 1u;
    uint from = partial_at + (token * n_head + head) * n_parts * part_words, state = from + part_words - 4u;

    float sink = HAS_SINKS ? sinks[sinks_at + head] : uintBitsToFloat(0xff800000u), top = sink;
    for (uint i = me; i < n; i += gl_WorkGroupSize.x) top = max(top, partial[state + i * part_words]);
    top = workgroup_max(top);
    float total = 0.0;
    for (uint i = me; i < n; i += gl_WorkGroupSize.x) {
        total += exp(partial[state + i * part_words] - top) * partial[state + i * part_words + 1u];
    }
    total = workgroup_add(total);
    if (HAS_SINKS) total += exp(sink - top);
    const uint to = y_at + (token * n_head + head) * (v_dim + uint(LOG_SUM));
    if (LOG_SUM && me == 0u) y[to + v_dim] = top + log(total);
    for (uint first = 0; first < v_dim; first += gl_WorkGroupSize.x) {
        const uint column = first + me;
        float sum = 0.0;
        for (uint i = 0; column < v_dim && i < n; i++) {
            sum += exp(partial[state + i * part_words] - top) * partial[from + i * part_words + column];
        }
        if (HADAMARD_VALUES) {
            results[me / 4u][me % 4u] = sum / total;
            barrier();
            const vec4 result = me < gl_WorkGroupSize.x / 4u ? rotated_result(0u, me) : vec4(0.0);
            for (uint c = 0; c < 4u && me < gl_WorkGroupSize.x / 4u && first + me * 4u < v_dim; c++) y[to + first + me * 4u + c] = result[c];
            barrier();
        } else if (column < v_dim) y[to + column] = sum / total;
    }
}
