// A workgroup normalizes a row by its mean square, or with CENTRED by mean and variance.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool HAS_WEIGHT = true;
layout(constant_id = 2) const bool HAS_BIAS = false;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer Weight { float weight[]; };
layout(std430, set = 0, binding = 3) readonly buffer Bias { float bias[]; };
layout(std430, set = 0, binding = 4) buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, x_at, weight_at, bias_at, y_at;
    uint n_inner, width; // a row of the activation is [n_inner, width]
    uint weight_rows, bias_rows;
    float eps, scale;
};

void main() {
    uint row = group_index();
    if (row >= row_count(rows) * n_inner) return;
    uint from = x_at + row * width, to = y_at + row * width;
    float mean = 0.0, sum = 0.0;
#ifdef CENTRED
    for (uint i = gl_LocalInvocationID.x; i < width; i += gl_WorkGroupSize.x) sum += x[from + i];
    mean = workgroup_add(sum) / float(width);
    sum = 0.0;
#endif
    for (uint i = gl_LocalInvocationID.x; i < width; i += gl_WorkGroupSize.x) {
        float v = x[from + i] - mean;
        sum += v * v;
    }
    float factor = inversesqrt(workgroup_add(sum) / float(width) + eps);
    uint w = weight_at + row % weight_rows * width, b = bias_at + row % bias_rows * width;
    for (uint i = gl_LocalInvocationID.x; i < width; i += gl_WorkGroupSize.x) {
        float v = (x[from + i] - mean) * factor * scale;
        if (HAS_WEIGHT) v *= weight[w + i];
        if (HAS_BIAS) v += bias[b + i];
        y[to + i] = v;
    }
}
