// The best of the logits that a mask allows; one workgroup per part of a row, which has OF_EACH logits for each invocation.
//
// Only logits that are no worse than the BEST-th of the invocations' own best ones can be among the BEST: they are collected
// and sorted. OF_EACH * BEST is at most SLOTS / 2.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "best.glsl"

layout(constant_id = 2) const bool SUMS = false; // also store each part's sum of exp(logit - highest)
layout(constant_id = 3) const uint OF_EACH = 16u;
layout(std430, set = 0, binding = 1) readonly buffer X { uint x[]; };
layout(std430, set = 0, binding = 2) readonly buffer R { uint r[]; };
layout(std430, set = 0, binding = 3) writeonly buffer Y { uvec2 y[]; };
layout(std430, set = 0, binding = 4) writeonly buffer Sums { float sums[]; };
layout(push_constant) uniform Push {
    uint rows, x_at, r_at, y_at, sums_at;
    uint width;
    uint stride; // words per row of restrictions; 0: no restrictions
    uint mask; // index of the mask in a row
};

const uint LOWEST = 0xff800000u; // the bits of -infinity

uint row, start, end; // logits of this part

#define N_FOUND slots[SLOTS - 1u].x

uint logit(uint id) {
    const uint bits = x[x_at + row * width + id], from = r_at + row * stride;
    const bool masks = stride > 0u && r[from] != 0u;
    const bool allowed = !masks || (r[from + mask + id / 32u] >> (id & 31u) & 1u) != 0u;
    return allowed || is_nan(bits) ? bits : LOWEST;
}

// The best of this part, into the first slots.
void find_best() {
    const uint me = gl_LocalInvocationID.x;
    uint keys[OF_EACH]; // 0 behind the end
    uvec2 best = NOTHING;
    [[unroll]] for (uint i = 0u; i < OF_EACH; i++) {
        const uint id = start + i * gl_WorkGroupSize.x + me;
        keys[i] = id < end ? key_of(logit(id)) : 0u;
        if (before(uvec2(keys[i], id), best)) best = uvec2(keys[i], id);
    }
    slots[me] = best;
    N_FOUND = 0u;
    barrier();
    sort_runs(gl_WorkGroupSize.x);
    merge_runs(gl_WorkGroupSize.x);
    if (BEST == 1u) return;
    const uvec2 least = slots[BEST - 1u];
    barrier();
    [[unroll]] for (uint i = 0u; i < OF_EACH; i++) {
        const uvec2 found = uvec2(keys[i], start + i * gl_WorkGroupSize.x + me);
        if (keys[i] != 0u && !before(least, found)) slots[atomicAdd(N_FOUND, 1u)] = found;
    }
    barrier();
    const uint n_found = N_FOUND;
    uint n_slots = 2u * BEST;
    while (n_slots < n_found) n_slots *= 2u;
    for (uint i = n_found + me; i < n_slots; i += gl_WorkGroupSize.x) slots[i] = NOTHING;
    barrier();
    sort_runs(n_slots);
    merge_runs(n_slots);
}

// The sum over all invocations, computed in the slots behind the best.
float sum_up(float mine) {
    const uint me = gl_LocalInvocationID.x;
    slots[BEST + me].x = floatBitsToUint(mine);
    barrier();
    for (uint apart = gl_WorkGroupSize.x / 2u; apart > 0u; apart /= 2u) {
        if (me < apart) {
            const float sum = uintBitsToFloat(slots[BEST + me].x) + uintBitsToFloat(slots[BEST + me + apart].x);
            slots[BEST + me].x = floatBitsToUint(sum);
        }
        barrier();
    }
    return uintBitsToFloat(slots[BEST].x);
}

void main() {
    row = gl_WorkGroupID.y;
    const uint me = gl_LocalInvocationID.x, n_logits = OF_EACH * gl_WorkGroupSize.x;
    start = gl_WorkGroupID.x * n_logits;
    end = min(start + n_logits, width);
    if (row >= row_count(rows)) return;
    find_best();
    const uint part = row * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    if (me < BEST) y[y_at / 2u + part * BEST + me] = slots[me];
    if (!SUMS) return;
    const uint highest = bits_of(slots[0].x);
    float sum = 0.0;
    for (uint id = start + me; id < end && highest != LOWEST; id += gl_WorkGroupSize.x) {
        sum += exp(uintBitsToFloat(logit(id)) - uintBitsToFloat(highest));
    }
    barrier();
    sum = sum_up(sum);
    if (me == 0u) sums[sums_at + part] = sum;
}
