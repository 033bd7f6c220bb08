// Positions plus a number, as an input of a step whose positions come from registers.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 128) in;
layout(std430, set = 0, binding = 1) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push { uint rows, y_at; uint positions, added; };

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i < row_count(rows)) y[y_at + i] = step_words[positions + i] + added;
}
