// attention_tile.comp on matrix units: float16 operands, float32 sums and statistics.
//
// A subgroup attends with UNIT_M rows, and the workgroup shares COLUMNS keys and values in shared memory while the next ones
// are loaded. The mapping of matrix elements to invocations is unspecified, so scores pass through shared memory to become
// weights, and sums are rescaled by a matrix of factors.
//
// Keys and values may be those of the step alone, in float16 (rows_half.comp). Heads are padded with zeros to K_DIM and
// V_DIM values, whole fragments; queries and results have Q_DIM and Y_DIM.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require
#include "common.glsl"
#include "attention_arguments.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 128u;
layout(constant_id = 1) const uint SUBGROUPS = 4u;
layout(constant_id = 2) const uint UNIT_M = 16u; // the product of matrix units is M x K times K x N
layout(constant_id = 3) const uint COLUMNS = 64u;
layout(constant_id = 4) const uint K_DIM = 64u;
layout(constant_id = 5) const uint V_DIM = 64u;
layout(constant_id = 6) const bool HAS_SINKS = false;
layout(constant_id = 7) const uint block_size = 32u;
layout(constant_id = 8) const float softcap = 0.0;
layout(constant_id = 9) const uint mask = 0u;
layout(constant_id = 10) const uint ADDED = 0u;
layout(constant_id = 11) const bool OF_STEP = false;
layout(constant_id = 13) const uint Q_DIM = 64u;
layout(constant_id = 14) const uint Y_DIM = 64u;
layout(constant_id = 15) const uint UNIT_N = 16u;
layout(constant_id = 16) const uint UNIT_K = 16u;
#define HADAMARD_ID 17
#include "hadamard.glsl"
#include "attention.glsl"
#include "attention_mask.glsl"
#include "attention_general.glsl"
layout(std430, set = 0, binding = 1) readonly buffer Q4 { vec4 q4[]; };
layout(std430, set = 0, binding = 5) buffer Y4 { vec4 y4[]; };

const uint ROWS = SUBGROUPS * UNIT_M;
const uint LANES = THREADS / ROWS;         // invocations per row
const uint OWN = COLUMNS / 4u / LANES;     // quads of a row per invocation
const uint K_STRIDE = K_DIM / 4u + 2u, V_STRIDE = V_DIM / 4u + 2u, STRIDE = COLUMNS / 4u + 2u; // quads
const uint VALUES = COLUMNS * K_STRIDE;    // offset of values in the tile
const uint TILE = VALUES + COLUMNS * V_STRIDE, QUERIES = ROWS * K_STRIDE;
const uint K_ITEMS = COLUMNS * K_DIM / 8u, V_ITEMS = COLUMNS * V_DIM / 8u;
const uint K_LOADS = (K_ITEMS + THREADS - 1u) / THREADS, V_LOADS = (V_ITEMS + THREADS - 1u) / THREADS;

shared f16vec4 tile[TILE > QUERIES ? TILE : QUERIES];
shared vec4 scores[ROWS * STRIDE];
shared f16vec4 weights[ROWS * STRIDE];

#define ACCUMULATOR coopmat<float, gl_ScopeSubgroup, UNIT_M, UNIT_N, gl_MatrixUseAccumulator>
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, UNIT_M, UNIT_K, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, UNIT_K, UNIT_N, gl_MatrixUseB>

uint me, head_kv, sequence, oldest, newest;
Octet keys[K_LOADS], values[V_LOADS]; // being loaded

// Waits for writes of the subgroup's shared memory only; subgroupBarrier() would also wait for loads from buffers.
void settle() {
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}

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

f16vec4 octet_half16(Octet octet, uint i) {
#ifdef CACHE_F16
    uvec2 w = i == 0u ? octet.words.xy : octet.words.zw;
    return f16vec4(unpackFloat2x16(w.x), unpackFloat2x16(w.y));
#else
    return f16vec4(octet_half(octet, i));
#endif
}

void put_octet(uint to, Octet octet, uint position) {
    bool real = position >= oldest && position <= newest;
    tile[to] = real ? octet_half16(octet, 0u) : f16vec4(0.0);
    tile[to + 1u] = real ? octet_half16(octet, 1u) : f16vec4(0.0);
}

void put(uint start) {
    [[unroll]] for (uint i = 0; i < K_LOADS; i++) {
        uint item = me + i * THREADS, to = item / (K_DIM / 8u) * K_STRIDE + item % (K_DIM / 8u) * 2u;
        if (K_ITEMS % THREADS == 0u || item < K_ITEMS) put_octet(to, keys[i], position_of(start, i, K_DIM));
    }
    [[unroll]] for (uint i = 0; i < V_LOADS; i++) {
        uint item = me + i * THREADS, to = VALUES + item / (V_DIM / 8u) * V_STRIDE + item % (V_DIM / 8u) * 2u;
        if (V_ITEMS % THREADS == 0u || item < V_ITEMS) put_octet(to, values[i], position_of(start, i, V_DIM));
    }
}

#ifdef CACHE_QUANTIZED
HADAMARD_OF(rotated_query, q4, K_BLOCK, K_FACTOR)
HADAMARD_OF(rotated_part, scores, UNIT_N / 4u, V_FACTOR)
#endif

void main() {
    me = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    head_kv = gl_WorkGroupID.y;
    const uint n_tokens = row_count(rows), n_head = n_head_kv * heads_per_key;
    const uint first_row = (gl_NumWorkGroups.x - 1u - gl_WorkGroupID.x) * ROWS; // the longest rows start first
    const uint first_token = first_row / heads_per_key;
    if (first_token >= n_tokens) return;
    const uint last_token = min(n_tokens - 1u, (first_row + ROWS - 1u) / heads_per_key);

    for (uint i = me; i < ROWS * K_DIM / 4u; i += THREADS) {
        uint row = i / (K_DIM / 4u), quad = i % (K_DIM / 4u), token = (first_row + row) / heads_per_key;
        uint head = head_kv * heads_per_key + (first_row + row) % heads_per_key;
        uint from = q_at / 4u + (token * n_head + head) * (Q_DIM / 4u) + quad;
#ifdef CACHE_QUANTIZED
        if (HADAMARD_KEYS) {
            tile[row * K_STRIDE + quad] = token < n_tokens ? f16vec4(rotated_query(from - quad, quad)) : f16vec4(0.0);
            continue;
        }
#endif
        tile[row * K_STRIDE + quad] = token < n_tokens && quad < Q_DIM / 4u ? f16vec4(q4[from]) : f16vec4(0.0);
    }
    barrier();
    const uint subgroup_row = gl_SubgroupID * UNIT_M, subgroup_at = subgroup_row * STRIDE;
    LEFT queries[K_DIM / UNIT_K];
    [[unroll]] for (uint i = 0; i < K_DIM / UNIT_K; i++) {
        coopMatLoad(queries[i], tile, subgroup_row * K_STRIDE + i * UNIT_K / 4u, K_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
    }
    ACCUMULATOR sums[V_DIM / UNIT_N];
    [[unroll]] for (uint i = 0; i < V_DIM / UNIT_N; i++) sums[i] = ACCUMULATOR(0.0);

    const uint own_row = first_row + subgroup_row + gl_SubgroupInvocationID / LANES, lane = gl_SubgroupInvocationID % LANES;
    const uint own_at = (own_row - first_row) * STRIDE + lane;
    const uint own_token = own_row / heads_per_key;
    const bool real = own_token < n_tokens;
    const uint own_sequence = real ? step_words[sequences + own_token] : 0xffffffffu;
    const uint own_position = real ? step_words[positions + own_token] : 0u;
    const uint own_oldest = oldest_seen(own_position);
    float top = LOWEST, total = 0.0;

    for (uint s = step_words[sequences + first_token]; s <= step_words[sequences + last_token]; s++) {
        sequence = s;
        newest = newest_seen(step_words[positions + min(last_token, step_words[seq_starts + s + 1u] - 1u)], s);
        oldest = oldest_seen(step_words[positions + max(first_token, step_words[seq_starts + s])]);
        const uint own_newest = newest_seen(own_position, s);
        uint start = oldest / COLUMNS * COLUMNS;
        request(start);
        for (; start <= newest; start += COLUMNS) {
            barrier();
            put(start);
            barrier();
            if (start + COLUMNS <= newest) request(start + COLUMNS);

            [[unroll]] for (uint c = 0; c < COLUMNS / UNIT_N; c++) {
                ACCUMULATOR score = ACCUMULATOR(0.0);
                [[unroll]] for (uint i = 0; i < K_DIM / UNIT_K; i++) {
                    RIGHT key;
                    coopMatLoad(key, tile, c * UNIT_N * K_STRIDE + i * UNIT_K / 4u, K_STRIDE, gl_CooperativeMatrixLayoutColumnMajor);
                    score = coopMatMulAdd(queries[i], key, score);
                }
                coopMatStore(score, scores, subgroup_at + c * UNIT_N / 4u, STRIDE, gl_CooperativeMatrixLayoutRowMajor);
            }
            settle();

            vec4 own[OWN];
            float fresh = top;
            [[unroll]] for (uint j = 0; j < OWN; j++) {
                own[j] = scores[own_at + j * LANES];
                [[unroll]] for (uint c = 0; c < 4u; c++) {
                    uint position = start + (lane + j * LANES) * 4u + c;
                    bool visible = own_sequence == s && position <= own_newest && position >= own_oldest;
                    own[j][c] = visible ? capped(own[j][c]) : LOWEST;
                    fresh = max(fresh, own[j][c]);
                }
            }
            for (uint step = 1u; step < LANES; step *= 2u) fresh = max(fresh, subgroupShuffleXor(fresh, step));
            float factor = top == fresh ? 1.0 : exp(top - fresh);
            top = fresh;
            total *= factor;
            [[unroll]] for (uint j = 0; j < OWN; j++) {
                [[unroll]] for (uint c = 0; c < 4u; c++) own[j][c] = own[j][c] == LOWEST ? 0.0 : exp(own[j][c] - fresh);
                weights[own_at + j * LANES] = f16vec4(own[j]);
                total += own[j].x + own[j].y + own[j].z + own[j].w;
            }
            for (uint j = lane; j < UNIT_N / 4u; j += LANES) scores[own_at - lane + j] = vec4(factor); // the elements it has read
            settle();
            if (subgroupAny(factor != 1.0)) {
                ACCUMULATOR factors;
                coopMatLoad(factors, scores, subgroup_at, STRIDE, gl_CooperativeMatrixLayoutRowMajor);
                [[unroll]] for (uint i = 0; i < V_DIM / UNIT_N; i++) sums[i] *= factors;
            }
            [[unroll]] for (uint c = 0; c < COLUMNS / UNIT_K; c++) {
                LEFT weight;
                coopMatLoad(weight, weights, subgroup_at + c * UNIT_K / 4u, STRIDE, gl_CooperativeMatrixLayoutRowMajor);
                [[unroll]] for (uint i = 0; i < V_DIM / UNIT_N; i++) {
                    RIGHT value;
                    coopMatLoad(value, tile, VALUES + c * UNIT_K * V_STRIDE + i * UNIT_N / 4u, V_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
                    sums[i] = coopMatMulAdd(weight, value, sums[i]);
                }
            }
        }
    }

    for (uint step = 1u; step < LANES; step *= 2u) total += subgroupShuffleXor(total, step);
    const uint head = head_kv * heads_per_key + own_row % heads_per_key;
    float factor = 1.0 / total;
    if (HAS_SINKS) {
        float sink = real ? sinks[sinks_at + head] : 0.0, highest = max(top, sink);
        factor = exp(top - highest);
        factor /= total * factor + exp(sink - highest);
    }
#ifdef CACHE_QUANTIZED
    // Of a rotation, first the sums and differences of fragments; rotated_part has those within one.
    [[unroll]] for (uint distance = 1u; HADAMARD_VALUES && distance < 64u / UNIT_N; distance *= 2u) {
        [[unroll]] for (uint pair = 0; pair < V_DIM / UNIT_N / 2u; pair++) {
            const uint i = 2u * pair - (pair & (distance - 1u));
            const ACCUMULATOR a = sums[i], b = sums[i + distance];
            sums[i] = a + b;
            sums[i + distance] = a - b;
        }
    }
#endif
    const uint to = y_at / 4u + (own_token * n_head + head) * (Y_DIM / 4u);
    [[unroll]] for (uint first = 0; first < V_DIM / UNIT_N; first += COLUMNS / UNIT_N) {
        settle();
        [[unroll]] for (uint i = 0; i < COLUMNS / UNIT_N; i++) {
            if (first + i < V_DIM / UNIT_N)
                coopMatStore(sums[first + i], scores, subgroup_at + i * UNIT_N / 4u, STRIDE, gl_CooperativeMatrixLayoutRowMajor);
        }
        settle();
        [[unroll]] for (uint j = 0; j < OWN; j++) {
            uint quad = first * UNIT_N / 4u + lane + j * LANES;
            vec4 result = scores[own_at + j * LANES];
#ifdef CACHE_QUANTIZED
            if (HADAMARD_VALUES) result = rotated_part(own_at - lane, lane + j * LANES);
#endif
            if (real && quad < Y_DIM / 4u) y4[to + quad] = result * factor;
        }
    }
}
