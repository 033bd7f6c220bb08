// The best of the logits that a mask allows; one workgroup per part of a row.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "best.glsl"

layout(constant_id = 2) const bool SUMS = false; // also store each part's sum of exp(logit - highest)
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

uint row;

uint logit(uint id) {
    const uint bits = x[x_at + row * width + id], from = r_at + row * stride;
    const bool masks = stride > 0u && r[from] != 0u;
    const bool allowed = !masks || (r[from + mask + id / 32u] >> (id & 31u) & 1u) != 0u;
    return allowed || is_nan(bits) ? bits : LOWEST;
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
    const uint start = gl_WorkGroupID.x * SLOTS, me = gl_LocalInvocationID.x;
    if (row >= row_count(rows)) return;
    for (uint i = me; i < SLOTS; i += gl_WorkGroupSize.x) {
        uint id = start + i;
        slots[i] = id < width ? uvec2(key_of(logit(id)), id) : NOTHING;
    }
    barrier();
    sort_runs(SLOTS);
    merge_runs(SLOTS);
    const uint part = row * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    if (me < BEST) y[y_at / 2u + part * BEST + me] = slots[me];
    if (!SUMS) return;
    const uint highest = bits_of(slots[0].x);
    float sum = 0.0;
    for (uint id = start + me; id < min(start + SLOTS, width) && highest != LOWEST; id += gl_WorkGroupSize.x) {
        sum += exp(uintBitsToFloat(logit(id)) - uintBitsToFloat(highest));
    }
    barrier();
    sum = sum_up(sum);
    if (me == 0u) sums[sums_at + part] = sum;
}
