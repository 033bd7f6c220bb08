// As attention_tile.comp, for devices that compute faster than they read shared memory. Queries stay in shared memory, and
// each invocation has a block of ROWS_EACH rows by COLUMNS_EACH columns of the scores, so that a value read is used more
// often. Blocks of positions that every row sees have no mask. THREADS / 16 invocations by 16 form the grid.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention_arguments.glsl"

layout(local_size_x_id = 11) in;
layout(constant_id = 0) const uint ROWS_EACH = 8u;
layout(constant_id = 1) const uint K_QUADS = 16u;
layout(constant_id = 2) const uint V_QUADS = 16u;
layout(constant_id = 3) const bool HAS_SINKS = false;
layout(constant_id = 4) const uint block_size = 32u;
layout(constant_id = 5) const float softcap = 0.0;
layout(constant_id = 6) const uint mask = 0u;
layout(constant_id = 7) const uint ADDED = 0u;
layout(constant_id = 8) const bool OF_STEP = false;
layout(constant_id = 9) const bool LOG_SUM = false; // append the logarithm of the sum to each result
layout(constant_id = 10) const uint COLUMNS_EACH = 4u;
layout(constant_id = 11) const uint THREADS = 128u;
#define HADAMARD_ID 12
#include "hadamard.glsl"
#include "attention.glsl"
#include "attention_mask.glsl"
#include "attention_general.glsl"

const uint TALL = THREADS / 16u;
const uint ROWS = TALL * ROWS_EACH;
const uint COLUMNS = 16u * COLUMNS_EACH;
const uint CHUNKS = (K_QUADS + 7u) / 8u;       // of 8 quads of queries and keys
const uint Q_STRIDE = 8u * CHUNKS + 1u;        // one quad more spreads rows over the banks
const uint K_STRIDE = 9u;
const uint V_COLUMNS = COLUMNS / 2u;           // positions whose values are in the tile at a time, 16 quads of each
const uint V_EACH = (V_QUADS + 15u) / 16u;
const uint W_STRIDE = COLUMNS / 4u + 1u;
const uint KEY_LOADERS = THREADS / 8u;         // positions that are loaded at a time, 8 quads of each
const uint VALUE_LOADERS = TALL;               // as above, 16 quads of each

shared vec4 queries[ROWS * Q_STRIDE];
shared vec4 tile[COLUMNS * K_STRIDE];
shared vec4 weights[ROWS * W_STRIDE];
shared uint cells[COLUMNS]; // rows of the cache of the positions of a block
const uint NO_CELL = 0xffffffffu;

uint me, tx, ty;

#ifdef CACHE_QUANTIZED
HADAMARD_OF(rotated_query, queries, K_BLOCK, K_FACTOR)
HADAMARD_ROWS(rotate_queries, rotated_query, queries, ROWS, 8u * CHUNKS, Q_STRIDE, THREADS)
HADAMARD_OF(rotated_result, tile, V_BLOCK, V_FACTOR)
#endif

vec4 query(uint row, uint quad) {
    uint token = row / heads_per_key;
    if (token >= row_count(rows)) return vec4(0.0);
    uint head = gl_WorkGroupID.y * heads_per_key + row % heads_per_key;
    uint from = q_at + (token * n_head_kv * heads_per_key + head) * k_dim;
    vec4 found;
    for (uint c = 0; c < 4u; c++) found[c] = quad * 4u + c < k_dim ? q[from + quad * 4u + c] : 0.0;
    return found;
}

void main() {
    me = gl_LocalInvocationID.x;
    tx = me % 16u;
    ty = me / 16u;
    uint head_kv = gl_WorkGroupID.y, first_row = gl_WorkGroupID.x * ROWS, n_tokens = row_count(rows);
    uint first_token = first_row / heads_per_key;
    if (first_token >= n_tokens) return;
    uint last_token = min(n_tokens - 1u, (first_row + ROWS - 1u) / heads_per_key);

    vec4 sum[ROWS_EACH * V_EACH];
    float top[ROWS_EACH], total[ROWS_EACH];
    uint own_position[ROWS_EACH], own_sequence[ROWS_EACH];
    for (uint i = 0; i < ROWS_EACH; i++) {
        for (uint v = 0; v < V_EACH; v++) sum[i * V_EACH + v] = vec4(0.0);
        top[i] = LOWEST;
        total[i] = 0.0;
        uint token = (first_row + ty + TALL * i) / heads_per_key;
        bool real = token < n_tokens;
        own_sequence[i] = real ? step_words[sequences + token] : 0xffffffffu;
        own_position[i] = real ? step_words[positions + token] : 0u;
    }
    for (uint i = me; i < ROWS * 8u * CHUNKS; i += THREADS) {
        uint row = i / (8u * CHUNKS), quad = i % (8u * CHUNKS);
        queries[row * Q_STRIDE + quad] = query(first_row + row, quad);
    }
#ifdef CACHE_QUANTIZED
    barrier();
    if (HADAMARD_KEYS) rotate_queries(me);
#endif

    uint first_sequence = step_words[sequences + first_token], last_sequence = step_words[sequences + last_token];
    for (uint s = first_sequence; s <= last_sequence; s++) {
        uint highest = step_words[positions + min(last_token, step_words[seq_starts + s + 1u] - 1u)];
        uint lowest = step_words[positions + max(first_token, step_words[seq_starts + s])];
        uint oldest = oldest_seen(lowest), newest = newest_seen(highest, s);
        bool alone = first_sequence == last_sequence && ADDED == NOTHING_ADDED;
        uint seen_from = oldest_seen(highest), seen_to = newest_seen(lowest, s); // by every row
        for (uint start = oldest / COLUMNS * COLUMNS; start <= newest; start += COLUMNS) {
            for (uint c = me; c < COLUMNS; c += THREADS) {
                uint position = start + c;
                cells[c] = position >= oldest && position <= newest ? row_of(s, position, head_kv) : NO_CELL;
            }
            float score[ROWS_EACH * COLUMNS_EACH];
            for (uint i = 0; i < ROWS_EACH * COLUMNS_EACH; i++) score[i] = 0.0;
            for (uint chunk = 0; chunk < CHUNKS; chunk++) {
                uint quad = 8u * chunk + me % 8u;
                barrier();
                for (uint c = me / 8u; c < COLUMNS; c += KEY_LOADERS) {
                    tile[c * K_STRIDE + me % 8u] = cells[c] != NO_CELL && quad < K_QUADS
                        ? key_quad(cache_at + cells[c] * k_row_words, head_kv, quad) : vec4(0.0);
                }
                barrier();
                for (uint j = 0; j < 8u; j++) {
                    vec4 k[COLUMNS_EACH];
                    for (uint c = 0; c < COLUMNS_EACH; c++) k[c] = tile[(tx + 16u * c) * K_STRIDE + j];
                    for (uint i = 0; i < ROWS_EACH; i++) {
                        vec4 r = queries[(ty + TALL * i) * Q_STRIDE + 8u * chunk + j];
                        for (uint c = 0; c < COLUMNS_EACH; c++) score[i * COLUMNS_EACH + c] += dot(r, k[c]);
                    }
                }
            }
            bool whole = alone && start >= seen_from && start + COLUMNS - 1u <= seen_to;
            for (uint i = 0; i < ROWS_EACH; i++) {
                float highest_score = LOWEST;
                for (uint c = 0; c < COLUMNS_EACH; c++) {
                    float value = capped(score[i * COLUMNS_EACH + c]);
                    if (!whole) {
                        uint position = start + tx + 16u * c;
                        bool visible = own_sequence[i] == s && position >= oldest_seen(own_position[i])
                            && position <= newest_seen(own_position[i], s);
                        uint row = first_row + ty + TALL * i, head = head_kv * heads_per_key + row % heads_per_key;
                        value = !visible ? LOWEST
                            : value + added_to_score(head, row / heads_per_key, position, own_position[i]);
                    }
                    score[i * COLUMNS_EACH + c] = value;
                    highest_score = max(highest_score, value);
                }
                weights[(ty + TALL * i) * W_STRIDE + tx / 4u][tx % 4u] = highest_score;
            }
            barrier();
            float fresh[ROWS_EACH];
            for (uint i = 0; i < ROWS_EACH; i++) {
                uint at = (ty + TALL * i) * W_STRIDE;
                vec4 highest_of = max(max(weights[at], weights[at + 1u]), max(weights[at + 2u], weights[at + 3u]));
                fresh[i] = max(max(top[i], max(highest_of.x, highest_of.y)), max(highest_of.z, highest_of.w));
            }
            barrier();
            for (uint i = 0; i < ROWS_EACH; i++) {
                float factor = fresh[i] == LOWEST ? 1.0 : exp(top[i] - fresh[i]);
                top[i] = fresh[i];
                total[i] *= factor;
                for (uint v = 0; v < V_EACH; v++) sum[i * V_EACH + v] *= factor;
                for (uint c = 0; c < COLUMNS_EACH; c++) {
                    float value = score[i * COLUMNS_EACH + c], w = value == LOWEST ? 0.0 : exp(value - fresh[i]);
                    total[i] += w;
                    weights[(ty + TALL * i) * W_STRIDE + 4u * c + tx / 4u][tx % 4u] = w;
                }
            }
            for (uint each = 0; each < V_EACH; each++) {
                for (uint part = 0; part < 2u; part++) {
                    barrier();
                    uint quad = 16u * each + tx;
                    for (uint c = ty; c < V_COLUMNS; c += VALUE_LOADERS) {
                        uint cell = cells[part * V_COLUMNS + c];
                        tile[c * 16u + tx] = cell != NO_CELL && quad < V_QUADS
                            ? value_quad(cache_at + v_cache + cell * v_row_words, head_kv, quad) : vec4(0.0);
                    }
                    barrier();
                    for (uint four = 0; four < V_COLUMNS / 4u; four++) {
                        vec4 value[4];
                        for (uint c = 0; c < 4u; c++) value[c] = tile[(4u * four + c) * 16u + tx];
                        for (uint i = 0; i < ROWS_EACH; i++) {
                            vec4 w = weights[(ty + TALL * i) * W_STRIDE + part * (V_COLUMNS / 4u) + four];
                            sum[i * V_EACH + each] += w.x * value[0] + w.y * value[1] + w.z * value[2] + w.w * value[3];
                        }
                    }
                }
            }
        }
    }

#ifdef CACHE_QUANTIZED
    for (uint i = 0; HADAMARD_VALUES && i < ROWS_EACH * V_EACH; i++) {
        barrier();
        tile[me] = sum[i];
        barrier();
        sum[i] = rotated_result(0u, me);
    }
#endif
    barrier();
    for (uint i = 0; i < ROWS_EACH; i++) weights[(ty + TALL * i) * W_STRIDE + tx / 4u][tx % 4u] = total[i];
    barrier();
    for (uint i = 0; i < ROWS_EACH; i++) {
        uint row = first_row + ty + TALL * i, token = row / heads_per_key;
        if (token >= n_tokens) continue;
        uint head = head_kv * heads_per_key + row % heads_per_key, at = (ty + TALL * i) * W_STRIDE;
        float all = dot(weights[at] + weights[at + 1u] + weights[at + 2u] + weights[at + 3u], vec4(1.0));
        float sink = HAS_SINKS ? sinks[sinks_at + head] : LOWEST, highest = max(top[i], sink);
        float factor = exp(top[i] - highest);
        all = all * factor + (HAS_SINKS ? exp(sink - highest) : 0.0);
        factor /= all;
        uint to = y_at + (token * n_head_kv * heads_per_key + head) * (v_dim + uint(LOG_SUM));
        if (LOG_SUM && tx == 0u) y[to + v_dim] = highest + log(all);
        for (uint v = 0; v < V_EACH; v++) {
            for (uint c = 0; c < 4u; c++) {
                uint column = (tx + 16u * v) * 4u + c;
                if (column < v_dim) y[to + column] = sum[i * V_EACH + v][c] * factor;
            }
        }
    }
}
