// A workgroup multiplies SIZE neighbouring values by the Hadamard matrix over sqrt(SIZE), by a fast transform.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SIZE = 64u;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) buffer Y { float y[]; };
layout(push_constant) uniform Push { uint rows, x_at, y_at; uint n_inner; };

shared float values[SIZE];

void main() {
    uint row = group_index(), lane = gl_LocalInvocationID.x;
    if (row >= row_count(rows) * n_inner) return;
    for (uint i = lane; i < SIZE; i += gl_WorkGroupSize.x) values[i] = x[x_at + row * SIZE + i];
    for (uint half_size = 1u; half_size < SIZE; half_size *= 2u) {
        barrier();
        for (uint pair = lane; pair < SIZE / 2u; pair += gl_WorkGroupSize.x) {
            uint i = 2u * pair - (pair & (half_size - 1u));
            float a = values[i], b = values[i + half_size];
            values[i] = a + b;
            values[i + half_size] = a - b;
        }
    }
    barrier();
    for (uint i = lane; i < SIZE; i += gl_WorkGroupSize.x) y[y_at + row * SIZE + i] = values[i] * inversesqrt(float(SIZE));
}
