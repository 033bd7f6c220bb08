// A workgroup normalizes a row by its mean square, and stores it as float16, as half.comp does. THREADS * EACH quads
// cover a row. With EXPERT_SUM the row is the sum of expert_sum.comp with its residual, which is stored, too.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"
#include "halves.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 256u;
layout(constant_id = 1) const uint EACH = 2u;
layout(constant_id = 2) const uint TILES = 0u;
layout(constant_id = 3) const uint UNIT = 16u;
layout(std430, set = 0, binding = 1) readonly buffer X { vec4 x[]; };
layout(std430, set = 0, binding = 2) readonly buffer Weight { vec4 weight[]; };
layout(std430, set = 0, binding = 3) writeonly buffer Y { uvec2 y[]; };
#ifdef EXPERT_SUM
layout(std430, set = 0, binding = 4) readonly buffer Shares { float shares[]; };
layout(std430, set = 0, binding = 5) readonly buffer Residual { vec4 residual[]; };
layout(std430, set = 0, binding = 6) writeonly buffer Sum { vec4 sums[]; };
#endif
#ifdef EXPERT_SUM
layout(push_constant) uniform Push {
    uint rows, x_at, weight_at, y_at, shares_at, residual_at, sum_at;
    uint n_quads; // quads per row
    uint n_used;  // experts of a row
    float eps;
};
#else
layout(push_constant) uniform Push {
    uint rows, x_at, weight_at, y_at;
    uint n_quads; // quads per row
    float eps;
};
#endif

vec4 value_of(uint row, uint quad) {
#ifdef EXPERT_SUM
    const uint at = row * n_quads + quad, from = x_at / 4u + row * n_used * n_quads + quad;
    vec4 sum = residual[residual_at / 4u + at];
    for (uint e = 0; e < n_used; e++) sum += x[from + e * n_quads] * shares[shares_at + row * n_used + e];
    sums[sum_at / 4u + at] = sum;
    return sum;
#else
    return x[x_at / 4u + row * n_quads + quad];
#endif
}

void main() {
    const uint row = gl_WorkGroupID.x, me = gl_LocalInvocationID.x;
    if (row >= row_count(rows)) return;
    vec4 values[EACH], factors[EACH];
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < EACH; i++) {
        const uint quad = me + i * THREADS;
        values[i] = quad < n_quads ? value_of(row, quad) : vec4(0.0);
        factors[i] = quad < n_quads ? weight[weight_at / 4u + quad] : vec4(0.0);
    }
    [[unroll]] for (uint i = 0; i < EACH; i++) sum += dot(values[i], values[i]);
    const float factor = inversesqrt(workgroup_add(sum) / float(4u * n_quads) + eps);
    [[unroll]] for (uint i = 0; i < EACH; i++) {
        const uint quad = me + i * THREADS;
        const uint to = y_at / 2u + half_place(row, quad, n_quads, TILES, UNIT);
        if (quad < n_quads) y[to] = half_quad(values[i] * factor * factors[i]);
    }
}
