// All of attention for single tokens of separate sequences, or for up to ROWS tokens of each: a workgroup rotates the queries
// of some heads of a token and their key, stores key and value, and attends to one part of the positions; the last workgroup
// to finish merges all parts. Keys and values of the step that a token attends to are not read from the cache, where other
// workgroups store them, but computed by each workgroup.
//
// LANES invocations share a position, with eight columns each (or multiples for larger heads). They load EACH keys and
// values ahead and keep their own running maximum and sums, so invocations only synchronize at the end. With few positions
// the kernel is bound by memory latency, so loads are issued as early as possible: queries before the token's position is
// known, and cache blocks before it is known which are needed.
//
// Around a quantized cache queries, keys, values and results may be rotated (hadamard.glsl).
//
// With UNITS matrix units multiply (attention_units.glsl): single tokens, and up to eight heads of whole fragments.
#version 450
#extension GL_EXT_control_flow_attributes : require
#ifdef UNITS
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "common.glsl"
#include "rope_angle.glsl"
#define CACHE_BINDING 8
#define CACHE_ACCESS
#include "cache.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 128u;
layout(constant_id = 1) const uint SUBGROUP_SIZE = 32u; // subgroup size
layout(constant_id = 2) const uint LANES = 8u;
layout(constant_id = 3) const uint EACH = 4u;
layout(constant_id = 4) const uint ROUNDS = 1u; // minimum rounds per part
layout(constant_id = 5) const uint HEADS = 4u;
layout(constant_id = 6) const uint K_OCTETS = 8u;
layout(constant_id = 7) const uint V_OCTETS = 8u;
layout(constant_id = 8) const bool HAS_SINKS = false;
layout(constant_id = 9) const uint heads_per_key = 4u;
layout(constant_id = 10) const uint block_size = 32u;
layout(constant_id = 11) const float softcap = 0.0;
layout(constant_id = 12) const bool HALF_Y = false; // also store results as float16
layout(constant_id = 13) const uint TILES = 0u;
layout(constant_id = 14) const uint UNIT = 16u;
layout(constant_id = 15) const bool LATE = false; // request keys and values only when those in use are not needed any more
layout(constant_id = 16) const uint ROWS = 1u; // maximum tokens of a sequence, at adjacent positions
layout(constant_id = 17) const bool NORMED = false; // queries and keys are divided by their mean square first
layout(constant_id = 18) const float EPS = 0.0;
#ifdef UNITS
layout(constant_id = 19) const bool BY_ROWS = true; // fragments.glsl
#include "fragments.glsl"
#endif
#define HADAMARD_ID 19
#include "hadamard.glsl"
layout(std430, set = 0, binding = 1) readonly buffer Q { float q[]; };
layout(std430, set = 0, binding = 2) readonly buffer K { float k[]; };
layout(std430, set = 0, binding = 3) readonly buffer V { float v[]; };
layout(std430, set = 0, binding = 4) readonly buffer Turns { uvec2 turns[]; };
layout(std430, set = 0, binding = 5) readonly buffer Sinks { float sinks[]; };
layout(std430, set = 0, binding = 6) coherent buffer Partial { vec4 partial[]; };
layout(std430, set = 0, binding = 7) coherent buffer Counters { uint counters[]; };
layout(std430, set = 0, binding = 9) buffer Y { float y[]; };
layout(std430, set = 0, binding = 10) writeonly buffer Halves { uvec2 y_halves[]; };
layout(std430, set = 0, binding = 11) readonly buffer QNorm { float q_norm[]; };
layout(std430, set = 0, binding = 12) readonly buffer KNorm { float k_norm[]; };
layout(push_constant) uniform Push {
    uint rows, q_at, k_at, v_at, turns_at, sinks_at, partial_at, counters_at, cache_at, y_at, halves_at, q_norm_at, k_norm_at;
    uint positions, sequences, seq_starts, table, table_width; // indices in the step block
    uint n_head_kv;
    uint k_row_words, v_row_words, k_scale_words, v_scale_words, v_cache;
    uint k_dim, v_dim, v_head_dim, window;
    float scale;
    uint n_rot, second_distance; // distance within a pair; 1: adjacent values
    float magnitude;
};
#include "attention.glsl"
#include "halves.glsl"

const uint MOST_PARTS = 32u;
const uint SUBGROUPS = THREADS / SUBGROUP_SIZE, GROUPS = THREADS / LANES;
#ifdef UNITS
const uint FRAGMENT = 16u; // positions of a subgroup at a time
const uint CHUNK = SUBGROUPS * FRAGMENT;
#else
const uint CHUNK = GROUPS * EACH; // positions per workgroup and iteration
#endif
const uint K_EACH = (K_OCTETS + LANES - 1u) / LANES, V_EACH = (V_OCTETS + LANES - 1u) / LANES;
const uint K_QUADS = 2u * K_OCTETS, V_QUADS = 2u * V_OCTETS;
const uint PAIRS = K_OCTETS * 4u, PAIRS_EACH = ((HEADS + ROWS) * PAIRS + THREADS - 1u) / THREADS;

shared vec4 queries[HEADS * K_OCTETS * 2u];
shared vec4 new_keys[ROWS * K_QUADS];
shared vec4 new_values[ROWS * V_QUADS];
shared vec4 sums[SUBGROUPS * HEADS * V_QUADS];
shared vec2 states[HEADS * (SUBGROUPS > MOST_PARTS ? SUBGROUPS : MOST_PARTS)]; // maximum and sum of weights
shared float squares[NORMED ? PAIRS_EACH * SUBGROUPS : 1u]; // sums of subgroups, each of values of one head
shared bool last;

uint me, lane, group, token, position, n_head;
uint sequence, first_row, n_before; // first token of the sequence, and how many there are before this one

#include "attention_token.glsl"

#ifdef UNITS
#include "attention_units.glsl"
#else
uint blocks[EACH];                             // blocks of the positions to load next
Octet keys[EACH * K_EACH], values[EACH * V_EACH]; // being loaded

uint position_of(uint first, uint e) { return first + e * GROUPS + group; }

void find_blocks(uint first) {
    [[unroll]] for (uint e = 0; e < EACH; e++) {
        blocks[e] = step_words[table + sequence * table_width + min(position_of(first, e) / block_size, table_width - 1u)];
    }
}

uint row_of(uint first, uint e, uint head_kv) { return cell_row(blocks[e], position_of(first, e), head_kv); }

void request_key(uint e, uint first, uint end, uint head_kv) {
    uint key_row = cache_at + row_of(first, e, head_kv) * k_row_words;
    [[unroll]] for (uint j = 0; j < K_EACH; j++) {
        uint octet = min(lane + j * LANES, K_OCTETS - 1u);
        keys[e * K_EACH + j] = no_octet();
        if (position_of(first, e) < end) keys[e * K_EACH + j] = load_key(key_row, head_kv, octet);
    }
}

void request_value(uint e, uint first, uint end, uint head_kv) {
    uint value_row = cache_at + v_cache + row_of(first, e, head_kv) * v_row_words;
    [[unroll]] for (uint j = 0; j < V_EACH; j++) {
        uint octet = min(lane + j * LANES, V_OCTETS - 1u);
        values[e * V_EACH + j] = no_octet();
        if (position_of(first, e) < end) values[e * V_EACH + j] = load_value(value_row, head_kv, octet);
    }
}

void request(uint first, uint end, uint head_kv) {
    [[unroll]] for (uint e = 0; e < EACH; e++) {
        request_key(e, first, end, head_kv);
        request_value(e, first, end, head_kv);
    }
}
#endif

#ifdef CACHE_QUANTIZED
HADAMARD_OF(rotated_query, queries, K_BLOCK, K_FACTOR)
HADAMARD_OF(rotated_key, new_keys, K_BLOCK, K_FACTOR)
HADAMARD_OF(rotated_value, new_values, V_BLOCK, V_FACTOR)
HADAMARD_OF(rotated_result, sums, V_BLOCK, V_FACTOR)

// Rotates the queries and the new keys and values.
void rotate() {
    const uint NEW_KEYS = HEADS * K_QUADS, NEW_VALUES = NEW_KEYS + ROWS * K_QUADS, ALL = NEW_VALUES + ROWS * V_QUADS;
    vec4 rotated[(ALL + THREADS - 1u) / THREADS];
    [[unroll]] for (uint t = 0; t * THREADS < ALL; t++) {
        const uint i = me + t * THREADS;
        if (HADAMARD_KEYS && i < NEW_KEYS) rotated[t] = rotated_query(0u, i);
        else if (HADAMARD_KEYS && i < NEW_VALUES) rotated[t] = rotated_key(0u, i - NEW_KEYS);
        else if (HADAMARD_VALUES && i >= NEW_VALUES && i < ALL) rotated[t] = rotated_value(0u, i - NEW_VALUES);
    }
    barrier();
    [[unroll]] for (uint t = 0; t * THREADS < ALL; t++) {
        const uint i = me + t * THREADS;
        if (HADAMARD_KEYS && i < NEW_KEYS) queries[i] = rotated[t];
        else if (HADAMARD_KEYS && i < NEW_VALUES) new_keys[i - NEW_KEYS] = rotated[t];
        else if (HADAMARD_VALUES && i >= NEW_VALUES && i < ALL) new_values[i - NEW_VALUES] = rotated[t];
    }
    barrier();
}
#endif

// The factor that rescales weights from one maximum to a higher one.
float rescaled(float top, float fresh) { return top == fresh ? 1.0 : exp(top - fresh); }

void put_result(uint head, uint quad, vec4 value) {
    const uint column = head * v_dim + quad * 4u;
    for (uint c = 0; c < 4u; c++) {
        if (quad * 4u + c < v_dim) y[y_at + token * n_head * v_dim + column + c] = value[c];
    }
    if (HALF_Y) y_halves[halves_at / 2u + half_place(token, column / 4u, n_head * v_dim / 4u, TILES, UNIT)] = half_quad(value);
}

#ifdef CACHE_QUANTIZED
// Rotates the results in sums back.
void put_rotated_results(uint first_head, uint n_heads) {
    barrier();
    for (uint i = me; i < n_heads * V_QUADS; i += THREADS) put_result(first_head + i / V_QUADS, i % V_QUADS, rotated_result(0u, i));
}
#endif

void main() {
    token = gl_WorkGroupID.z;
    if (token >= row_count(rows)) return;
    n_head = n_head_kv * heads_per_key;
    me = gl_LocalInvocationID.x;
    lane = me % LANES;
    group = me / LANES;
    const uint groups = (heads_per_key + HEADS - 1u) / HEADS, usual_part = CHUNK * ROUNDS;
    uint n_parts = gl_NumWorkGroups.x;
    uint head_kv = gl_WorkGroupID.y / groups, group_of_heads = gl_WorkGroupID.y % groups;
    uint n_heads = min(HEADS, heads_per_key - group_of_heads * HEADS);
    uint first_head = head_kv * heads_per_key + group_of_heads * HEADS;

    sequence = ROWS == 1u ? token : step_words[sequences + token];
    first_row = ROWS == 1u ? token : step_words[seq_starts + sequence];
    n_before = token - first_row;
    find_blocks(gl_WorkGroupID.x * usual_part);
    position = step_words[positions + token];
    Pair pairs[PAIRS_EACH];
    [[unroll]] for (uint i = 0; i < PAIRS_EACH; i++) {
        pairs[i] = load_pair(me + i * THREADS, n_heads, first_head, head_kv);
    }

    uint oldest = window != 0u && position >= window ? position - window + 1u : 0u;
#ifdef UNITS
    seen_from = oldest;
    oldest = oldest / FRAGMENT * FRAGMENT;
#endif
    uint n_positions = position + 1u - oldest;
    uint part = usual_part, n_used = (n_positions + usual_part - 1u) / usual_part;
    if (n_used > n_parts) {
        part = CHUNK * ((n_positions + n_parts * CHUNK - 1u) / (n_parts * CHUNK));
        n_used = (n_positions + part - 1u) / part;
    }
    uint start = oldest + gl_WorkGroupID.x * part, end = min(start + part, position + 1u);
    if (start > position) return;
    bool newest = end == position + 1u;
    const uint first_new = position - n_before;
    const bool has_new = end > first_new;

    if (start != gl_WorkGroupID.x * usual_part) find_blocks(start);
    request(start, end, head_kv);
#ifndef UNITS
    find_blocks(start + CHUNK);
#endif
    if (NORMED) {
        [[unroll]] for (uint i = 0; i < PAIRS_EACH; i++) {
            float square = dot(pairs[i].values, pairs[i].values);
            [[unroll]] for (uint step = 1u; step < SUBGROUP_SIZE; step *= 2u) square += subgroupShuffleXor(square, step);
            if (me % SUBGROUP_SIZE == 0u) squares[i * SUBGROUPS + me / SUBGROUP_SIZE] = square;
        }
        barrier();
    }
    [[unroll]] for (uint i = 0; i < PAIRS_EACH; i++) put_pair(pairs[i]);
    for (uint i = me; has_new && i < (1u + n_before) * V_OCTETS * 8u; i += THREADS) {
        const uint row = i / (V_OCTETS * 8u), column = i % (V_OCTETS * 8u);
        const float value = column < v_dim ? rounded(v[v_at + ((first_row + row) * n_head_kv + head_kv) * v_dim + column]) : 0.0;
        set_value(false, row, column, value);
    }
    barrier();
#ifdef CACHE_QUANTIZED
    if (HADAMARD_KEYS || HADAMARD_VALUES) rotate();
#endif
    if (newest) {
        const bool write = group_of_heads == 0u;
        const uint row = cache_row(sequence, position, head_kv);
        const uint key_row = cache_at + row * k_row_words, value_row = cache_at + v_cache + row * v_row_words;
        stored = n_before;
#ifdef CACHE_QUANTIZED
        store(write, key_row, value_row, head_kv);
#else
        if (write) store(true, key_row, k_dim);
        if (write) store(false, value_row, v_dim);
#endif
    }
#ifdef CACHE_QUANTIZED
    // Those before become what the cache will return.
    for (stored = 0u; has_new && stored < n_before; stored++) store(false, 0u, 0u, head_kv);
    barrier();
#endif

#ifdef UNITS
    attend(start, end, head_kv);
#else
    vec4 query[HEADS * K_EACH * 2u], sum[HEADS * V_EACH * 2u];
    float top[HEADS], total[HEADS];
    [[unroll]] for (uint h = 0; h < HEADS; h++) {
        top[h] = LOWEST;
        total[h] = 0.0;
        [[unroll]] for (uint i = 0; i < 2u * V_EACH; i++) sum[h * V_EACH * 2u + i] = vec4(0.0);
        [[unroll]] for (uint i = 0; i < 2u * K_EACH; i++) {
            uint octet = lane + i / 2u * LANES;
            query[h * K_EACH * 2u + i] =
                octet < K_OCTETS ? queries[(h * K_OCTETS + octet) * 2u + i % 2u] : vec4(0.0);
        }
    }

    for (uint first = start; first < end; first += CHUNK) {
        Octet chunk_keys[EACH * K_EACH], chunk_values[EACH * V_EACH];
        [[unroll]] for (uint i = 0; i < EACH * K_EACH; i++) chunk_keys[i] = keys[i];
        [[unroll]] for (uint i = 0; i < EACH * V_EACH; i++) chunk_values[i] = values[i];
        const bool more = first + CHUNK < end;
        if (more && !LATE) {
            request(first + CHUNK, end, head_kv);
            find_blocks(first + 2u * CHUNK);
        }

        float score[EACH * HEADS];
        [[unroll]] for (uint e = 0; e < EACH; e++) {
            const uint row = position_of(first, e) - first_new; // of the step
            const bool is_new = row <= n_before;
            [[unroll]] for (uint h = 0; h < HEADS; h++) score[e * HEADS + h] = 0.0;
            [[unroll]] for (uint i = 0; i < 2u * K_EACH; i++) {
                vec4 key = octet_half(chunk_keys[e * K_EACH + i / 2u], i % 2u);
                if (is_new) key = new_keys[row * K_QUADS + min(lane + i / 2u * LANES, K_OCTETS - 1u) * 2u + i % 2u];
                [[unroll]] for (uint h = 0; h < HEADS; h++) {
                    score[e * HEADS + h] += dot(key, query[h * K_EACH * 2u + i]);
                }
            }
        }
        if (more && LATE)
            [[unroll]] for (uint e = 0; e < EACH; e++) request_key(e, first + CHUNK, end, head_kv);
        [[unroll]] for (uint step = 1u; step < LANES; step *= 2u) {
            [[unroll]] for (uint i = 0; i < EACH * HEADS; i++) score[i] += subgroupShuffleXor(score[i], step);
        }
        [[unroll]] for (uint h = 0; h < HEADS; h++) {
            float fresh = top[h];
            [[unroll]] for (uint e = 0; e < EACH; e++) {
                bool real = position_of(first, e) < end;
                score[e * HEADS + h] = real ? capped(score[e * HEADS + h]) : LOWEST;
                fresh = max(fresh, score[e * HEADS + h]);
            }
            float factor = rescaled(top[h], fresh);
            top[h] = fresh;
            total[h] *= factor;
            [[unroll]] for (uint i = 0; i < 2u * V_EACH; i++) sum[h * V_EACH * 2u + i] *= factor;
            [[unroll]] for (uint e = 0; e < EACH; e++) {
                score[e * HEADS + h] = score[e * HEADS + h] == LOWEST ? 0.0 : exp(score[e * HEADS + h] - fresh);
                total[h] += score[e * HEADS + h];
            }
        }
        [[unroll]] for (uint e = 0; e < EACH; e++) {
            const uint row = position_of(first, e) - first_new; // of the step
            const bool is_new = row <= n_before;
            [[unroll]] for (uint i = 0; i < 2u * V_EACH; i++) {
                vec4 value = octet_half(chunk_values[e * V_EACH + i / 2u], i % 2u);
                if (is_new) value = new_values[row * V_QUADS + min(lane + i / 2u * LANES, V_OCTETS - 1u) * 2u + i % 2u];
                [[unroll]] for (uint h = 0; h < HEADS; h++) sum[h * V_EACH * 2u + i] += score[e * HEADS + h] * value;
            }
        }
        if (more && LATE) {
            [[unroll]] for (uint e = 0; e < EACH; e++) request_value(e, first + CHUNK, end, head_kv);
            find_blocks(first + 2u * CHUNK);
        }
    }

    // One of LANES lanes has its subgroup's result; then the workgroup merges.
    [[unroll]] for (uint h = 0; h < HEADS; h++) {
        float fresh = top[h];
        [[unroll]] for (uint step = LANES; step < SUBGROUP_SIZE; step *= 2u) fresh = max(fresh, subgroupShuffleXor(fresh, step));
        float factor = rescaled(top[h], fresh);
        total[h] *= factor;
        [[unroll]] for (uint i = 0; i < 2u * V_EACH; i++) sum[h * V_EACH * 2u + i] *= factor;
        [[unroll]] for (uint step = LANES; step < SUBGROUP_SIZE; step *= 2u) {
            total[h] += subgroupShuffleXor(total[h], step);
            [[unroll]] for (uint i = 0; i < 2u * V_EACH; i++) {
                sum[h * V_EACH * 2u + i] += subgroupShuffleXor(sum[h * V_EACH * 2u + i], step);
            }
        }
        uint to = me / SUBGROUP_SIZE * HEADS + h;
        if (me % SUBGROUP_SIZE == 0u) states[to] = vec2(fresh, total[h]);
        [[unroll]] for (uint i = 0; i < 2u * V_EACH; i++) {
            uint octet = lane + i / 2u * LANES;
            if (me % SUBGROUP_SIZE < LANES && octet < V_OCTETS) {
                sums[to * V_QUADS + octet * 2u + i % 2u] = sum[h * V_EACH * 2u + i];
            }
        }
    }
#endif
    barrier();
    const uint part_quads = V_QUADS + 1u; // the last quad has the maximum and the sum of weights
    for (uint i = me; i < n_heads * V_QUADS; i += THREADS) {
        uint h = i / V_QUADS, quad = i % V_QUADS, head = first_head + h;
        float sink = HAS_SINKS && n_used == 1u ? sinks[sinks_at + head] : LOWEST, fresh = sink;
        for (uint s = 0; s < SUBGROUPS; s++) fresh = max(fresh, states[s * HEADS + h].x);
        float all = HAS_SINKS && n_used == 1u ? exp(sink - fresh) : 0.0;
        vec4 value = vec4(0.0);
        for (uint s = 0; s < SUBGROUPS; s++) {
            float factor = rescaled(states[s * HEADS + h].x, fresh);
            all += factor * states[s * HEADS + h].y;
            value += factor * sums[(s * HEADS + h) * V_QUADS + quad];
        }
        if (n_used == 1u) {
            if (HADAMARD_VALUES) sums[i] = value / all; // which no other invocation reads
            else put_result(head, quad, value / all);
        } else {
            uint to = partial_at / 4u + ((token * n_head + head) * n_parts + gl_WorkGroupID.x) * part_quads;
            partial[to + quad] = value;
            if (quad == 0u) partial[to + V_QUADS] = vec4(fresh, all, 0.0, 0.0);
        }
    }
#ifdef CACHE_QUANTIZED
    if (HADAMARD_VALUES && n_used == 1u) put_rotated_results(first_head, n_heads);
#endif
    if (n_used == 1u) return;

    memoryBarrierBuffer();
    barrier();
    const uint counter = counters_at + token * gl_NumWorkGroups.y + gl_WorkGroupID.y;
    if (me == 0u) last = atomicAdd(counters[counter], 1u) + 1u == n_used;
    barrier();
    if (!last) return;
    memoryBarrierBuffer();
    if (me == 0u) counters[counter] = 0u; // reset for the next dispatch
    uint from = partial_at / 4u + (token * n_head + first_head) * n_parts * part_quads;
    for (uint i = me; i < n_heads * n_used; i += THREADS) {
        uint h = i / n_used, p = i % n_used;
        states[h * MOST_PARTS + p] = partial[from + (h * n_parts + p) * part_quads + V_QUADS].xy;
    }
    barrier();
    for (uint i = me; i < n_heads * V_QUADS; i += THREADS) {
        uint h = i / V_QUADS, quad = i % V_QUADS, head = first_head + h;
        float sink = HAS_SINKS ? sinks[sinks_at + head] : LOWEST, fresh = sink;
        for (uint p = 0; p < n_used; p++) fresh = max(fresh, states[h * MOST_PARTS + p].x);
        float all = HAS_SINKS ? exp(sink - fresh) : 0.0;
        vec4 value = vec4(0.0);
        for (uint p = 0; p < n_used; p++) {
            float factor = exp(states[h * MOST_PARTS + p].x - fresh);
            all += factor * states[h * MOST_PARTS + p].y;
            value += factor * partial[from + (h * n_parts + p) * part_quads + quad];
        }
        if (HADAMARD_VALUES) sums[i] = value / all;
        else put_result(head, quad, value / all);
    }
#ifdef CACHE_QUANTIZED
    if (HADAMARD_VALUES) put_rotated_results(first_head, n_heads);
#endif
}
