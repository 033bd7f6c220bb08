// y[row] = the sum over experts e of x[row, e] * weights[row, e], plus the residual; one invocation per value.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const bool RESIDUAL = false;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer Weights { float weights[]; };
layout(std430, set = 0, binding = 3) readonly buffer Residual { float residual[]; };
layout(std430, set = 0, binding = 4) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint rows, x_at, weights_at, residual_at, y_at; uint n_used, width; };

void main() {
    const uint i = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= row_count(rows) * width) return;
    const uint row = i / width;
    const uint from = x_at + row * n_used * width + i % width;
    float sum = RESIDUAL ? residual[residual_at + i] : 0.0;
    for (uint e = 0; e < n_used; e++) sum += x[from + e * width] * weights[weights_at + row * n_used + e];
    y[y_at + i] = sum;
}
