// One workgroup per row of the last axis.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"

layout(local_size_x_id = 0) in;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) buffer Y { float y[]; };
layout(push_constant) uniform Push { uint rows, x_at, y_at; uint n_inner, width; };

void main() {
    uint row = group_index();
    if (row >= row_count(rows) * n_inner) return;
    uint from = x_at + row * width, to = y_at + row * width;
    float top = x[from];
    for (uint i = gl_LocalInvocationID.x; i < width; i += gl_WorkGroupSize.x) top = max(top, x[from + i]);
    top = workgroup_max(top);
    float sum = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < width; i += gl_WorkGroupSize.x) sum += exp(x[from + i] - top);
    float factor = 1.0 / workgroup_add(sum);
    for (uint i = gl_LocalInvocationID.x; i < width; i += gl_WorkGroupSize.x) {
        y[to + i] = exp(x[from + i] - top) * factor;
    }
}
