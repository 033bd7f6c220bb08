// Logits before the best of them are looked for: a workgroup adds a row's biases, and lowers what occurred in its last
// tokens. Pick of core/pumice/backend.py has the formula.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint MOST_PAST = 256u; // tokens that are kept, in a ring; at most as many as invocations
layout(constant_id = 1) const uint MOST_BIASES = 64u;
layout(std430, set = 0, binding = 1) coherent buffer X { float x[]; };
layout(push_constant) uniform Push {
    uint rows, x_at;
    uint width;
    uint adjustments, biases, past, past_counts; // words of the step block
};

shared uint tokens[256];

void main() {
    const uint row = gl_WorkGroupID.x, me = gl_LocalInvocationID.x;
    if (row >= row_count(rows)) return;
    const uint from = x_at + row * width, what = adjustments + 8u * row;
    if (me < step_words[what]) {
        const uint bias = biases + (row * MOST_BIASES + me) * 2u;
        x[from + step_words[bias]] += uintBitsToFloat(step_words[bias + 1u]);
    }
    const uint count = step_words[past_counts + row], n = min(min(count, step_words[what + 1u]), MOST_PAST);
    const uint mine = me < n ? step_words[past + row * MOST_PAST + (count - 1u - me) % MOST_PAST] : 0u;
    tokens[me] = mine;
    memoryBarrierBuffer();
    barrier();
    if (me >= n) return;
    uint occurred = 0u;
    bool first = true;
    for (uint i = 0u; i < n; i++) {
        if (tokens[i] != mine) continue;
        occurred++;
        first = first && i >= me;
    }
    if (!first) return;
    const float repeat = uintBitsToFloat(step_words[what + 2u]), frequency = uintBitsToFloat(step_words[what + 3u]);
    float logit = x[from + mine];
    logit = logit > 0.0 ? logit / repeat : logit * repeat;
    precise float lowered = float(occurred) * frequency;
    x[from + mine] = logit - lowered - uintBitsToFloat(step_words[what + 4u]);
}
