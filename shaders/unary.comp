// y = FORMULA of a value a of x, element-wise; p and q are the operation's constants.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "functions.glsl"

layout(local_size_x = 256) in;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) buffer Y { float y[]; };
layout(push_constant) uniform Push { uint rows, x_at, y_at; uint width; float p, q; };

void main() {
    uint i = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= row_count(rows) * width) return;
    float a = x[x_at + i];
    y[y_at + i] = FORMULA;
}
