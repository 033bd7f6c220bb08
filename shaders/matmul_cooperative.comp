// y = W x for many rows of x, on matrix units: float16 tiles in shared memory, float32 sums.
//
// A workgroup computes TILE_M rows of W times TILE_N rows of x, K columns at a time; its subgroups divide the tile into
// WARPS_M x WARPS_N parts. While a pair of tiles is multiplied, the next pair is loaded to registers. Where tiles are fewer
// than processors, SPLITS workgroups divide the columns, and the last of them to finish adds up all sums in order. With
// PAIRED the fragments of a tile of W alternate between two matrices, and the result is silu(W0 x) * (W1 x), or gelu. With HALF_Y
// it is also stored as float16. x is float16, in rows or in tiles (halves.glsl). n_rows is a multiple of 4.
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
layout(constant_id = 8) const uint X_UNIT = 16;  // rows and columns of a tile of x
layout(constant_id = 9) const uint SPLITS = 1;
layout(constant_id = 10) const uint X_TILES = 0;  // tiles of X_UNIT rows of x and of the float16 result; 0: both in rows
layout(constant_id = 11) const uint UNIT_M = 16;  // the product of matrix units is M x K times K x N
layout(constant_id = 12) const uint UNIT_N = 16;
layout(constant_id = 13) const uint UNIT_K = 16;
layout(local_size_x_id = 0) in;

// FLAGS: plugins/pumice_vulkan/flags.py; with RAGGED_X the number of columns is no multiple of K

#define WEIGHTS 2
#include "weights.glsl"
#include "half_weights.glsl"
#include "common.glsl"
#include "functions.glsl"
#include "halves.glsl"
layout(set = 0, binding = 1) restrict readonly buffer X { uvec4 x[]; };
layout(set = 0, binding = 4) readonly buffer Bias { vec4 bias[]; };
layout(set = 0, binding = 5) readonly buffer Residual { vec4 residual[]; };
layout(set = 0, binding = 8) coherent buffer Sums { vec4 all_sums[]; };
layout(set = 0, binding = 9) coherent buffer Counters { uint counters[]; };
layout(set = 0, binding = 10) writeonly buffer Y { vec4 y[]; };
layout(set = 0, binding = 11) writeonly buffer Halves { uvec2 y_halves[]; };
layout(push_constant) uniform Push {
    uint rows;
    uint x_at, weights_at[2], bias_at, residual_at, tiles_at, order_at, sums_at, counters_at, y_at, halves_at;
    uint n_rows, n_columns;
    uint n_matrix_rows;  // rows of all matrices
    uint n_used;         // experts per token, or heads
};

#define TILES 6
#include "routes.glsl"

#define ACCUMULATOR coopmat<float, gl_ScopeSubgroup, UNIT_M, UNIT_N, gl_MatrixUseAccumulator>
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, UNIT_M, UNIT_K, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, UNIT_K, UNIT_N, gl_MatrixUseB>

const bool IS_PAIRED = (FLAGS & PAIRED) != 0;
const uint MATRICES = IS_PAIRED ? 2 : 1;
const uint OCTETS = K / 8;       // octets per row of a tile
const uint STRIDE = OCTETS + 1;  // odd stride: rows start in different banks
const uint B = TILE_M * STRIDE;  // offset of the tile of x
const uint FRAGMENTS_M = TILE_M / WARPS_M / UNIT_M, FRAGMENTS_N = TILE_N / WARPS_N / UNIT_N;
const uint LANES = THREADS / (WARPS_M * WARPS_N), QUADS = UNIT_M * UNIT_N / 4;  // quads per fragment of the result
const uint FOR_TILES = B + TILE_N * STRIDE, FOR_RESULTS = WARPS_M * WARPS_N * MATRICES * QUADS;
shared uvec4 halves[FOR_TILES > FOR_RESULTS ? FOR_TILES : FOR_RESULTS];
shared bool is_last;

const uint A_BLOCKS = K / BLOCK_COLUMNS;  // blocks per row of a tile
const uint A_ITEMS = TILE_M * A_BLOCKS, A_LOADS = (A_ITEMS + THREADS - 1) / THREADS;
const uint B_LOADS = TILE_N * OCTETS / THREADS;
const uint UNIT_OCTETS = X_UNIT / 8;

uint me;
Planes at, at2;                            // planes of the matrix, and of the second of a pair
uint a_first[A_LOADS], b_first[B_LOADS];   // offsets of the first columns
Block blocks[A_LOADS];                     // being loaded
uvec4 octets_of_x[B_LOADS];

// A row of the tile: its row of the matrix, and whether that is the second matrix.
uint row_of(uint row) { return IS_PAIRED ? row / (2 * UNIT_M) * UNIT_M + row % UNIT_M : row; }
bool is_second(uint row) { return IS_PAIRED && row / UNIT_M % 2 == 1; }

uint a_row(uint i) { return (me + i * THREADS) / A_BLOCKS; }
uint a_block(uint k) { return k / BLOCK_COLUMNS + me % A_BLOCKS; }
uint block_number(uint i, uint k) {
    return a_first[i] + ((FLAGS & RAGGED_X) != 0 ? min(a_block(k), BLOCKS - 1u) : a_block(k));
}

// An octet of the tile of x by the order of x in memory: its row and column.
uvec2 b_place(uint item) {
    if (X_TILES == 0) return uvec2(item / OCTETS, item % OCTETS);
    const uint of_unit = item % (TILE_N * UNIT_OCTETS);
    return uvec2(of_unit / UNIT_OCTETS, item / (TILE_N * UNIT_OCTETS) * UNIT_OCTETS + of_unit % UNIT_OCTETS);
}

void request(uint k) {
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        Planes planes = at;
        if (is_second(a_row(i))) planes = at2;
        blocks[i] = load_block(planes, block_number(i, k));
    }
    [[unroll]] for (uint i = 0; i < B_LOADS; i++) {
        const uint step = X_TILES == 0 ? k / 8 : k / X_UNIT * (X_TILES * X_UNIT * UNIT_OCTETS);
        const bool inside = (FLAGS & RAGGED_X) == 0 || k + b_place(me + i * THREADS).y * 8 < n_columns;
        octets_of_x[i] = inside ? x[b_first[i] + step] : uvec4(0);
    }
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
        const uvec2 place = b_place(me + i * THREADS);
        halves[B + place.x * STRIDE + place.y] = octets_of_x[i];
    }
}

// Stores four rows of a fragment's column; `second`: the same of the second matrix.
void write(uint row, uint n, vec4 value, vec4 second) {
    if (IS_PAIRED)
        [[unroll]] for (uint c = 0; c < 4; c++) {
            const float values[2] = float[](value[c], second[c]);
            value[c] = GATE;
        }
    if (row < n_rows && n < n_x) {
        const uint at_y = y_row(n) * n_rows + row;
        if ((FLAGS & BIAS) != 0) value += bias[(bias_at + row) / 4];
        if ((FLAGS & RESIDUAL) != 0) value += residual[(residual_at + at_y) / 4];
        y[(y_at + at_y) / 4] = value;
        if ((FLAGS & HALF_Y) != 0)
            y_halves[halves_at / 2 + half_place(n, row / 4, n_rows / 4, X_TILES, X_UNIT)] = half_quad(value);
    }
}

vec4 total(uint quad) {
    vec4 sum = vec4(0);
    [[unroll]] for (uint split = 0; split < SPLITS; split++) sum += all_sums[quad + split * (TILE_M * TILE_N / 4)];
    return sum;
}

// The last workgroup of a tile to finish its columns adds up the sums of all.
void add_splits(uint row0, uint tile, uint first_quad) {
    memoryBarrierBuffer();
    barrier();
    if (me == 0) is_last = atomicAdd(counters[counters_at + tile], 1u) + 1u == SPLITS;
    barrier();
    if (!is_last) return;
    memoryBarrierBuffer();
    if (me == 0) counters[counters_at + tile] = 0;  // reset for the next dispatch
    const uint n_results = TILE_M / UNIT_M / MATRICES;  // fragments of the result per column of fragments
    for (uint e = me; e < TILE_M * TILE_N / 4 / MATRICES; e += THREADS) {
        const uint quad = e % QUADS, i = e / QUADS % n_results, j = e / QUADS / n_results;
        const uint from = first_quad + (j * (TILE_M / UNIT_M) + i * MATRICES) * QUADS + quad;
        const vec4 second = IS_PAIRED ? total(from + QUADS) : vec4(0);
        write(row0 + i * UNIT_M + quad % (UNIT_M / 4) * 4, n0 + j * UNIT_N + quad / (UNIT_M / 4), total(from), second);
    }
}

void main() {
    const uint row0 = gl_WorkGroupID.x * (TILE_M / MATRICES), split = gl_WorkGroupID.z % SPLITS;
    if (!find_vectors(TILE_N)) return;
    begin_format();
    me = gl_LocalInvocationIndex;
    at = planes_at(weights_at[0], n_matrix_rows * BLOCKS);
    if (IS_PAIRED) at2 = planes_at(weights_at[1], n_matrix_rows * BLOCKS);
    [[unroll]] for (uint i = 0; i < A_LOADS; i++)
        a_first[i] = (matrix * n_rows + min(row0 + row_of(a_row(i)), n_rows - 1u)) * BLOCKS;
    [[unroll]] for (uint i = 0; i < B_LOADS; i++) {
        const uvec2 place = b_place(me + i * THREADS);
        if (X_TILES == 0)
            b_first[i] = x_at / 4 + x_row(min(n0 + place.x, n_x - 1u)) * (n_columns / 8) + place.y;
        else
            b_first[i] = x_at / 4 + place.y / UNIT_OCTETS * (X_TILES * X_UNIT * UNIT_OCTETS) +
                         min(n0 + place.x, X_TILES * X_UNIT - 1u) * UNIT_OCTETS + place.y % UNIT_OCTETS;
    }
    const uint warp_m = gl_SubgroupID % WARPS_M * FRAGMENTS_M, warp_n = gl_SubgroupID / WARPS_M * FRAGMENTS_N;

    ACCUMULATOR sums[FRAGMENTS_M * FRAGMENTS_N];
    [[unroll]] for (uint i = 0; i < FRAGMENTS_M * FRAGMENTS_N; i++) sums[i] = ACCUMULATOR(0.0);

    const uint n_steps = (n_columns + K - 1) / K, share = (n_steps + SPLITS - 1) / SPLITS * K;
    const uint first = split * share, end = SPLITS == 1 ? n_columns : min(first + share, n_columns);
    if (first < end) request(first);
    for (uint k = first; k < end; k += K) {
        put(k);
        barrier();
        if (k + K < end) request(k + K);
        [[unroll]] for (uint kk = 0; kk < K; kk += UNIT_K) {
            LEFT u[FRAGMENTS_M];
            [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
                coopMatLoad(u[i], halves, (warp_m + i) * UNIT_M * STRIDE + kk / 8, STRIDE, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++) {
                RIGHT v;
                coopMatLoad(v, halves, B + (warp_n + j) * UNIT_N * STRIDE + kk / 8, STRIDE,
                            gl_CooperativeMatrixLayoutColumnMajor);
                [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
                    sums[j * FRAGMENTS_M + i] = coopMatMulAdd(u[i], v, sums[j * FRAGMENTS_M + i]);
            }
        }
        barrier();
    }

    // Fragments pass through shared memory, so this kernel handles edges, bias and residual.
    const uint c = gl_SubgroupID * MATRICES * QUADS;
    const uint tile = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    const uint first_quad = sums_at / 4 + tile * SPLITS * (TILE_M * TILE_N / 4);
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++)
        [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i += MATRICES) {
            [[unroll]] for (uint m = 0; m < MATRICES; m++)
                coopMatStore(sums[j * FRAGMENTS_M + i + m], halves, c + m * QUADS, UNIT_M / 4,
                             gl_CooperativeMatrixLayoutColumnMajor);
            subgroupBarrier();
            const uint fragment = (warp_n + j) * (TILE_M / UNIT_M) + warp_m + i;
            [[unroll]] for (uint e = 0; e < QUADS; e += LANES) {
                const uint quad = e + gl_SubgroupInvocationID;
                if (QUADS % LANES != 0 && quad >= QUADS) break;
                const vec4 value = uintBitsToFloat(halves[c + quad]);
                const vec4 second = IS_PAIRED ? uintBitsToFloat(halves[c + QUADS + quad]) : vec4(0);
                const uint to = first_quad + split * (TILE_M * TILE_N / 4) + fragment * QUADS + quad;
                if (SPLITS > 1) all_sums[to] = value;
                if (SPLITS > 1 && IS_PAIRED) all_sums[to + QUADS] = second;
                if (SPLITS == 1)
                    write(row0 + row_of((warp_m + i) * UNIT_M) + quad % (UNIT_M / 4) * 4,
                          n0 + (warp_n + j) * UNIT_N + quad / (UNIT_M / 4), value, second);
            }
            subgroupBarrier();
        }
    if (SPLITS > 1) add_splits(row0, tile, first_quad);
}
