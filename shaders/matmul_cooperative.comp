// y = W x for many rows of x, on matrix units: float16 tiles in shared memory, float32 sums.
//
// A workgroup computes TILE_M rows of W times TILE_N rows of x, 32 columns at a time; its subgroups share the tile as
// WARPS_M by WARPS_N parts. While one pair of tiles is multiplied the next is on its way from memory to registers.
// x comes in float16 (half.comp); which of its rows, and of which matrix, routes.glsl says.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
layout(constant_id = 0) const uint THREADS = 128;  // WARPS_M * WARPS_N subgroups
layout(constant_id = 1) const uint BLOCKS = 1;  // of a row of the matrix
layout(constant_id = 2) const uint FLAGS = 0;
layout(constant_id = 3) const uint TILE_M = 128;
layout(constant_id = 4) const uint TILE_N = 128;
layout(constant_id = 5) const uint WARPS_M = 2;
layout(constant_id = 6) const uint WARPS_N = 2;
layout(constant_id = 7) const uint STAGES = 2;  // tiles in shared memory: 1 or 2
layout(local_size_x_id = 0) in;

const uint BIAS = 1, RESIDUAL = 2;

#define WEIGHTS 2
#include "weights.glsl"
layout(set = 0, binding = 0) readonly buffer Step { uint step_words[]; };
layout(set = 0, binding = 1) readonly buffer X { uvec4 x[]; };
layout(set = 0, binding = 3) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = 4) readonly buffer Residual { float residual[]; };
layout(set = 0, binding = 7) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint count;
    uint x_at, weights_at, bias_at, residual_at, tiles_at, order_at, y_at;
    uint n_rows, n_columns;
    uint n_matrix_rows;  // of all matrices
    uint n_used;         // experts of a token, or heads
};

uint row_count() { return (count & 0x80000000u) != 0u ? count & 0x7FFFFFFFu : step_words[count]; }

#include "pieces.glsl"
#define TILES 5
#include "routes.glsl"

const uint K = 32, STRIDE = K + 8;  // float16
const uint A_SIZE = TILE_M * STRIDE / 4, B_SIZE = TILE_N * STRIDE / 4;
shared f16vec4 a[STAGES * A_SIZE];
shared f16vec4 b[STAGES * B_SIZE];
shared float c[WARPS_M * WARPS_N * 256];

const uint A_PIECES = K / PIECE, A_LOADS = TILE_M * A_PIECES / THREADS;
const uint B_LOADS = TILE_N * (K / 8) / THREADS;
const uint FRAGMENTS_M = TILE_M / WARPS_M / 16, FRAGMENTS_N = TILE_N / WARPS_N / 16;

uint row0;
Planes at;
Block blocks[A_LOADS];  // on their way
uvec4 xs[B_LOADS];
uint x_starts[B_LOADS];

uint piece_row(uint i) { return matrix * n_rows + min(row0 + (gl_LocalInvocationIndex + i * THREADS) / A_PIECES, n_rows - 1u); }
uint piece_number(uint i, uint k) {
    uint piece = k / PIECE + (gl_LocalInvocationIndex + i * THREADS) % A_PIECES;
    return piece_row(i) * BLOCKS + min(piece / (BLOCK_COLUMNS / PIECE), BLOCKS - 1u);
}

void request(uint k) {
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) blocks[i] = load_block(at, piece_number(i, k));
    [[unroll]] for (uint i = 0; i < B_LOADS; i++) {
        uint item = gl_LocalInvocationIndex + i * THREADS;
        uint column = k + 8u * (item % (K / 8));
        xs[i] = column < n_columns ? x[(x_at + (x_starts[i] + column) / 2u) / 4u] : uvec4(0);
    }
}

void put(uint stage, uint k) {
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        uint item = gl_LocalInvocationIndex + i * THREADS;
        uint to = stage * A_SIZE + item / A_PIECES * (STRIDE / 4) + item % A_PIECES * (PIECE / 4);
        uint number = piece_number(i, k);
#if DENSE
        bool inside = k / PIECE + item % A_PIECES < BLOCKS;
        [[unroll]] for (uint j = 0; j < PIECE / 4; j++)
            a[to + j] = inside ? f16vec4(numbers(blocks[i], number, j)) : f16vec4(0);
#else
        if (item % A_PIECES == 0)
            [[unroll]] for (uint j = 0; j < 4; j++) a[to + j] = f16vec4(numbers(blocks[i], number, j));
        else
            [[unroll]] for (uint j = 0; j < 4; j++) a[to + j] = f16vec4(numbers(blocks[i], number, j + 4));
#endif
    }
    [[unroll]] for (uint i = 0; i < B_LOADS; i++) {
        uint item = gl_LocalInvocationIndex + i * THREADS;
        uint to = stage * B_SIZE + item / (K / 8) * (STRIDE / 4) + item % (K / 8) * 2;
        b[to] = f16vec4(unpackFloat2x16(xs[i].x), unpackFloat2x16(xs[i].y));
        b[to + 1] = f16vec4(unpackFloat2x16(xs[i].z), unpackFloat2x16(xs[i].w));
    }
}

void main() {
    row0 = gl_WorkGroupID.x * TILE_M;
    if (!find_vectors(TILE_N)) return;
    begin_format();
    at = planes_at(weights_at, n_matrix_rows * BLOCKS);
    [[unroll]] for (uint i = 0; i < B_LOADS; i++)
        x_starts[i] = x_row(min(n0 + (gl_LocalInvocationIndex + i * THREADS) / (K / 8), n_x - 1u)) * n_columns;
    const uint warp_m = gl_SubgroupID % WARPS_M, warp_n = gl_SubgroupID / WARPS_M;

    coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums[FRAGMENTS_M * FRAGMENTS_N];
    [[unroll]] for (uint i = 0; i < FRAGMENTS_M * FRAGMENTS_N; i++)
        sums[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0);

    request(0);
    put(0, 0);
    barrier();
    uint stage = 0;
    for (uint k = 0; k < n_columns; k += K) {
        const bool more = k + K < n_columns;
        if (more) request(k + K);
        [[unroll]] for (uint kk = 0; kk < K; kk += 16) {
            coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> u[FRAGMENTS_M];
            coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> v;
            [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
                coopMatLoad(u[i], a, stage * A_SIZE + ((warp_m * FRAGMENTS_M + i) * 16 * STRIDE + kk) / 4, STRIDE / 4,
                            gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++) {
                coopMatLoad(v, b, stage * B_SIZE + ((warp_n * FRAGMENTS_N + j) * 16 * STRIDE + kk) / 4, STRIDE / 4,
                            gl_CooperativeMatrixLayoutColumnMajor);
                [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
                    sums[j * FRAGMENTS_M + i] = coopMatMulAdd(u[i], v, sums[j * FRAGMENTS_M + i]);
            }
        }
        if (STAGES == 1) barrier();
        else stage = 1 - stage;
        if (more) put(stage, k + K);
        barrier();
    }

    // Each fragment through shared memory, so that edges, bias and residual need no other kernel.
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++)
        [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++) {
            coopMatStore(sums[j * FRAGMENTS_M + i], c, gl_SubgroupID * 256, 16, gl_CooperativeMatrixLayoutColumnMajor);
            subgroupBarrier();
            const uint first_row = row0 + (warp_m * FRAGMENTS_M + i) * 16, first_n = n0 + (warp_n * FRAGMENTS_N + j) * 16;
            for (uint e = gl_SubgroupInvocationID; e < 256; e += gl_SubgroupSize) {
                const uint row = first_row + e % 16, n = first_n + e / 16;
                if (row < n_rows && n < n_x) {
                    float value = c[gl_SubgroupID * 256 + e];
                    if ((FLAGS & BIAS) != 0) value += bias[bias_at + row];
                    const uint y_at_row = y_row(n) * n_rows + row;
                    if ((FLAGS & RESIDUAL) != 0) value += residual[residual_at + y_at_row];
                    y[y_at + y_at_row] = value;
                }
            }
            subgroupBarrier();
        }
}
