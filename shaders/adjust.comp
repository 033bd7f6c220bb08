// Logits before the best of them are looked for: a workgroup adds a row's biases, lowers what occurred in its last
// tokens, and adds what the step alone adds. Pick and Restriction of core/pumice/backend.py have the formula.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint MOST_PAST = 256u; // tokens that are kept, in a ring; at most as many as invocations
layout(constant_id = 1) const uint MOST_BIASES = 64u;
layout(constant_id = 2) const uint MOST_ADDED = 256u; // that a step alone adds
layout(constant_id = 3) const bool SAVES = false; // what logits were before, for those that may change
layout(std430, set = 0, binding = 1) readonly buffer R { uint r[]; };
layout(std430, set = 0, binding = 2) coherent buffer X { float x[]; };
layout(std430, set = 0, binding = 3) writeonly buffer Saved { uvec2 saved[]; };
layout(push_constant) uniform Push {
    uint rows, r_at, x_at, saved_at;
    uint width;
    uint stride; // words of a row's restriction; 0: there are none
    uint adjustments, biases, past, past_counts; // words of the step block
};

shared uint tokens[256];

const uint ABSENT = 0xffffffffu;
uint me, row, from, what, n_past, n_added;

void settle() {
    memoryBarrierBuffer();
    barrier();
}

uint bias_at() { return biases + (row * MOST_BIASES + me) * 2u; }

uint added_at() { return r_at + row * stride + 2u + me * 2u; }

void save(uint place, uint token) {
    const uint most = MOST_BIASES + MOST_PAST + MOST_ADDED;
    saved[saved_at / 2u + row * most + place] = uvec2(token, token == ABSENT ? 0u : floatBitsToUint(x[from + token]));
}

void penalize() {
    const uint mine = tokens[me];
    uint occurred = 0u;
    for (uint i = 0u; i < n_past; i++) {
        if (tokens[i] != mine) continue;
        if (i < me) return; // an invocation before this one does it
        occurred++;
    }
    const float repeat = uintBitsToFloat(step_words[what + 2u]), frequency = uintBitsToFloat(step_words[what + 3u]);
    float logit = x[from + mine];
    logit = logit > 0.0 ? logit / repeat : logit * repeat;
    precise float lowered = float(occurred) * frequency;
    x[from + mine] = logit - lowered - uintBitsToFloat(step_words[what + 4u]);
}

void main() {
    me = gl_LocalInvocationID.x;
    row = gl_WorkGroupID.x;
    if (row >= row_count(rows)) return;
    from = x_at + row * width;
    what = adjustments + 8u * row;
    const uint count = step_words[past_counts + row];
    n_past = min(min(count, step_words[what + 1u]), MOST_PAST);
    n_added = stride > 0u ? r[r_at + row * stride + 1u] : 0u;
    const bool biased = me < step_words[what], added = me < n_added;
    tokens[me] = me < n_past ? step_words[past + row * MOST_PAST + (count - 1u - me) % MOST_PAST] : ABSENT;
    if (SAVES) {
        if (me < MOST_BIASES) save(me, biased ? step_words[bias_at()] : ABSENT);
        save(MOST_BIASES + me, tokens[me]);
        save(MOST_BIASES + MOST_PAST + me, added ? r[added_at()] : ABSENT);
        settle();
    }
    if (biased) x[from + step_words[bias_at()]] += uintBitsToFloat(step_words[bias_at() + 1u]);
    settle();
    if (me < n_past) penalize();
    settle();
    if (added) x[from + r[added_at()]] += uintBitsToFloat(r[added_at() + 1u]);
}
