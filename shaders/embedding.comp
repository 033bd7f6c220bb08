// Lookup of rows in the matrix layout of products. An invocation decodes four columns.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 128) in;
layout(constant_id = 0) const uint BLOCKS = 1;  // blocks per row of the matrix

#define WEIGHTS 1
#include "weights.glsl"
layout(std430, set = 0, binding = 2) readonly buffer Ids { uint ids[]; };
layout(std430, set = 0, binding = 3) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint rows, weights_at, ids_at, y_at; uint n_inner, n_rows, n_columns; };

void main() {
    begin_format();
    const uint quarters = (n_columns + 3u) / 4u;
    const uint i = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= row_count(rows) * n_inner * quarters) return;
    const uint row = i / quarters, column = i % quarters * 4u;
    const uint number = ids[ids_at + row] * BLOCKS + column / BLOCK_COLUMNS;
    const Block block = load_block(planes_at(weights_at, n_rows * BLOCKS), number);
    const vec4 v = numbers(block, number, column % BLOCK_COLUMNS / 4u);
    for (uint j = 0; j < 4u && column + j < n_columns; j++) y[y_at + row * n_columns + column + j] = v[j];
}
