// attention_tile.comp on matrix units whose division of fragments among lanes is known (fragments.glsl): scores become
// weights in the registers of the lanes that have them, without a turn through shared memory.
//
// A subgroup attends with ROW_TILES * 16 rows, and the workgroup shares COLUMNS keys and values in shared memory while
// the next ones are loaded. Sums over a head do not depend on the order of its values: lane 4g + q has values 8q to 8q + 7
// of each 32 of a query and of keys g and g + 8, one load of 16 bytes. Of the values' fragments, column g has value 8g + 2f
// of each 64 and column g + 8 the next one, where f counts four fragments; a load has them for one of the lane's positions.
//
// The first n_parts tiles may have many sequences of one token each. PARTS workgroups take a tile of those, and every
// PARTS-th of its sequences, which would follow each other otherwise.
//
// With FIXED_DIM the shape is a constant of the text, so that loops are unrolled before a driver's compiler sees them.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_GOOGLE_include_directive : require
layout(local_size_x_id = 0) in;
#ifdef FIXED_DIM
const uint SUBGROUPS = FIXED_SUBGROUPS, THREADS = SUBGROUPS * 32u, ROW_TILES = FIXED_TILES, COLUMNS = FIXED_COLUMNS;
const uint K_DIM = FIXED_DIM, V_DIM = FIXED_DIM;
#else
layout(constant_id = 0) const uint THREADS = 128u;
layout(constant_id = 1) const uint SUBGROUPS = 4u;
layout(constant_id = 2) const uint ROW_TILES = 1u;
layout(constant_id = 3) const uint COLUMNS = 32u;
layout(constant_id = 4) const uint K_DIM = 64u; // a multiple of 32
layout(constant_id = 5) const uint V_DIM = 64u; // a multiple of 64
#endif
layout(constant_id = 6) const bool HAS_SINKS = false;
layout(constant_id = 7) const uint block_size = 32u;
layout(constant_id = 8) const float softcap = 0.0;
layout(constant_id = 9) const uint mask = 0u;
layout(constant_id = 10) const uint ADDED = 0u;
layout(constant_id = 11) const bool OF_STEP = false;
layout(constant_id = 13) const bool BY_ROWS = true; // fragments.glsl
#include "fragments.glsl"
#include "common.glsl"
#include "attention_arguments.glsl"
#define HADAMARD_ID 14
#include "hadamard.glsl"
#include "attention.glsl"
#include "attention_mask.glsl"
#include "attention_general.glsl"
layout(std430, set = 0, binding = 1) readonly buffer Q4 { vec4 q4[]; };
layout(std430, set = 0, binding = 5) buffer Y4 { vec4 y4[]; };

const float LOG2E = 1.4426950408889634;
const uint UNIT = 16u;
const uint PARTS = 8u;
const uint ROWS = SUBGROUPS * ROW_TILES * UNIT;
const uint TILES = COLUMNS / UNIT;  // fragments of positions
const uint K_STEPS = K_DIM / 32u, V_STEPS = V_DIM / 64u;  // loads of a lane
// Words of 16 bytes of a row. Of eight lanes, which read at the same time, four have two keys, or two have four values:
// with these distances they meet all banks once.
const uint K_STRIDE = K_DIM / 8u + (12u - K_DIM / 8u % 8u) % 8u, V_STRIDE = V_DIM / 8u + (9u - V_DIM / 8u % 8u) % 8u;
const uint VALUES = COLUMNS * K_STRIDE;  // offset of values in the tile
const uint K_ITEMS = COLUMNS * K_DIM / 8u, V_ITEMS = COLUMNS * V_DIM / 8u;
const uint K_LOADS = (K_ITEMS + THREADS - 1u) / THREADS, V_LOADS = (V_ITEMS + THREADS - 1u) / THREADS;

shared uvec4 tile[VALUES + COLUMNS * V_STRIDE];

uint me, lane, head_kv, sequence, oldest, newest;
Octet keys[K_LOADS], values[V_LOADS];  // being loaded
LEFT queries[ROW_TILES * K_STEPS * 2u], weights[ROW_TILES];
ACCUMULATOR scores[ROW_TILES * TILES], sums[ROW_TILES * V_STEPS * 4u];
float top[ROW_TILES * 2u], total[ROW_TILES * 2u];  // of the lane's rows g and g + 8; logarithms are binary

// Of the lane's row i, value c of one of four quads of 64 values, whose fragments begin at an index.
#define SUM_AT(FROM, i, quad, c) \
    AT(sums[FROM + quad % 2u * 2u + c / 2u], element_of(i % 2u, quad / 2u + c % 2u * 2u))

uint position_of(uint start, uint item, uint dim) { return start + (me + item * THREADS) / (dim / 8u); }

uint row_of(uint position) { return row_of(sequence, clamp(position, oldest, newest), head_kv); }

void request(uint start) {
    [[unroll]] for (uint i = 0; i < K_LOADS; i++) {
        uint row = cache_at + row_of(position_of(start, i, K_DIM)) * k_row_words;
        keys[i] = load_key(row, head_kv, (me + i * THREADS) % (K_DIM / 8u));
    }
    [[unroll]] for (uint i = 0; i < V_LOADS; i++) {
        uint row = cache_at + v_cache + row_of(position_of(start, i, V_DIM)) * v_row_words;
        values[i] = load_value(row, head_kv, (me + i * THREADS) % (V_DIM / 8u));
    }
}

uvec4 octet_words(Octet octet, uint position) {
    if (position < oldest || position > newest) return uvec4(0u);
#ifdef CACHE_F16
    return octet.words;
#else
    const vec4 a = octet_half(octet, 0u), b = octet_half(octet, 1u);
    return uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
#endif
}

void put(uint start) {
    [[unroll]] for (uint i = 0; i < K_LOADS; i++) {
        const uint item = me + i * THREADS, to = item / (K_DIM / 8u) * K_STRIDE + item % (K_DIM / 8u);
        if (K_ITEMS % THREADS == 0u || item < K_ITEMS) tile[to] = octet_words(keys[i], position_of(start, i, K_DIM));
    }
    [[unroll]] for (uint i = 0; i < V_LOADS; i++) {
        const uint item = me + i * THREADS, to = VALUES + item / (V_DIM / 8u) * V_STRIDE + item % (V_DIM / 8u);
        if (V_ITEMS % THREADS == 0u || item < V_ITEMS) tile[to] = octet_words(values[i], position_of(start, i, V_DIM));
    }
}

#ifdef CACHE_QUANTIZED
// Adds the quads of the lanes at a distance, or subtracts them from these.
vec4 hadamard_lanes(vec4 mine, uint distance) {
    vec4 other;
    [[unroll]] for (uint c = 0; c < 4u; c++) other[c] = SHUFFLE_XOR(mine[c], distance);
    return (lane & distance) == 0u ? mine + other : other - mine;
}

// Rotates a quad of queries; four neighbouring lanes have a block, each this quad and the one before or behind it.
vec4 rotated_query(vec4 quad, vec4 other, bool is_second) {
    const vec4 sum = is_second ? other - quad : quad + other;
    return hadamard_lanes(hadamard_lanes(hadamard_quad(sum), 1u), 2u) * K_FACTOR;
}

// Rotates the sums, of whose blocks four neighbouring lanes have four quads each.
void rotate_sums() {
    [[unroll]] for (uint i = 0; i < ROW_TILES * 2u; i++) {
        [[unroll]] for (uint w = 0; w < V_STEPS; w++) {
            const uint from = (i / 2u * V_STEPS + w) * 4u;
            vec4 quads[4];
            [[unroll]] for (uint quad = 0; quad < 4u; quad++) {
                [[unroll]] for (uint c = 0; c < 4u; c++) quads[quad][c] = SUM_AT(from, i, quad, c);
            }
            [[unroll]] for (uint quad = 0; quad < 4u; quad++) {
                vec4 product = vec4(0.0);
                [[unroll]] for (uint b = 0; b < 4u; b++) product += hadamard_term(quads[b], quad, b);
                product = hadamard_lanes(hadamard_lanes(hadamard_quad(product), 1u), 2u) * V_FACTOR;
                [[unroll]] for (uint c = 0; c < 4u; c++) SUM_AT(from, i, quad, c) = product[c];
            }
        }
    }
}
#endif

void load_queries(uint first, uint n_tokens) {
    const uint n_head = n_head_kv * heads_per_key;
    [[unroll]] for (uint i = 0; i < ROW_TILES * 2u; i++) {
        const uint row = first + i * 8u + lane / 4u, token = row / heads_per_key;
        const uint from = q_at / 4u + (token * n_head + head_kv * heads_per_key + row % heads_per_key) * (K_DIM / 4u);
        [[unroll]] for (uint j = 0; j < K_STEPS * 2u; j++) {
            vec4 quad = token < n_tokens ? q4[from + j / 2u * 8u + lane % 4u * 2u + j % 2u] : vec4(0.0);
#ifdef CACHE_QUANTIZED
            if (HADAMARD_KEYS) {
                const vec4 other = token < n_tokens ? q4[from + j / 2u * 8u + lane % 4u * 2u + 1u - j % 2u] : vec4(0.0);
                quad = rotated_query(quad, other, j % 2u == 1u);
            }
#endif
            [[unroll]] for (uint c = 0; c < 4u; c++)
                AT(queries[i / 2u * K_STEPS * 2u + j], i % 2u * 4u + c) = float16_t(quad[c]);
        }
    }
}

void multiply_queries() {
    [[unroll]] for (uint i = 0; i < ROW_TILES * TILES; i++) scores[i] = ACCUMULATOR_OF(0.0);
    [[unroll]] for (uint c = 0; c < TILES; c++) {
        [[unroll]] for (uint j = 0; j < K_STEPS; j++) {
            uvec4 words[2];
            [[unroll]] for (uint upper = 0; upper < 2u; upper++)
                words[upper] = tile[(c * UNIT + upper * 8u + lane / 4u) * K_STRIDE + j * 4u + lane % 4u];
            [[unroll]] for (uint odd = 0; odd < 2u; odd++) {
                RIGHT key;
                [[unroll]] for (uint e = 0; e < 8u; e++)
                    AT(key, e) = unpackFloat2x16(words[e / 4u][odd * 2u + e / 2u % 2u])[e % 2u];
                [[unroll]] for (uint r = 0; r < ROW_TILES; r++)
                    scores[r * TILES + c] = MULTIPLY(queries[(r * K_STEPS + j) * 2u + odd], key, scores[r * TILES + c]);
            }
        }
    }
}

void add_values(uint c) {
    [[unroll]] for (uint w = 0; w < V_STEPS; w++) {
        uvec4 words[4];  // of the positions of the lane's four columns of weights
        [[unroll]] for (uint s = 0; s < 4u; s++)
            words[s] = tile[VALUES + (c * UNIT + column_of(lane, s)) * V_STRIDE + w * 8u + lane / 4u];
        [[unroll]] for (uint f = 0; f < 4u; f++) {
            RIGHT value;
            [[unroll]] for (uint e = 0; e < 8u; e++) AT(value, e) = unpackFloat2x16(words[e % 4u][f])[e / 4u];
            [[unroll]] for (uint r = 0; r < ROW_TILES; r++) {
                const uint i = (r * V_STEPS + w) * 4u + f;
                sums[i] = MULTIPLY(weights[r], value, sums[i]);
            }
        }
    }
}

// Sets the scores of positions that a row does not see to LOWEST.
void hide(uint start, uint first, uint n_tokens) {
    [[unroll]] for (uint i = 0; i < ROW_TILES * 2u; i++) {
        const uint token = (first + i * 8u + lane / 4u) / heads_per_key;
        const bool real = token < n_tokens && step_words[sequences + min(token, n_tokens - 1u)] == sequence;
        const uint position = step_words[positions + min(token, n_tokens - 1u)];
        const uint from = real ? oldest_seen(position) : 0xffffffffu, to = newest_seen(position, sequence);
        [[unroll]] for (uint c = 0; c < TILES; c++) {
            [[unroll]] for (uint s = 0; s < 4u; s++) {
                const uint at = start + c * UNIT + column_of(lane, s);
                if (at < from || at > to) AT(scores[i / 2u * TILES + c], element_of(i % 2u, s)) = LOWEST;
            }
        }
    }
}

// Replaces scores by weights relative to a row's highest score, and rescales the sums if there is a new one.
void weigh() {
    float factors[ROW_TILES * 2u];
    bool same = true;
    [[unroll]] for (uint i = 0; i < ROW_TILES * 2u; i++) {
        float highest = LOWEST;
        [[unroll]] for (uint c = 0; c < TILES; c++) {
            [[unroll]] for (uint s = 0; s < 4u; s++) {
                const uint e = element_of(i % 2u, s), j = i / 2u * TILES + c;
                if (softcap != 0.0) {
                    const float score = AT(scores[j], e);
                    AT(scores[j], e) = score == LOWEST ? LOWEST : capped(score) * LOG2E;
                }
                highest = max(highest, AT(scores[j], e));
            }
        }
        highest = max(highest, SHUFFLE_XOR(highest, 1u));
        highest = max(highest, SHUFFLE_XOR(highest, 2u));
        const float unit = softcap != 0.0 ? 1.0 : scale * LOG2E, fresh = max(top[i], highest * unit);
        const float from = fresh == LOWEST ? 0.0 : fresh;  // a row that sees nothing yet
        factors[i] = exp2(top[i] - from);
        same = same && top[i] == fresh;
        top[i] = fresh;
        float sum = 0.0;
        [[unroll]] for (uint c = 0; c < TILES; c++) {
            [[unroll]] for (uint s = 0; s < 4u; s++) {
                const uint e = element_of(i % 2u, s), j = i / 2u * TILES + c;
                const float weight = exp2(fma(AT(scores[j], e), unit, -from));
                AT(scores[j], e) = weight;
                sum += weight;
            }
        }
        total[i] = total[i] * factors[i] + sum;
    }
    if (ALL(same)) return;
    [[unroll]] for (uint i = 0; i < ROW_TILES * V_STEPS * 4u; i++)
        [[unroll]] for (uint e = 0; e < 8u; e++) AT(sums[i], e) *= factors[i / (V_STEPS * 4u) * 2u + upper_of(e)];
}

// Writes the rows of every n-th sequence from the first one on.
void write(uint first, uint n_tokens, uint first_sequence, uint n) {
    const uint n_head = n_head_kv * heads_per_key;
    [[unroll]] for (uint i = 0; i < ROW_TILES * 2u; i++) {
        float sum = total[i];
        sum += SHUFFLE_XOR(sum, 1u);
        sum += SHUFFLE_XOR(sum, 2u);
        const uint row = first + i * 8u + lane / 4u, token = row / heads_per_key;
        const uint head = head_kv * heads_per_key + row % heads_per_key;
        float factor = 1.0 / sum;
        if (HAS_SINKS) {
            const float sink = token < n_tokens ? sinks[sinks_at + head] * LOG2E : 0.0, highest = max(top[i], sink);
            factor = exp2(top[i] - highest);
            factor /= sum * factor + exp2(sink - highest);
        }
        if (token >= n_tokens) continue;
        const uint own = step_words[sequences + token];
        if (own < first_sequence || (own - first_sequence) % n != 0u) continue;
        const uint to = y_at / 4u + (token * n_head + head) * (V_DIM / 4u) + lane % 4u * 4u;
        [[unroll]] for (uint w = 0; w < V_STEPS; w++) {
            [[unroll]] for (uint quad = 0; quad < 4u; quad++) {  // of values 16q to 16q + 15 of each 64
                vec4 value;
                [[unroll]] for (uint c = 0; c < 4u; c++)
                    value[c] = SUM_AT((i / 2u * V_STEPS + w) * 4u, i, quad, c) * factor;
                y4[to + w * 16u + quad] = value;
            }
        }
    }
}

void main() {
    lane = LANE;
    me = SUBGROUP * 32u + lane;
    head_kv = gl_WorkGroupID.y;
    const uint n_tokens = row_count(rows);
    const uint n_shared = n_parts * PARTS, n_tiles = gl_NumWorkGroups.x - n_shared + n_parts;
    const bool is_shared = gl_WorkGroupID.x < n_shared;
    // The longest rows start first.
    const uint at = is_shared ? gl_WorkGroupID.x / PARTS : n_tiles - 1u - (gl_WorkGroupID.x - n_shared);
    const uint part = is_shared ? gl_WorkGroupID.x % PARTS : 0u, n = is_shared ? PARTS : 1u;
    const uint first_row = at * ROWS;
    const uint first_token = first_row / heads_per_key;
    if (first_token >= n_tokens) return;
    const uint last_token = min(n_tokens - 1u, (first_row + ROWS - 1u) / heads_per_key);
    const uint own_row = first_row + SUBGROUP * ROW_TILES * UNIT;
    const uint first_sequence = step_words[sequences + first_token] + part;
    const uint last_sequence = step_words[sequences + last_token];
    if (first_sequence > last_sequence) return;

    load_queries(own_row, n_tokens);
    [[unroll]] for (uint i = 0; i < ROW_TILES * V_STEPS * 4u; i++) sums[i] = ACCUMULATOR_OF(0.0);
    [[unroll]] for (uint i = 0; i < ROW_TILES * 2u; i++) {
        top[i] = LOWEST;
        total[i] = 0.0;
    }
    for (uint s = first_sequence; s <= last_sequence; s += n) {
        sequence = s;
        const uint first_position = step_words[positions + max(first_token, step_words[seq_starts + s])];
        const uint last_position = step_words[positions + min(last_token, step_words[seq_starts + s + 1u] - 1u)];
        newest = newest_seen(last_position, s);
        oldest = oldest_seen(first_position);
        // All rows see the positions between these two.
        const bool alone = step_words[sequences + first_token] == last_sequence;
        const uint seen_from = oldest_seen(last_position), seen_to = newest_seen(first_position, s);
        uint start = oldest / COLUMNS * COLUMNS;
        request(start);
        for (; start <= newest; start += COLUMNS) {
            barrier();
            put(start);
            barrier();
            if (start + COLUMNS <= newest) request(start + COLUMNS);
            multiply_queries();
            if (!alone || start < seen_from || start + COLUMNS - 1u > seen_to) hide(start, own_row, n_tokens);
            weigh();
            [[unroll]] for (uint c = 0; c < TILES; c++) {
                [[unroll]] for (uint r = 0; r < ROW_TILES; r++)
                    [[unroll]] for (uint e = 0; e < 8u; e++)
                        AT(weights[r], e) = float16_t(AT(scores[r * TILES + c], element_of(e / 4u, e % 4u)));
                add_values(c);
            }
        }
    }
#ifdef CACHE_QUANTIZED
    if (HADAMARD_VALUES) rotate_sums();
#endif
    write(own_row, n_tokens, first_sequence, n);
}
