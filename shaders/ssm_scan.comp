// The selective scan: an invocation updates the state of a channel of a sequence, token by token.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint N_STATE = 16u;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer Dt { float dt[]; };
layout(std430, set = 0, binding = 3) readonly buffer A { float a[]; };
layout(std430, set = 0, binding = 4) readonly buffer B { float b[]; };
layout(std430, set = 0, binding = 5) readonly buffer C { float c[]; };
layout(std430, set = 0, binding = 6) readonly buffer D { float d[]; };
layout(std430, set = 0, binding = 7) buffer State { float state[]; };
layout(std430, set = 0, binding = 8) buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, x_at, dt_at, a_at, b_at, c_at, d_at, state_at, y_at;
    uint positions, seq_starts, slots; // indices in the step block
    uint n_right; // index of each sequence's tokens to read for its state alone; 0: all are read, for results, too
    uint stores; // 1: the state after these tokens is stored
    uint n_channels;
};

void main() {
    uint channel = gl_GlobalInvocationID.x, sequence = gl_WorkGroupID.y;
    if (sequence >= step_words[2] || channel >= n_channels) return;
    uint first = step_words[seq_starts + sequence], end = step_words[seq_starts + sequence + 1u];
    if (n_right != 0u) end = first + step_words[n_right + sequence];
    uint kept = state_at + (step_words[slots + sequence] * n_channels + channel) * N_STATE;
    bool begins = step_words[positions + first] == 0u;
    float h[N_STATE], rate[N_STATE];
    for (uint n = 0; n < N_STATE; n++) {
        h[n] = begins ? 0.0 : state[kept + n];
        rate[n] = a[a_at + channel * N_STATE + n];
    }
    for (uint t = first; t < end; t++) {
        float v = x[x_at + t * n_channels + channel], step = dt[dt_at + t * n_channels + channel], sum = 0.0;
        for (uint n = 0; n < N_STATE; n++) {
            h[n] = h[n] * exp(step * rate[n]) + step * v * b[b_at + t * N_STATE + n];
            sum += h[n] * c[c_at + t * N_STATE + n];
        }
        if (n_right == 0u) y[y_at + t * n_channels + channel] = sum + d[d_at + channel] * v;
    }
    if (stores == 0u) return;
    for (uint n = 0; n < N_STATE; n++) state[kept + n] = h[n];
}
