// Rows of keys or values in float16 for attention_cooperative.comp, with zeros up to whole fragments; values beyond float16
// saturate.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 128) in;
layout(set = 0, binding = 1) readonly buffer X { vec4 x[]; };
layout(set = 0, binding = 2) writeonly buffer Y { uvec2 y[]; };
layout(push_constant) uniform Push {
    uint rows, x_at, y_at;
    uint heads, quads, padded; // of a row; groups of four values of a head of x and of y
};

void main() {
    const uint i = group_index() * 128u + gl_LocalInvocationID.x, row = i / padded, quad = i % padded;
    if (row >= row_count(rows) * heads) return;
    const vec4 v = quad < quads ? clamp(x[x_at / 4u + row * quads + quad], -65504.0, 65504.0) : vec4(0.0);
    y[y_at / 2u + i] = uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw));
}
