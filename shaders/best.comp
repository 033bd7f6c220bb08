// The best of the logits: a workgroup a part of a row.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "best.glsl"

layout(std430, set = 0, binding = 1) readonly buffer X { uint x[]; };
layout(std430, set = 0, binding = 2) buffer Y { uvec2 y[]; };
layout(push_constant) uniform Push { uint rows, x_at, y_at; uint width; };

void main() {
    uint row = gl_WorkGroupID.y, start = gl_WorkGroupID.x * SLOTS;
    if (row >= row_count(rows)) return;
    for (uint i = gl_LocalInvocationID.x; i < SLOTS; i += gl_WorkGroupSize.x) {
        uint id = start + i;
        slots[i] = id < width ? uvec2(key_of(x[x_at + row * width + id]), id) : NOTHING;
    }
    barrier();
    sort_runs(SLOTS);
    merge_runs(SLOTS);
    uint part = row * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    if (gl_LocalInvocationID.x < BEST) y[y_at / 2u + part * BEST + gl_LocalInvocationID.x] = slots[gl_LocalInvocationID.x];
}
