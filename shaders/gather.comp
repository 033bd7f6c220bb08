// y[row, i] = x[row, ids[row, i]].
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer Ids { uint ids[]; };
layout(std430, set = 0, binding = 3) buffer Y { float y[]; };
layout(push_constant) uniform Push { uint rows, x_at, ids_at, y_at; uint n_inner, width, x_width; };

void main() {
    uint i = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= row_count(rows) * n_inner * width) return;
    y[y_at + i] = x[x_at + i / width * x_width + ids[ids_at + i]];
}
