// A workgroup attends with a tile of rows, pairs of a token and a query head of one key head, to all positions, COLUMNS at
// a time, with running maximum and sum (Dao et al. 2022, arXiv:2205.14135). Its 256 invocations form a 16 x 16 grid: each
// has ROWS_EACH rows, COLUMNS / 16 columns of the scores, and V_QUADS / 16 groups of four of the results.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention_arguments.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint ROWS_EACH = 2u;
layout(constant_id = 1) const uint K_QUADS = 16u;
layout(constant_id = 2) const uint V_QUADS = 16u;
layout(constant_id = 3) const bool HAS_SINKS = false;
layout(constant_id = 4) const uint block_size = 32u;
layout(constant_id = 5) const float softcap = 0.0;
layout(constant_id = 6) const uint mask = 0u;
layout(constant_id = 7) const uint ADDED = 0u;
layout(constant_id = 8) const bool OF_STEP = false;
layout(constant_id = 9) const bool LOG_SUM = false; // append the logarithm of the sum to each result
layout(constant_id = 10) const uint SLICE = 32u;    // quads of values at a time, a multiple of 16
#define HADAMARD_ID 11
#include "hadamard.glsl"
#include "attention.glsl"
#include "attention_mask.glsl"
#include "attention_general.glsl"

const uint ROWS = 16u * ROWS_EACH;
const uint COLUMNS = 32u;
const uint STRIDE = 9u;        // quads of 32 columns of queries or keys, and one to spread them over the banks
const uint V_EACH = (V_QUADS + 15u) / 16u;

shared vec4 tile[(ROWS + COLUMNS) * STRIDE > COLUMNS * SLICE ? (ROWS + COLUMNS) * STRIDE : COLUMNS * SLICE];
shared float weights[ROWS * (COLUMNS + 1u)];

uint me, tx, ty;

#ifdef CACHE_QUANTIZED
HADAMARD_OF(rotated_query, tile, K_BLOCK, K_FACTOR)
HADAMARD_ROWS(rotate_queries, rotated_query, tile, ROWS, 8u, STRIDE, 256u)
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
        uint token = (first_row + ty + 16u * i) / heads_per_key;
        bool real = token < n_tokens;
        own_sequence[i] = real ? step_words[sequences + token] : 0xffffffffu;
        own_position[i] = real ? step_words[positions + token] : 0u;
    }

    for (uint s = step_words[sequences + first_token]; s <= step_words[sequences + last_token]; s++) {
        uint highest = step_words[positions + min(last_token, step_words[seq_starts + s + 1u] - 1u)];
        uint lowest = step_words[positions + max(first_token, step_words[seq_starts + s])];
        uint oldest = oldest_seen(lowest), newest = newest_seen(highest, s);
        for (uint start = oldest / COLUMNS * COLUMNS; start <= newest; start += COLUMNS) {
            float score[ROWS_EACH * 2u];
            for (uint i = 0; i < ROWS_EACH * 2u; i++) score[i] = 0.0;
            uint loaded = start + me / 8u;
            bool exists = loaded >= oldest && loaded <= newest;
            uint key_row = exists ? cache_at + row_of(s, loaded, head_kv) * k_row_words : 0u;
            for (uint first = 0; first < K_QUADS; first += 8u) {
                barrier();
                for (uint i = me; i < ROWS * 8u; i += 256u) {
                    tile[i / 8u * STRIDE + i % 8u] = query(first_row + i / 8u, first + i % 8u);
                }
                uint quad = first + me % 8u;
                tile[(ROWS + me / 8u) * STRIDE + me % 8u] =
                    exists && quad < K_QUADS ? key_quad(key_row, head_kv, quad) : vec4(0.0);
                barrier();
#ifdef CACHE_QUANTIZED
                if (HADAMARD_KEYS) rotate_queries(me);
#endif
                for (uint j = 0; j < 8u; j++) {
                    vec4 k0 = tile[(ROWS + tx) * STRIDE + j], k1 = tile[(ROWS + tx + 16u) * STRIDE + j];
                    for (uint i = 0; i < ROWS_EACH; i++) {
                        vec4 r = tile[(ty + 16u * i) * STRIDE + j];
                        score[2u * i] += dot(r, k0);
                        score[2u * i + 1u] += dot(r, k1);
                    }
                }
            }
            for (uint i = 0; i < ROWS_EACH; i++) {
                for (uint c = 0; c < 2u; c++) {
                    uint position = start + tx + 16u * c;
                    bool visible = own_sequence[i] == s && position >= oldest_seen(own_position[i])
                        && position <= newest_seen(own_position[i], s);
                    uint row = first_row + ty + 16u * i, head = head_kv * heads_per_key + row % heads_per_key;
                    float added = visible ? added_to_score(head, row / heads_per_key, position, own_position[i]) : 0.0;
                    score[2u * i + c] = visible ? capped(score[2u * i + c]) + added : LOWEST;
                    weights[(ty + 16u * i) * (COLUMNS + 1u) + tx + 16u * c] = score[2u * i + c];
                }
            }
            barrier();
            float fresh[ROWS_EACH];
            for (uint i = 0; i < ROWS_EACH; i++) {
                fresh[i] = top[i];
                for (uint c = 0; c < COLUMNS; c++) {
                    fresh[i] = max(fresh[i], weights[(ty + 16u * i) * (COLUMNS + 1u) + c]);
                }
            }
            barrier();
            for (uint i = 0; i < ROWS_EACH; i++) {
                float factor = fresh[i] == LOWEST ? 1.0 : exp(top[i] - fresh[i]);
                top[i] = fresh[i];
                total[i] *= factor;
                for (uint v = 0; v < V_EACH; v++) sum[i * V_EACH + v] *= factor;
                for (uint c = 0; c < 2u; c++) {
                    float w = score[2u * i + c] == LOWEST ? 0.0 : exp(score[2u * i + c] - fresh[i]);
                    total[i] += w;
                    weights[(ty + 16u * i) * (COLUMNS + 1u) + tx + 16u * c] = w;
                }
            }
            for (uint first = 0; first < V_QUADS; first += SLICE) {
                barrier();
                for (uint i = me; i < COLUMNS * SLICE; i += 256u) {
                    uint position = start + i / SLICE, quad = first + i % SLICE;
                    bool real = position >= oldest && position <= newest && quad < V_QUADS;
                    tile[i] = !real ? vec4(0.0)
                        : value_quad(cache_at + v_cache + row_of(s, position, head_kv) * v_row_words, head_kv, quad);
                }
                barrier();
                for (uint v = 0; v < SLICE / 16u; v++) {
                    uint each = first / 16u + v;
                    if (each >= V_EACH) break;
                    for (uint c = 0; c < COLUMNS; c++) {
                        vec4 value = tile[c * SLICE + tx + 16u * v];
                        for (uint i = 0; i < ROWS_EACH; i++) {
                            sum[i * V_EACH + each] += weights[(ty + 16u * i) * (COLUMNS + 1u) + c] * value;
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
    for (uint i = 0; i < ROWS_EACH; i++) weights[(ty + 16u * i) * (COLUMNS + 1u) + tx] = total[i];
    barrier();
    for (uint i = 0; i < ROWS_EACH; i++) {
        uint row = first_row + ty + 16u * i, token = row / heads_per_key;
        if (token >= n_tokens) continue;
        uint head = head_kv * heads_per_key + row % heads_per_key;
        float all = 0.0;
        for (uint c = 0; c < 16u; c++) all += weights[(ty + 16u * i) * (COLUMNS + 1u) + c];
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
