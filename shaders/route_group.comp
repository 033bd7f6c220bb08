// Expert routing of a few tokens, and the order of their pairs of a token and an expert: route.comp and group.comp in one
// dispatch of one workgroup. A subgroup, all of whose lanes run, selects the experts of a token; without bias and groups
// of experts, so the best logits are the best experts.
//
// Sums have the order of route.comp where its workgroup is whole subgroups; then weights do not depend on the kernel. A workgroup
// of 32 invocations is less than a subgroup of 64 lanes, and adds the same numbers in another order.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "common.glsl"
#include "functions.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 32;
layout(constant_id = 2) const uint MATRICES = 32; // experts
layout(constant_id = 3) const uint USED = 1; // at most LANES
layout(constant_id = 4) const uint GATE = 0;
layout(constant_id = 5) const bool NORMALIZES = false;
layout(constant_id = 6) const uint WIDTH = 32;  // maximum pairs per tile
layout(constant_id = 7) const uint ROWS = 16;  // most tokens
layout(constant_id = 8) const uint STRIDE = 1;  // subgroups of a workgroup of route.comp
layout(std430, set = 0, binding = 1) readonly buffer Logits { float logits[]; };
layout(std430, set = 0, binding = 2) writeonly buffer Ids { uint ids[]; };
layout(std430, set = 0, binding = 3) writeonly buffer Weights { float weights[]; };
layout(std430, set = 0, binding = 4) writeonly buffer Tiles { uint tiles[]; };
layout(std430, set = 0, binding = 5) writeonly buffer Order { uint order[]; };
layout(push_constant) uniform Push { uint rows, logits_at, ids_at, weights_at, tiles_at, order_at; float scale; };

const uint PARTS = (MATRICES + LANES - 1) / LANES; // experts of a lane, at most 32
const uint SOFTMAX = 0, SIGMOID = 1, SOFTMAX_OF_CHOSEN = 2, SQRT_SOFTPLUS = 3;  // values of GATE
const float SMALLEST_SUM = 1.0 / 16384.0;
const uint NO_EXPERT = 0xffffffffu;

#define LOWEST uintBitsToFloat(0xff800000u)

shared uint pair_ids[ROWS * USED];
#define ID(PAIR) pair_ids[PAIR]
#include "group.glsl"

float top = 0.0, factor = 1.0;  // maximum and factor of the softmax over all experts

float probability(float v) {
    if (GATE == SOFTMAX) return exp(v - top) * factor;
    if (GATE == SQRT_SOFTPLUS) return sqrt(softplus(v));
    return GATE == SIGMOID ? 1.0 / (1.0 + exp(-v)) : v;
}

void route(uint row) {
    const uint lane = gl_SubgroupInvocationID;
    float logit[PARTS];
    [[unroll]] for (uint k = 0; k < PARTS; k++) {
        const uint expert = k * LANES + lane;
        logit[k] = expert < MATRICES ? logits[logits_at + row * MATRICES + expert] : LOWEST;
    }
    if (GATE == SOFTMAX) {
        float highest = logit[0];
        [[unroll]] for (uint k = 1; k < PARTS; k++) highest = max(highest, logit[k]);
        top = subgroupMax(highest);
        float total = 0.0;
        [[unroll]] for (uint first = 0; first < STRIDE; first++) {
            float sum = 0.0;
            [[unroll]] for (uint k = first; k < PARTS; k += STRIDE) {
                if (k * LANES + lane < MATRICES) sum += exp(logit[k] - top);
            }
            total += subgroupAdd(sum);
        }
        factor = 1.0 / total;
    }
    uint taken = 0u, mine = 0u; // bits of chosen experts; the expert chosen in the turn that is this lane's number
    float my_logit = LOWEST;
    for (uint n = 0; n < USED; n++) {
        float best = LOWEST;
        uint index = NO_EXPERT;
        [[unroll]] for (uint k = 0; k < PARTS; k++) {
            const uint expert = k * LANES + lane;
            const bool left = expert < MATRICES && (taken >> k & 1u) == 0u;
            if (left && (index == NO_EXPERT || logit[k] > best)) {
                best = logit[k];
                index = expert;
            }
        }
        const float highest = subgroupMax(index == NO_EXPERT ? LOWEST : best);
        const uint chosen = min(subgroupMin(best == highest ? index : NO_EXPERT), MATRICES - 1u);
        if (chosen % LANES == lane) taken |= 1u << chosen / LANES;
        if (n == lane) {
            mine = chosen;
            my_logit = highest;
        }
    }
    float highest = 0.0, sum = 0.0;
    if (GATE == SOFTMAX_OF_CHOSEN) highest = subgroupShuffle(my_logit, 0u);
    for (uint n = 0; n < USED; n++) {
        const float v = subgroupShuffle(my_logit, n);
        sum += GATE == SOFTMAX_OF_CHOSEN ? exp(v - highest) : probability(v);
    }
    if (lane < USED) {
        float weight = GATE == SOFTMAX_OF_CHOSEN ? exp(my_logit - highest) / sum : probability(my_logit);
        if (NORMALIZES && GATE != SOFTMAX_OF_CHOSEN) weight /= max(sum, SMALLEST_SUM);
        weights[weights_at + row * USED + lane] = weight * scale;
        ids[ids_at + row * USED + lane] = mine;
        pair_ids[row * USED + lane] = mine;
    }
}

void main() {
    const uint n_rows = row_count(rows);
    for (uint row = gl_SubgroupID; row < n_rows; row += gl_NumSubgroups) route(row);
    barrier();
    group_pairs(n_rows * USED);
}
