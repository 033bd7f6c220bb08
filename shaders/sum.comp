// Sums over an axis: a row of x is [n_outer, n, n_inner]. One invocation per sum, or one workgroup for many values.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const bool TOGETHER = false;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) buffer Y { float y[]; };
layout(push_constant) uniform Push { uint rows, x_at, y_at; uint n_outer, n, n_inner; };

void main() {
    uint lane = gl_LocalInvocationID.x, lanes = TOGETHER ? gl_WorkGroupSize.x : 1u;
    uint i = TOGETHER ? group_index() : group_index() * gl_WorkGroupSize.x + lane;
    if (i >= row_count(rows) * n_outer * n_inner) return;
    uint from = x_at + i / n_inner * n * n_inner + i % n_inner;
    float total = 0.0;
    for (uint j = TOGETHER ? lane : 0u; j < n; j += lanes) total += x[from + j * n_inner];
    if (TOGETHER) total = workgroup_add(total);
    if (!TOGETHER || lane == 0u) y[y_at + i] = total;
}
