// Row copies, one invocation per word: GET_ROWS by ids, SLICE a range of the last axis, CONCAT of two tensors.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(std430, set = 0, binding = 1) readonly buffer X { uint x[]; };
#if defined(SLICE)
layout(std430, set = 0, binding = 2) buffer Z { uint z[]; };
layout(push_constant) uniform Push { uint rows, x_at, z_at; uint n_inner, width, x_width, start; };
#elif defined(CONCAT)
layout(std430, set = 0, binding = 2) readonly buffer Y { uint y[]; };
layout(std430, set = 0, binding = 3) buffer Z { uint z[]; };
layout(push_constant) uniform Push { uint rows, x_at, y_at, z_at; uint n_inner, width, x_width, y_inner; };
#else
layout(std430, set = 0, binding = 2) readonly buffer Ids { uint ids[]; };
layout(std430, set = 0, binding = 3) buffer Z { uint z[]; };
layout(push_constant) uniform Push { uint rows, x_at, ids_at, z_at; uint n_inner, width; };
#endif

void main() {
    uint i = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= row_count(rows) * n_inner * width) return;
    uint row = i / width, column = i % width;
#if defined(SLICE)
    z[z_at + i] = x[x_at + row * x_width + start + column];
#elif defined(CONCAT)
    uint y_row = row / n_inner * y_inner + (y_inner == 1u ? 0u : row % n_inner);
    z[z_at + i] = column < x_width ? x[x_at + row * x_width + column]
                                   : y[y_at + y_row * (width - x_width) + column - x_width];
#else
    z[z_at + i] = x[x_at + ids[ids_at + row] * width + column];
#endif
}
