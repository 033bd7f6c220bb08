// Rows of a table in its GGUF blocks, decoded value by value.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 128) in;
layout(std430, set = 0, binding = 1) readonly buffer Table { uint table[]; };
layout(std430, set = 0, binding = 2) readonly buffer Ids { uint ids[]; };
layout(std430, set = 0, binding = 3) buffer Y { float y[]; };
layout(push_constant) uniform Push { uint rows, table_at, ids_at, y_at; uint n_inner, width, row_bytes; };

uint u8(uint i) { return (table[table_at + (i >> 2)] >> (8u * (i & 3u))) & 0xffu; }
int s8(uint i) { return int(u8(i) << 24) >> 24; }
uint u16(uint i) { return u8(i) | u8(i + 1u) << 8; }
float f16(uint i) { return unpackHalf2x16(u16(i)).x; }
#include "ggml_blocks.glsl"

void main() {
    uint i = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= row_count(rows) * n_inner * width) return;
    uint column = i % width;
    uint block = ids[ids_at + i / width] * row_bytes + column / BLOCK * BLOCK_BYTES;
    y[y_at + i] = decode(block, column % BLOCK);
}
