// Rows of activations in int8 (quantize.glsl): for each row the first halves of all blocks, the second halves, then scale
// and sums of each block; rows start at multiples of four words.
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
#include "quantize.glsl"
layout(local_size_x = 64) in;
layout(set = 0, binding = 0) readonly buffer Step { uint step_words[]; };
layout(set = 0, binding = 1) readonly buffer X { vec4 x[]; };
layout(set = 0, binding = 2) writeonly buffer Y1 { uint y1[]; };
layout(set = 0, binding = 2) writeonly buffer Y2 { uvec2 y2[]; };
layout(push_constant) uniform Push { uint rows; uint x_at, y_at; uint n_blocks; };

void main() {
    const uint i = gl_GlobalInvocationID.x, row = gl_GlobalInvocationID.y;  // four columns
    if (i >= 8u * n_blocks) return;
    Quantized q = quantize(x[x_at / 4u + row * 8u * n_blocks + i]);
    const uint at = y_at + row * ((10u * n_blocks + 3u) & ~3u), b = i / 8u;
    y1[at + (i >> 2 & 1u) * 4u * n_blocks + 4u * b + (i & 3u)] = q.codes;
    if ((i & 7u) == 0u) y2[at / 2u + 4u * n_blocks + b] = uvec2(floatBitsToUint(q.scale), q.sums);
}
