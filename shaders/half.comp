// Conversion of activations to float16.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "halves.glsl"
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint TILES = 0;
layout(constant_id = 1) const uint UNIT = 16;
layout(set = 0, binding = 0) readonly buffer Step { uint step_words[]; };
layout(set = 0, binding = 1) readonly buffer X { vec4 x[]; };
layout(set = 0, binding = 2) writeonly buffer Y { uvec2 y[]; };
layout(push_constant) uniform Push { uint rows; uint x_at, y_at; uint n_quads; };

void main() {
    const uint i = gl_GlobalInvocationID.x, row = gl_GlobalInvocationID.y;
    if (i >= n_quads) return;
    y[y_at / 2u + half_place(row, i, n_quads, TILES, UNIT)] = half_quad(x[x_at / 4u + row * n_quads + i]);
}
