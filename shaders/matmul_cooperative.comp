// y = W x for many rows of x, on matrix units: float16 tiles in shared memory, float32 sums.
//
// A workgroup computes TILE_M rows of W times TILE_N rows of x, K columns at a time; its subgroups divide the tile into
// WARPS_M x WARPS_N parts. While a pair of tiles is multiplied, the next pair is loaded to registers. x is float16
// (half.comp). n_rows is a multiple of 4.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
layout(constant_id = 0) const uint THREADS = 128;  // WARPS_M * WARPS_N subgroups
layout(constant_id = 1) const uint BLOCKS = 1;  // blocks per row of the matrix
layout(constant_id = 2) const uint FLAGS = 0;
layout(constant_id = 3) const uint TILE_M = 128;
layout(constant_id = 4) const uint TILE_N = 128;
layout(constant_id = 5) const uint WARPS_M = 2;
layout(constant_id = 6) const uint WARPS_N = 2;
layout(constant_id = 7) const uint K = 64;
layout(constant_id = 8) const uint UNIT = 16;  // rows and columns of a matrix fragment
layout(local_size_x_id = 0) in;

// FLAGS: plugins/pumice_vulkan/flags.py; with RAGGED_X the number of columns is no multiple of K

#define WEIGHTS 2
#include "weights.glsl"
#include "half_weights.glsl"
#include "common.glsl"
layout(set = 0, binding = 1) restrict readonly buffer X { uvec4 x[]; };
layout(set = 0, binding = 3) readonly buffer Bias { vec4 bias[]; };
layout(set = 0, binding = 4) readonly buffer Residual { vec4 residual[]; };
layout(set = 0, binding = 7) writeonly buffer Y { vec4 y[]; };
layout(push_constant) uniform Push {
    uint rows;
    uint x_at, weights_at, bias_at, residual_at, tiles_at, order_at, y_at;
    uint n_rows, n_columns;
    uint n_matrix_rows;  // rows of all matrices
    uint n_used;         // experts per token, or heads
};

#define TILES 5
#include "routes.glsl"

#define ACCUMULATOR coopmat<float, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseAccumulator>
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseB>

const uint OCTETS = K / 8;       // octets per row of a tile
const uint STRIDE = OCTETS + 1;  // odd stride: rows start in different banks
const uint B = TILE_M * STRIDE;  // offset of the tile of x
const uint FRAGMENTS_M = TILE_M / WARPS_M / UNIT, FRAGMENTS_N = TILE_N / WARPS_N / UNIT;
const uint LANES = THREADS / (WARPS_M * WARPS_N), QUADS = UNIT * UNIT / 4;  // quads per fragment of the result
shared uvec4 halves[B + TILE_N * STRIDE];

const uint A_BLOCKS = K / BLOCK_COLUMNS;  // blocks per row of a tile
const uint A_ITEMS = TILE_M * A_BLOCKS, A_LOADS = (A_ITEMS + THREADS - 1) / THREADS;
const uint B_LOADS = TILE_N * OCTETS / THREADS;

uint me;
Planes at;
uint a_first[A_LOADS], b_first[B_LOADS];  // offsets of the first columns
Block blocks[A_LOADS];                     // being loaded
uvec4 octets_of_x[B_LOADS];

uint a_block(uint k) { return k / BLOCK_COLUMNS + me % A_BLOCKS; }
uint block_number(uint i, uint k) {
    return a_first[i] + ((FLAGS & RAGGED_X) != 0 ? min(a_block(k), BLOCKS - 1u) : a_block(k));
}

void request(uint k) {
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) blocks[i] = load_block(at, block_number(i, k));
    const bool inside = (FLAGS & RAGGED_X) == 0 || k + me % OCTETS * 8 < n_columns;
    [[unroll]] for (uint i = 0; i < B_LOADS; i++)
        octets_of_x[i] = inside ? x[b_first[i] + k / 8] : uvec4(0);
}

void put(uint k) {
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        const uint item = me + i * THREADS, to = item / A_BLOCKS * STRIDE + item % A_BLOCKS * (BLOCK_COLUMNS / 8);
        if (A_ITEMS % THREADS != 0 && item >= A_ITEMS) break;
#if DENSE
        halves[to] = (FLAGS & RAGGED_X) == 0 || a_block(k) < BLOCKS ? octet(blocks[i]) : uvec4(0);
#else
        [[unroll]] for (uint h = 0; h < 2; h++) {
            uvec4 both[2];
            octets(blocks[i], block_number(i, k), h, both);
            halves[to + 2 * h] = both[0];
            halves[to + 2 * h + 1] = both[1];
        }
#endif
    }
    [[unroll]] for (uint i = 0; i < B_LOADS; i++) {
        const uint item = me + i * THREADS;
        halves[B + item / OCTETS * STRIDE + item % OCTETS] = octets_of_x[i];
    }
}

void main() {
    const uint row0 = gl_WorkGroupID.x * TILE_M;
    if (!find_vectors(TILE_N)) return;
    begin_format();
    me = gl_LocalInvocationIndex;
    at = planes_at(weights_at, n_matrix_rows * BLOCKS);
    [[unroll]] for (uint i = 0; i < A_LOADS; i++)
        a_first[i] = (matrix * n_rows + min(row0 + (me + i * THREADS) / A_BLOCKS, n_rows - 1u)) * BLOCKS;
    [[unroll]] for (uint i = 0; i < B_LOADS; i++) {
        const uint n = min(n0 + (me + i * THREADS) / OCTETS, n_x - 1u);
        b_first[i] = x_at / 4 + x_row(n) * (n_columns / 8) + me % OCTETS;
    }
    const uint warp_m = gl_SubgroupID % WARPS_M * FRAGMENTS_M, warp_n = gl_SubgroupID / WARPS_M * FRAGMENTS_N;

    ACCUMULATOR sums[FRAGMENTS_M * FRAGMENTS_N];
    [[unroll]] for (uint i = 0; i < FRAGMENTS_M * FRAGMENTS_N; i++) sums[i] = ACCUMULATOR(0.0);

    request(0);
    put(0);
    barrier();
    for (uint k = 0; k < n_columns; k += K) {
        const bool more = k + K < n_columns;
        if (more) request(k + K);
        [[unroll]] for (uint kk = 0; kk < K; kk += UNIT) {
            LEFT u[FRAGMENTS_M];
            [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
                coopMatLoad(u[i], halves, (warp_m + i) * UNIT * STRIDE + kk / 8, STRIDE, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++) {
                RIGHT v;
                coopMatLoad(v, halves, B + (warp_n + j) * UNIT * STRIDE + kk / 8, STRIDE,
                            gl_CooperativeMatrixLayoutColumnMajor);
                [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
                    sums[j * FRAGMENTS_M + i] = coopMatMulAdd(u[i], v, sums[j * FRAGMENTS_M + i]);
            }
        }
        barrier();
        if (more) put(k + K);
        barrier();
    }

    // Fragments pass through shared memory, so this kernel handles edges, bias and residual.
    const uint c = gl_SubgroupID * QUADS;
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++)
        [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++) {
            coopMatStore(sums[j * FRAGMENTS_M + i], halves, c, UNIT / 4, gl_CooperativeMatrixLayoutColumnMajor);
            subgroupBarrier();
            [[unroll]] for (uint e = 0; e < QUADS; e += LANES) {
                const uint quad = e + gl_SubgroupInvocationID;
                const uint row = row0 + (warp_m + i) * UNIT + quad % (UNIT / 4) * 4;
                const uint n = n0 + (warp_n + j) * UNIT + quad / (UNIT / 4);
                if (row < n_rows && n < n_x) {
                    vec4 value = uintBitsToFloat(halves[c + quad]);
                    const uint at_y = y_row(n) * n_rows + row;
                    if ((FLAGS & BIAS) != 0) value += bias[(bias_at + row) / 4];
                    if ((FLAGS & RESIDUAL) != 0) value += residual[(residual_at + at_y) / 4];
                    y[(y_at + at_y) / 4] = value;
                }
            }
            subgroupBarrier();
        }
}
