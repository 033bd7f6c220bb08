// Replaces the tokens of a step that the step before it picked. The host writes -1 - row for the token of an output row.
#version 450
#extension GL_GOOGLE_include_directive : require
#define STEP_ACCESS
#include "common.glsl"

layout(local_size_x = 128) in;
layout(std430, set = 0, binding = 1) readonly buffer Picked { uint picked[]; };
layout(push_constant) uniform Push { uint rows, picked_at; uint tokens; };

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i >= row_count(rows)) return;
    const int token = int(step_words[tokens + i]);
    if (token < 0) step_words[tokens + i] = picked[picked_at + uint(-1 - token)];
}
