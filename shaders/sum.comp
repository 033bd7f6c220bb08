// Sums over an axis: a row of x is [n_outer, n, n_inner].
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) buffer Y { float y[]; };
layout(push_constant) uniform Push { uint rows, x_at, y_at; uint n_outer, n, n_inner; };

void main() {
    uint i = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= row_count(rows) * n_outer * n_inner) return;
    uint from = x_at + i / n_inner * n * n_inner + i % n_inner;
    float total = 0.0;
    for (uint j = 0; j < n; j++) total += x[from + j * n_inner];
    y[y_at + i] = total;
}
