// Expert routing: selection and weights of each token's experts, the operations expert_ids and expert_weights. One
// workgroup per token.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"
#include "functions.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint EXPERTS = 1;
layout(constant_id = 2) const uint USED = 1;
layout(constant_id = 3) const uint GATE = 0;
layout(constant_id = 4) const bool CHOOSES = true;  // compute expert_ids; otherwise they are inputs
layout(constant_id = 5) const bool BIASED = false;
layout(constant_id = 6) const uint GROUPS = 1;
layout(constant_id = 7) const uint GROUPS_USED = 1;
layout(constant_id = 8) const bool WEIGHS = true;  // compute expert_weights
layout(constant_id = 9) const bool NORMALIZES = false;
layout(std430, set = 0, binding = 1) readonly buffer Logits { float logits[]; };
layout(std430, set = 0, binding = 2) readonly buffer Bias { float bias[]; };
layout(std430, set = 0, binding = 3) buffer Ids { uint ids[]; };
layout(std430, set = 0, binding = 4) writeonly buffer Weights { float weights[]; };
layout(push_constant) uniform Push { uint rows, logits_at, bias_at, ids_at, weights_at; float scale; };

const uint SOFTMAX = 0, SIGMOID = 1, SOFTMAX_OF_CHOSEN = 2, SQRT_SOFTPLUS = 3;  // values of GATE
const float SMALLEST_SUM = 1.0 / 16384.0;

#define LOWEST uintBitsToFloat(0xff800000u)

shared float logit[EXPERTS];
shared float preference[EXPERTS];
shared float group_score[GROUPS];
shared uint chosen[USED];

float top = 0.0, factor = 1.0;  // maximum and factor of the softmax over all experts

float probability(float v) {
    if (GATE == SOFTMAX) return exp(v - top) * factor;
    if (GATE == SQRT_SOFTPLUS) return sqrt(softplus(v));
    return GATE == SIGMOID ? 1.0 / (1.0 + exp(-v)) : v;
}

// Masks the experts outside of the best groups; a group's score is the sum of its two best experts.
void keep_best_groups() {
    const uint size = EXPERTS / GROUPS;
    barrier();
    for (uint g = gl_LocalInvocationID.x; g < GROUPS; g += gl_WorkGroupSize.x) {
        float first = LOWEST, second = LOWEST;
        for (uint i = g * size; i < (g + 1u) * size; i++) {
            const float v = preference[i];
            second = max(second, min(first, v));
            first = max(first, v);
        }
        group_score[g] = first + second;
    }
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < EXPERTS; i += gl_WorkGroupSize.x) {
        const uint mine = i / size;
        uint better = 0;
        for (uint g = 0; g < GROUPS; g++) {
            better += uint(group_score[g] > group_score[mine] || (group_score[g] == group_score[mine] && g < mine));
        }
        if (better >= GROUPS_USED) preference[i] = LOWEST;
    }
}

// Repeated search: each next expert is the first behind the last one.
void choose(uint row) {
    float last = 0.0;
    uint last_index = 0u;
    for (uint n = 0; n < USED; n++) {
        float best = LOWEST;
        uint index = 0xffffffffu;
        for (uint i = gl_LocalInvocationID.x; i < EXPERTS; i += gl_WorkGroupSize.x) {
            const float v = preference[i];
            const bool left = n == 0u || v < last || (v == last && i > last_index);
            if (left && (index == 0xffffffffu || v > best)) {
                best = v;
                index = i;
            }
        }
        last = workgroup_argmax(best, index);
        index = min(index, EXPERTS - 1u); // none equals the largest of NaNs
        last_index = index;
        if (gl_LocalInvocationID.x == 0u) {
            chosen[n] = index;
            ids[ids_at + row * USED + n] = index;
        }
    }
}

void weigh(uint row) {
    float highest = 0.0, sum = 0.0;
    if (GATE == SOFTMAX_OF_CHOSEN) {
        highest = logit[chosen[0]];
        for (uint n = 1; n < USED; n++) highest = max(highest, logit[chosen[n]]);
    }
    for (uint n = 0; n < USED; n++) {
        const float v = logit[chosen[n]];
        sum += GATE == SOFTMAX_OF_CHOSEN ? exp(v - highest) : probability(v);
    }
    for (uint n = gl_LocalInvocationID.x; n < USED; n += gl_WorkGroupSize.x) {
        const float v = logit[chosen[n]];
        float weight = GATE == SOFTMAX_OF_CHOSEN ? exp(v - highest) / sum : probability(v);
        if (NORMALIZES && GATE != SOFTMAX_OF_CHOSEN) weight /= max(sum, SMALLEST_SUM);
        weights[weights_at + row * USED + n] = weight * scale;
    }
}

void main() {
    const uint row = group_index();
    if (row >= row_count(rows)) return;
    const uint lane = gl_LocalInvocationID.x;
    for (uint i = lane; i < EXPERTS; i += gl_WorkGroupSize.x) logit[i] = logits[logits_at + row * EXPERTS + i];
    if (GATE == SOFTMAX && (WEIGHS || BIASED || GROUPS > 1u)) {
        top = LOWEST;
        for (uint i = lane; i < EXPERTS; i += gl_WorkGroupSize.x) top = max(top, logit[i]);
        top = workgroup_max(top);
        float sum = 0.0;
        for (uint i = lane; i < EXPERTS; i += gl_WorkGroupSize.x) sum += exp(logit[i] - top);
        factor = 1.0 / workgroup_add(sum);
    }
    if (CHOOSES) {
        const bool opened = BIASED || GROUPS > 1u;  // otherwise the gate is monotonic
        for (uint i = lane; i < EXPERTS; i += gl_WorkGroupSize.x) {
            preference[i] = opened ? probability(logit[i]) : logit[i];
            if (BIASED) preference[i] += bias[bias_at + i];
        }
        if (GROUPS > 1u) keep_best_groups();
        choose(row);
    } else {
        for (uint n = lane; n < USED; n += gl_WorkGroupSize.x) chosen[n] = ids[ids_at + row * USED + n];
    }
    barrier();
    if (WEIGHS) weigh(row);
}
