// y[i] = x[i] / size for integers, or the remainder.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 1) readonly buffer X { uint x[]; };
layout(std430, set = 0, binding = 2) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push { uint rows, x_at, y_at; uint width, size; };

void main() {
    const uint i = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= row_count(rows) * width) return;
#ifdef REMAINDER
    y[y_at + i] = x[x_at + i] % size;
#else
    y[y_at + i] = x[x_at + i] / size;
#endif
}
