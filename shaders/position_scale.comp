// y = 1 + beta * ln(1 + floor((position + offset) / length)).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 1) readonly buffer Positions { uint positions[]; };
layout(std430, set = 0, binding = 2) buffer Y { float y[]; };
layout(push_constant) uniform Push { uint rows, positions_at, y_at; uint length; float beta; uint offset; };

void main() {
    uint i = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= row_count(rows)) return;
    y[y_at + i] = 1.0 + beta * log(1.0 + float((positions[positions_at + i] + offset) / length));
}
