// One workgroup per row: the k largest by repeated search, each the first behind the last one.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"

layout(local_size_x_id = 0) in;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) buffer Ids { uint ids[]; };
layout(push_constant) uniform Push { uint rows, x_at, ids_at; uint n_inner, width, k; };

#define LOWEST uintBitsToFloat(0xff800000u)

void main() {
    uint row = group_index();
    if (row >= row_count(rows) * n_inner) return;
    uint from = x_at + row * width;
    float last = -LOWEST;
    uint last_index = 0u;
    bool first = true;
    for (uint n = 0; n < k; n++) {
        float best = LOWEST;
        uint index = 0xffffffffu;
        for (uint i = gl_LocalInvocationID.x; i < width; i += gl_WorkGroupSize.x) {
            float v = x[from + i];
            bool left = first || v < last || (v == last && i > last_index);
            if (left && (index == 0xffffffffu || v > best)) {
                best = v;
                index = i;
            }
        }
        last = workgroup_argmax(best, index);
        index = min(index, width - 1u); // none equals the largest of NaNs
        last_index = index;
        first = false;
        if (gl_LocalInvocationID.x == 0u) ids[ids_at + row * k + n] = index;
    }
}
