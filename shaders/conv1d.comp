// Causal convolution over time: an invocation takes a channel of a sequence, one token after the other.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const bool HAS_BIAS = true;
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer Weight { float weight[]; };
layout(std430, set = 0, binding = 3) readonly buffer Bias { float bias[]; };
layout(std430, set = 0, binding = 4) buffer State { float state[]; };
layout(std430, set = 0, binding = 5) buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, x_at, weight_at, bias_at, state_at, y_at;
    uint positions, seq_starts, slots; // words of the step block
    uint n_channels, taps;
};

// The input so many tokens after the sequence's first in this step; the state has those before.
float input_at(int token, uint first, uint past, uint channel, bool begins) {
    if (token >= 0) return x[x_at + (first + uint(token)) * n_channels + channel];
    return begins ? 0.0 : state[past + uint(int(taps) - 1 + token) * n_channels + channel];
}

void main() {
    uint channel = gl_GlobalInvocationID.x, sequence = gl_WorkGroupID.y;
    if (sequence >= step_words[2] || channel >= n_channels) return;
    uint first = step_words[seq_starts + sequence], n = step_words[seq_starts + sequence + 1u] - first;
    uint past = state_at + step_words[slots + sequence] * (taps - 1u) * n_channels;
    bool begins = step_words[positions + first] == 0u;
    for (int t = 0; t < int(n); t++) {
        float sum = HAS_BIAS ? bias[bias_at + channel] : 0.0;
        for (int j = 0; j < int(taps); j++) {
            sum += weight[weight_at + channel * taps + uint(j)] * input_at(t - int(taps) + 1 + j, first, past, channel, begins);
        }
        y[y_at + (first + uint(t)) * n_channels + channel] = sum;
    }
    // Oldest first: what is overwritten is needed no more.
    for (int j = 0; j + 1 < int(taps); j++) {
        state[past + uint(j) * n_channels + channel] = input_at(int(n) - int(taps) + 1 + j, first, past, channel, begins);
    }
}
