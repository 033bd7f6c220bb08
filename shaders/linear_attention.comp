// Gated linear attention: a workgroup keeps 32 columns of a head's state of a sequence, one token after the other.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint COLUMNS = 32u, PARTS = 8u; // an invocation has a part of the rows of a column
layout(local_size_x = 32, local_size_y = 8) in;
layout(constant_id = 0) const uint N_KEYS = 64u; // rows of the state
layout(constant_id = 1) const bool BY_CHANNEL = false; // a decay of each channel of the keys
layout(constant_id = 2) const bool DELTA = false; // the delta rule
layout(constant_id = 3) const bool RANK_ONE = false; // the update by a and b
layout(constant_id = 4) const bool BEFORE = false; // queries read the state as it came
const uint ROWS = (N_KEYS + PARTS - 1u) / PARTS;
layout(std430, set = 0, binding = 1) readonly buffer Q { float q[]; };
layout(std430, set = 0, binding = 2) readonly buffer K { float k[]; };
layout(std430, set = 0, binding = 3) readonly buffer V { float v[]; };
layout(std430, set = 0, binding = 4) readonly buffer Decay { float decay[]; };
layout(std430, set = 0, binding = 5) readonly buffer Beta { float beta[]; };
layout(std430, set = 0, binding = 6) readonly buffer A { float a[]; };
layout(std430, set = 0, binding = 7) readonly buffer B { float b[]; };
layout(std430, set = 0, binding = 8) buffer State { float state[]; };
layout(std430, set = 0, binding = 9) buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, q_at, k_at, v_at, decay_at, beta_at, a_at, b_at, state_at, y_at;
    uint positions, seq_starts, slots; // words of the step block
    uint n_heads, n_key_heads, tiled, width;
    uint decay_token, decay_head; // words from one to the next
};

shared float found[PARTS][COLUMNS]; // sums of the parts: what keys find in the state,
shared float results[2][PARTS][COLUMNS]; // and queries, of even and odd tokens

void main() {
    uint blocks = (width + COLUMNS - 1u) / COLUMNS;
    uint lane = gl_LocalInvocationID.x, part = gl_LocalInvocationID.y;
    uint head = gl_WorkGroupID.x / blocks, column = gl_WorkGroupID.x % blocks * COLUMNS + lane;
    uint sequence = gl_WorkGroupID.y;
    if (sequence >= step_words[2]) return;
    bool inside = column < width;
    uint first = step_words[seq_starts + sequence], end = step_words[seq_starts + sequence + 1u];
    uint row = part * ROWS, n = min(ROWS, max(N_KEYS, row) - row);
    uint kept = state_at + ((step_words[slots + sequence] * n_heads + head) * N_KEYS + row) * width + column;
    bool begins = step_words[positions + first] == 0u;
    float s[ROWS];
    for (uint i = 0; i < ROWS; i++) s[i] = begins || !inside || i >= n ? 0.0 : state[kept + i * width];
    uint key_head = tiled != 0u ? head % n_key_heads : head / (n_heads / n_key_heads);
    for (uint t = first; t < end; t++) {
        uint of_key = (t * n_key_heads + key_head) * N_KEYS + row, own = t * n_heads + head, of_head = own * N_KEYS + row;
        uint factor = decay_at + t * decay_token + head * decay_head;
        float value = inside ? v[v_at + own * width + column] : 0.0, result = 0.0, sum = 0.0;
        for (uint i = 0; i < n; i++) {
            if (BEFORE) result += s[i] * q[q_at + of_key + i];
            s[i] *= decay[factor + (BY_CHANNEL ? row + i : 0u)];
            if (DELTA) sum += s[i] * k[k_at + of_key + i];
            if (RANK_ONE) sum += s[i] * a[a_at + of_head + i];
        }
        if (DELTA || RANK_ONE) {
            found[part][lane] = sum;
            barrier();
            sum = 0.0;
            for (uint other = 0; other < PARTS; other++) sum += found[other][lane];
        }
        if (DELTA) value = beta[beta_at + own] * (value - sum);
        for (uint i = 0; i < n; i++) {
            s[i] += k[k_at + of_key + i] * value;
            if (RANK_ONE) s[i] += b[b_at + of_head + i] * sum;
            if (!BEFORE) result += s[i] * q[q_at + of_key + i];
        }
        results[t & 1u][part][lane] = result;
        barrier();
        if (part == 0u && inside) {
            result = 0.0;
            for (uint other = 0; other < PARTS; other++) result += results[t & 1u][other][lane];
            y[y_at + own * width + column] = result;
        }
    }
    if (inside) {
        for (uint i = 0; i < n; i++) state[kept + i * width] = s[i];
    }
}
