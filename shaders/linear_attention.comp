// Gated linear attention: a workgroup updates 32 columns of a head's state of a sequence, token by token. Operands of
// several tokens are loaded into shared memory first.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint COLUMNS = 32u, PARTS = 8u; // an invocation has one part of the rows of a column
layout(local_size_x = 32, local_size_y = 8) in;
layout(constant_id = 0) const uint N_KEYS = 64u; // rows of the state
layout(constant_id = 1) const bool BY_CHANNEL = false; // a decay per key channel
layout(constant_id = 2) const bool DELTA = false; // apply the delta rule
layout(constant_id = 3) const bool RANK_ONE = false; // apply the rank-one update by a and b
layout(constant_id = 4) const bool BEFORE = false; // queries read the state before its update
layout(constant_id = 5) const uint TOKENS = 8u; // tokens in shared memory
const uint ROWS = (N_KEYS + PARTS - 1u) / PARTS, PADDED = ROWS * PARTS;
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
    uint positions, seq_starts, slots; // indices in the step block
    uint n_right; // index of each sequence's tokens to read for its state alone; 0: all are read, for results, too
    uint stores; // 1: the state after these tokens is stored
    uint n_heads, n_key_heads, tiled, width;
    uint decay_token, decay_head; // strides in words
};

const uint CHANNELS = BY_CHANNEL ? PADDED : 1u, RANKS = RANK_ONE ? PADDED : 1u;
shared float keys[TOKENS * PADDED], queries[TOKENS * PADDED], values[TOKENS * COLUMNS], betas[TOKENS];
shared float decays[TOKENS * CHANNELS], as[TOKENS * RANKS], bs[TOKENS * RANKS];
shared float found[2][PARTS][COLUMNS]; // partial products of keys and state, for even and odd tokens
shared float results[TOKENS][PARTS][COLUMNS]; // partial products of queries and state

void main() {
    uint blocks = (width + COLUMNS - 1u) / COLUMNS;
    uint lane = gl_LocalInvocationID.x, part = gl_LocalInvocationID.y, me = gl_LocalInvocationIndex;
    uint head = gl_WorkGroupID.x / blocks, corner = gl_WorkGroupID.x % blocks * COLUMNS, column = corner + lane;
    uint sequence = gl_WorkGroupID.y;
    if (sequence >= step_words[2]) return;
    bool inside = column < width;
    uint first = step_words[seq_starts + sequence], end = step_words[seq_starts + sequence + 1u];
    if (n_right != 0u) end = first + step_words[n_right + sequence];
    uint row = part * ROWS;
    uint kept = state_at + ((step_words[slots + sequence] * n_heads + head) * N_KEYS + row) * width + column;
    bool begins = step_words[positions + first] == 0u;
    float s[ROWS];
    for (uint i = 0u; i < ROWS; i++) s[i] = begins || !inside || row + i >= N_KEYS ? 0.0 : state[kept + i * width];
    uint key_head = tiled != 0u ? head % n_key_heads : head / (n_heads / n_key_heads);
    for (uint t0 = first; t0 < end; t0 += TOKENS) {
        uint n = min(TOKENS, end - t0);
        for (uint i = me; i < n * PADDED; i += 256u) {
            uint t = t0 + i / PADDED, channel = i % PADDED;
            bool there = channel < N_KEYS;
            uint of_key = (t * n_key_heads + key_head) * N_KEYS + channel, of_head = (t * n_heads + head) * N_KEYS + channel;
            keys[i] = there ? k[k_at + of_key] : 0.0;
            queries[i] = there ? q[q_at + of_key] : 0.0;
            if (BY_CHANNEL) decays[i] = there ? decay[decay_at + t * decay_token + head * decay_head + channel] : 0.0;
            if (RANK_ONE) as[i] = there ? a[a_at + of_head] : 0.0;
            if (RANK_ONE) bs[i] = there ? b[b_at + of_head] : 0.0;
        }
        if (part < n) { // TOKENS <= PARTS
            uint own = (t0 + part) * n_heads + head;
            values[part * COLUMNS + lane] = inside ? v[v_at + own * width + column] : 0.0;
            if (DELTA && lane == 0u) betas[part] = beta[beta_at + own];
            if (!BY_CHANNEL && lane == 1u) decays[part] = decay[decay_at + (t0 + part) * decay_token + head * decay_head];
        }
        barrier();
        for (uint t = 0u; t < n; t++) {
            uint at = t * PADDED + row;
            float value = values[t * COLUMNS + lane], result = 0.0, sum = 0.0;
            for (uint i = 0u; i < ROWS; i++) {
                if (BEFORE) result += s[i] * queries[at + i];
                s[i] *= decays[BY_CHANNEL ? at + i : t];
                if (DELTA) sum += s[i] * keys[at + i];
                if (RANK_ONE) sum += s[i] * as[at + i];
            }
            if (DELTA || RANK_ONE) {
                found[t & 1u][part][lane] = sum;
                barrier();
                sum = 0.0;
                for (uint other = 0u; other < PARTS; other++) sum += found[t & 1u][other][lane];
            }
            if (DELTA) value = betas[t] * (value - sum);
            for (uint i = 0u; i < ROWS; i++) {
                s[i] += keys[at + i] * value;
                if (RANK_ONE) s[i] += bs[at + i] * sum;
                if (!BEFORE) result += s[i] * queries[at + i];
            }
            results[t][part][lane] = result;
        }
        barrier();
        if (part < n && inside && n_right == 0u) {
            float result = 0.0;
            for (uint other = 0u; other < PARTS; other++) result += results[part][other][lane];
            y[y_at + ((t0 + part) * n_heads + head) * width + column] = result;
        }
    }
    if (inside && stores != 0u) {
        for (uint i = 0u; i < ROWS; i++) {
            if (row + i < N_KEYS) state[kept + i * width] = s[i];
        }
    }
}
