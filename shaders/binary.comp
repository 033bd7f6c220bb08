// z = FORMULA of a value a of x and b of y, element-wise; y broadcasts.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "functions.glsl"

layout(local_size_x = 256) in;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer Y { float y[]; };
layout(std430, set = 0, binding = 3) buffer Z { float z[]; };
layout(push_constant) uniform Push {
    uint rows, x_at, y_at, z_at;
    uint row_width;                // a row of x is [n_a, n_b, width]
    uint n_a, n_b, width;
    uint y_row, y_a, y_b, y_value; // strides of y
};

void main() {
    uint i = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= row_count(rows) * row_width) return;
    uint row = i / row_width, rest = i % row_width;
    uint ab = rest / width;
    uint j = row * y_row + ab / n_b * y_a + ab % n_b * y_b + rest % width * y_value;
    float a = x[x_at + i], b = y[y_at + j];
    z[z_at + i] = FORMULA;
}
