// A workgroup normalizes a row by its mean square, or with CENTRED by mean and variance. With EACH an invocation requests
// all that it reads at once, EACH values of the row; else the row is read again for each sum.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool HAS_WEIGHT = true;
layout(constant_id = 2) const bool HAS_BIAS = false;
layout(constant_id = 3) const uint EACH = 0u;
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

#ifndef CENTRED
void normalize_at_once(uint from, uint to, uint w, uint b) {
    float values[EACH + 1u], factors[EACH + 1u], added[EACH + 1u];
    [[unroll]] for (uint i = 0u; i < EACH; i++) {
        const uint at = gl_LocalInvocationID.x + i * gl_WorkGroupSize.x;
        values[i] = at < width ? x[from + at] : 0.0;
        factors[i] = HAS_WEIGHT && at < width ? weight[w + at] : 1.0;
        added[i] = HAS_BIAS && at < width ? bias[b + at] : 0.0;
    }
    float sum = 0.0;
    [[unroll]] for (uint i = 0u; i < EACH; i++) sum += values[i] * values[i];
    const float factor = inversesqrt(workgroup_add(sum) / float(width) + eps) * scale;
    [[unroll]] for (uint i = 0u; i < EACH; i++) {
        const uint at = gl_LocalInvocationID.x + i * gl_WorkGroupSize.x;
        if (at < width) y[to + at] = values[i] * factor * factors[i] + added[i];
    }
}
#endif

void main() {
    uint row = group_index();
    if (row >= row_count(rows) * n_inner) return;
    uint from = x_at + row * width, to = y_at + row * width;
    uint w = weight_at + row % weight_rows * width, b = bias_at + row % bias_rows * width;
#ifndef CENTRED
    if (EACH > 0u) {
        normalize_at_once(from, to, w, b);
        return;
    }
#endif
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
    for (uint i = gl_LocalInvocationID.x; i < width; i += gl_WorkGroupSize.x) {
        float v = (x[from + i] - mean) * factor * scale;
        if (HAS_WEIGHT) v *= weight[w + i];
        if (HAS_BIAS) v += bias[b + i];
        y[to + i] = v;
    }
}
