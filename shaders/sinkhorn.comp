// One matrix per invocation: softmax of its rows, then columns and rows alternately divided by their sums.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint N = 4u;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint rows, x_at, y_at; uint n_matrices, n_iterations; float eps; };

float m[N * N];

void divide(uint along, uint across) {
    for (uint line = 0; line < N; line++) {
        float total = eps;
        for (uint i = 0; i < N; i++) total += m[across * line + along * i];
        for (uint i = 0; i < N; i++) m[across * line + along * i] /= total;
    }
}

void main() {
    const uint matrix = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (matrix >= row_count(rows) * n_matrices) return;
    for (uint row = 0; row < N; row++) {
        float top = x[x_at + (matrix * N + row) * N], total = 0.0;
        for (uint i = 0; i < N; i++) top = max(top, x[x_at + (matrix * N + row) * N + i]);
        for (uint i = 0; i < N; i++) total += m[row * N + i] = exp(x[x_at + (matrix * N + row) * N + i] - top);
        for (uint i = 0; i < N; i++) m[row * N + i] = m[row * N + i] / total + eps;
    }
    divide(N, 1u);
    for (uint i = 1; i < n_iterations; i++) {
        divide(1u, N);
        divide(N, 1u);
    }
    for (uint i = 0; i < N * N; i++) y[y_at + matrix * N * N + i] = m[i];
}
