// The best of all parts of a row, and the logarithm of the sum of exp of all logits, stored behind the picked token: the
// logarithm, then ids, then logits. One workgroup per row.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "best.glsl"

layout(std430, set = 0, binding = 1) readonly buffer X { uvec2 x[]; };
layout(std430, set = 0, binding = 2) readonly buffer Sums { float sums[]; };
layout(std430, set = 0, binding = 3) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push { uint rows, x_at, sums_at, y_at; uint n_parts, stride; };

#include "best_parts.glsl"

void main() {
    const uint row = gl_WorkGroupID.x, me = gl_LocalInvocationID.x;
    if (row >= row_count(rows)) return;
    merge_parts(row);
    const float highest = uintBitsToFloat(bits_of(slots[0].x));
    const uint to = y_at + row * stride;
    if (me < BEST) {
        y[to + 1u + me] = slots[me].y;
        y[to + 1u + BEST + me] = bits_of(slots[me].x);
    }
    if (me != 0u) return;
    float total = 0.0;
    for (uint part = row * n_parts; part < (row + 1u) * n_parts; part++) {
        const float peak = uintBitsToFloat(bits_of(x[x_at / 2u + part * BEST].x));
        if (!isinf(peak)) total += sums[sums_at + part] * exp(peak - highest);
    }
    y[to] = floatBitsToUint(highest + log(total));
}
