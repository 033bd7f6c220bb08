// Causal convolution over time; an invocation processes a channel of some tokens of a sequence.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const bool HAS_BIAS = true;
layout(constant_id = 1) const uint TAPS = 4u;
layout(constant_id = 2) const bool SILU = false; // apply SiLU to the result
const uint MOST_KEPT = 16u; // maximum taps with factors and inputs in registers
const uint TOKENS = TAPS < 16u ? 16u : TAPS; // tokens per invocation, at least TAPS: only the first reads the state
layout(std430, set = 0, binding = 1) readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 2) readonly buffer Weight { float weight[]; };
layout(std430, set = 0, binding = 3) readonly buffer Bias { float bias[]; };
layout(std430, set = 0, binding = 4) buffer State { float state[]; };
layout(std430, set = 0, binding = 5) buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, x_at, weight_at, bias_at, state_at, y_at;
    uint positions, seq_starts, slots; // indices in the step block
    uint n_right; // index of each sequence's tokens to read for its state alone; 0: all are read, for results, too
    uint stores; // 1: the state after these tokens is stored
    uint n_channels;
};

// The input t tokens after the sequence's first in this step; negative t reads the state.
float input_at(int token, uint first, uint past, uint channel, bool begins) {
    if (token >= 0) return x[x_at + (first + uint(token)) * n_channels + channel];
    return begins ? 0.0 : state[past + uint(int(TAPS) - 1 + token) * n_channels + channel];
}

float result(float sum) {
    return SILU ? sum / (1.0 + exp(-sum)) : sum;
}

void convolve_kept(uint begin, uint end, uint n, uint first, uint past, uint channel, bool begins, float start) {
    float factors[TAPS], window[TAPS], kept[TAPS];
    for (uint j = 0u; j < TAPS; j++) {
        factors[j] = weight[weight_at + channel * TAPS + j];
        window[j] = j == 0u ? 0.0 : input_at(int(begin + j) - int(TAPS), first, past, channel, begins);
        // The next step's state, read before it is overwritten; oldest first.
        if (begin == 0u && j + 1u < TAPS) kept[j] = input_at(int(n + j + 1u) - int(TAPS), first, past, channel, begins);
    }
    for (uint t = begin; t < end; t++) {
        float sum = start;
        for (uint j = 0u; j + 1u < TAPS; j++) window[j] = window[j + 1u];
        window[TAPS - 1u] = x[x_at + (first + t) * n_channels + channel];
        for (uint j = 0u; j < TAPS; j++) sum += factors[j] * window[j];
        y[y_at + (first + t) * n_channels + channel] = result(sum);
    }
    if (begin == 0u && stores != 0u) {
        for (uint j = 0u; j + 1u < TAPS; j++) state[past + j * n_channels + channel] = kept[j];
    }
}

void convolve_read(uint begin, uint end, uint n, uint first, uint past, uint channel, bool begins, float start) {
    for (uint t = begin; t < end; t++) {
        float sum = start;
        for (uint j = 0u; j < TAPS; j++) {
            float value = input_at(int(t + j + 1u) - int(TAPS), first, past, channel, begins);
            sum += weight[weight_at + channel * TAPS + j] * value;
        }
        y[y_at + (first + t) * n_channels + channel] = result(sum);
    }
    if (begin == 0u && stores != 0u) { // oldest first: reads stay ahead of writes
        for (uint j = 0u; j + 1u < TAPS; j++) {
            float value = input_at(int(n + j + 1u) - int(TAPS), first, past, channel, begins);
            state[past + j * n_channels + channel] = value;
        }
    }
}

void main() {
    uint channel = gl_GlobalInvocationID.x, sequence = gl_WorkGroupID.y, begin = gl_WorkGroupID.z * TOKENS;
    if (sequence >= step_words[2] || channel >= n_channels) return;
    uint first = step_words[seq_starts + sequence], n = step_words[seq_starts + sequence + 1u] - first;
    if (n_right != 0u) n = step_words[n_right + sequence];
    if (begin >= n) return;
    const uint end = n_right == 0u ? min(begin + TOKENS, n) : begin; // of the results
    uint past = state_at + step_words[slots + sequence] * (TAPS - 1u) * n_channels;
    bool begins = step_words[positions + first] == 0u;
    float start = HAS_BIAS ? bias[bias_at + channel] : 0.0;
    if (TAPS <= MOST_KEPT) convolve_kept(begin, end, n, first, past, channel, begins, start);
    else convolve_read(begin, end, n, first, past, channel, begins, start);
}
