// Converts a matrix as shaders/matmul_lanes.comp does for few vectors: y[32 b + c] is column c of block b.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_GOOGLE_include_directive : require
layout(local_size_x = 64) in;
#define WEIGHTS 0
#include "../../../../shaders/weights.glsl"
#include "../../../../shaders/half_weights.glsl"
layout(set = 0, binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint weights_at, n_blocks; };

void main() {
    const uint b = gl_GlobalInvocationID.x;
    begin_format();
    if (b >= n_blocks) return;
    const Block block = load_block(planes_at(weights_at, n_blocks), b);
    f16vec2 factors, centres;
    half_scales(block, b, factors, centres);
    [[unroll]] for (uint i = 0; i < 4; i++) {
        f16vec2 pairs[4];
        two_quads(block, i, factors, centres, pairs);
        [[unroll]] for (uint e = 0; e < 8; e++)
            y[32 * b + 16 * (e / 4) + 4 * i + e % 4] = float(pairs[e / 4 * 2 + e % 2][e % 4 / 2]);
    }
}
