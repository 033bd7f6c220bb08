// Adjusts logits before selection: a workgroup adds a row's biases, applies penalties for its latest tokens, and adds the
// step's own biases. Pick and Restriction of core/pumice/backend.py have the formulas.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint MOST_PAST = 256u; // size of the ring of tokens; at most the number of invocations
layout(constant_id = 1) const uint MOST_BIASES = 64u;
layout(constant_id = 2) const uint MOST_ADDED = 256u; // maximum biases of a single step
layout(constant_id = 3) const bool SAVES = false; // save the original logits that may change
layout(constant_id = 4) const uint DRAFTED = 0u; // rows of a sequence in steps with drafts; tokens behind the first are drafted
layout(std430, set = 0, binding = 1) readonly buffer R { uint r[]; };
layout(std430, set = 0, binding = 2) coherent buffer X { float x[]; };
layout(std430, set = 0, binding = 3) writeonly buffer Saved { uvec2 saved[]; };
layout(push_constant) uniform Push {
    uint rows, r_at, x_at, saved_at;
    uint width;
    uint stride; // words per row of restrictions; 0: no restrictions
    uint adjustments, biases, past, past_counts, drafts; // indices in the step block; drafts: its tokens
};

shared uint tokens[256];

const uint ABSENT = 0xffffffffu;
uint me, row, sequence, from, what, n_past, n_added, n_drafted;

void settle() {
    memoryBarrierBuffer();
    barrier();
}

uint bias_at() { return biases + (sequence * MOST_BIASES + me) * 2u; }

uint added_at() { return r_at + row * stride + 2u + me * 2u; }

void save(uint place, uint token) {
    const uint most = MOST_BIASES + MOST_PAST + MOST_ADDED;
    saved[saved_at / 2u + row * most + place] = uvec2(token, token == ABSENT ? 0u : floatBitsToUint(x[from + token]));
}

// The token ``age`` tokens before the next one of a row.
uint past_token(uint age, uint count) {
    if (age < n_drafted) return step_words[drafts + row - age];
    return step_words[past + sequence * MOST_PAST + (count - 1u - (age - n_drafted)) % MOST_PAST];
}

void penalize() {
    const uint mine = tokens[me];
    uint occurred = 0u;
    for (uint i = 0u; i < n_past; i++) {
        if (tokens[i] != mine) continue;
        if (i < me) return; // an earlier invocation handles this token
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
    sequence = DRAFTED > 0u ? row / DRAFTED : row;
    n_drafted = DRAFTED > 0u ? row % DRAFTED : 0u;
    what = adjustments + 8u * sequence;
    const uint count = step_words[past_counts + sequence];
    n_past = min(min(count + n_drafted, step_words[what + 1u]), MOST_PAST);
    n_added = stride > 0u ? r[r_at + row * stride + 1u] : 0u;
    const bool biased = me < step_words[what], added = me < n_added;
    tokens[me] = me < n_past ? past_token(me, count) : ABSENT;
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
