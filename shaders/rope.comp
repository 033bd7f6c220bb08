// Rotary positions: an invocation rotates a pair, or copies two values that are not rotated.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "rope_angle.glsl"

layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer Positions { uint positions[]; };
layout(std430, set = 0, binding = 3) readonly buffer Turns { uvec2 turns[]; };
layout(std430, set = 0, binding = 4) readonly buffer Axes { uint axes[]; }; // axis of each pair, for several positions per token
layout(std430, set = 0, binding = 5) buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, x_at, positions_at, turns_at, axes_at, y_at;
    uint n_head, dim, n_rot;
    uint first_step, second_distance; // pair i is (i * first_step, i * first_step + second_distance)
    float magnitude;
    uint n_axes; // positions per token
};

void main() {
    uint per_head = (dim + 1u) / 2u;
    uint i = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= row_count(rows) * n_head * per_head) return;
    uint head = i / per_head, pair = i % per_head;
    uint from = x_at + head * dim, to = y_at + head * dim;
    if (2u * pair >= n_rot) {
        y[to + 2u * pair] = x[from + 2u * pair];
        if (2u * pair + 1u < dim) y[to + 2u * pair + 1u] = x[from + 2u * pair + 1u];
        return;
    }
    uint axis = n_axes == 1u ? 0u : axes[axes_at + pair];
    uint position = positions[positions_at + head / n_head * n_axes + axis];
    vec2 cs = magnitude * turn(position, turns[turns_at / 2u + pair]);
    uint a = pair * first_step, b = a + second_distance;
    float u = x[from + a], v = x[from + b];
    y[to + a] = u * cs.x - v * cs.y;
    y[to + b] = u * cs.y + v * cs.x;
}
