// y = W x for up to a few dozen rows of x, on matrix units: each weight is read once, as in matvec.comp, with enough
// workgroups to occupy the device.
//
// A workgroup computes PARTS_M * FRAGMENTS_M * UNIT_M rows of W times FRAGMENTS_N * UNIT_N rows of x with PARTS_M x PARTS_K
// subgroups: PARTS_K of them divide the columns, K at a time, and add up their sums at the end. Until then they do not
// synchronize: each converts its own blocks of W to float16 in its own shared memory, and reads x, which is float16 in
// tiles (halves.glsl), from memory. With PAIRED a subgroup's fragments alternate between two matrices, and the result is
// silu(W0 x) * (W1 x), or gelu. With HALF_Y it is also stored as float16. n_rows is a multiple of 4, n_columns of K.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
layout(constant_id = 0) const uint THREADS = 256;  // PARTS_M * PARTS_K subgroups
layout(constant_id = 1) const uint BLOCKS = 1;  // blocks per row of the matrix
layout(constant_id = 2) const uint FLAGS = 0;
layout(constant_id = 3) const uint PARTS_M = 1;
layout(constant_id = 4) const uint PARTS_K = 8;
layout(constant_id = 5) const uint FRAGMENTS_M = 1;  // fragments per subgroup; even if PAIRED
layout(constant_id = 6) const uint FRAGMENTS_N = 1;
layout(constant_id = 7) const uint K = 64;
layout(constant_id = 8) const uint X_UNIT = 16;  // rows and columns of a tile of x
layout(constant_id = 9) const uint DEPTH = 1;  // K columns of W in flight, in multiples
layout(constant_id = 10) const bool EARLY = true;  // load x before W is converted
layout(constant_id = 11) const uint UNIT_M = 16;  // the product of matrix units is M x K times K x N
layout(constant_id = 12) const uint UNIT_N = 16;
layout(constant_id = 13) const uint UNIT_K = 16;
layout(local_size_x_id = 0) in;

// FLAGS: plugins/pumice_vulkan/flags.py

#define WEIGHTS 2
#include "weights.glsl"
#include "half_weights.glsl"
#include "common.glsl"
#include "functions.glsl"
#include "halves.glsl"
layout(set = 0, binding = 1) readonly buffer X { uvec4 x[]; };
layout(set = 0, binding = 4) readonly buffer Bias { vec4 bias[]; };
layout(set = 0, binding = 5) readonly buffer Residual { vec4 residual[]; };
layout(set = 0, binding = 6) writeonly buffer Y { vec4 y[]; };
layout(set = 0, binding = 7) writeonly buffer Halves { uvec2 y_halves[]; };
layout(push_constant) uniform Push {
    uint rows;
    uint x_at, weights_at[2], bias_at, residual_at, y_at, halves_at;
    uint n_rows, n_columns;
};

#define ACCUMULATOR coopmat<float, gl_ScopeSubgroup, UNIT_M, UNIT_N, gl_MatrixUseAccumulator>
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, UNIT_M, UNIT_K, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, UNIT_K, UNIT_N, gl_MatrixUseB>

const bool IS_PAIRED = (FLAGS & PAIRED) != 0;
const uint OF_MATRIX = IS_PAIRED ? FRAGMENTS_M / 2 : FRAGMENTS_M;  // fragments per subgroup and matrix
const uint LANES = THREADS / (PARTS_M * PARTS_K);
const uint ROWS = FRAGMENTS_M * UNIT_M, STEPS = K / UNIT_K, QUADS = UNIT_M * UNIT_N / 4;
const uint X_TILES = (FRAGMENTS_N * UNIT_N + X_UNIT - 1) / X_UNIT;  // rows of tiles of x
const uint STRIDE = K / 8 + 1;  // octets per row; odd, so rows start in different banks
const uint FRAGMENTS = FRAGMENTS_M * FRAGMENTS_N, RESULTS = IS_PAIRED ? 2 : 1;  // fragments per result fragment
// A subgroup's shared memory holds its rows of W, and at the end TURN of its fragments at a time.
const uint REGION = ROWS * STRIDE > RESULTS * QUADS ? ROWS * STRIDE : RESULTS * QUADS;
const uint ROOM = REGION / QUADS / RESULTS * RESULTS, TURN = ROOM < FRAGMENTS ? ROOM : FRAGMENTS;
shared uvec4 halves[PARTS_M * PARTS_K * REGION];

const uint A_BLOCKS = K / BLOCK_COLUMNS;  // blocks per row
const uint A_ITEMS = ROWS * A_BLOCKS, A_LOADS = (A_ITEMS + LANES - 1) / LANES;

uint lane, own;    // lane of the subgroup, and offset of its shared memory
Planes at, at2;    // planes of the matrix, and of the second of a pair
uint firsts[A_LOADS];    // first blocks of the rows
Block blocks[DEPTH * A_LOADS];  // being loaded

bool is_second(uint i) { return IS_PAIRED && (min(lane + i * LANES, A_ITEMS - 1u) / A_BLOCKS / UNIT_M) % 2u == 1u; }

uint block_number(uint i, uint k) {
    return firsts[i] + k / BLOCK_COLUMNS + (lane + i * LANES) % A_BLOCKS;
}

void request(uint turn, uint k) {
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        Planes planes = at;
        if (is_second(i)) planes = at2;
        blocks[turn * A_LOADS + i] = load_block(planes, block_number(i, k));
    }
}

void put(uint turn, uint k) {
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        const uint item = lane + i * LANES, to = own + item / A_BLOCKS * STRIDE + item % A_BLOCKS * (BLOCK_COLUMNS / 8);
        if (A_ITEMS % LANES != 0 && item >= A_ITEMS) break;
#if DENSE
        halves[to] = octet(blocks[turn * A_LOADS + i]);
#else
        [[unroll]] for (uint h = 0; h < 2; h++) {
            uvec4 both[2];
            octets(blocks[turn * A_LOADS + i], block_number(i, k), h, both);
            halves[to + 2 * h] = both[0];
            halves[to + 2 * h + 1] = both[1];
        }
#endif
    }
}

ACCUMULATOR sums[FRAGMENTS];

RIGHT load_x(uint j, uint k) {
    RIGHT v;
    const uint tile = k / X_UNIT * X_TILES + j * UNIT_N / X_UNIT;
    const uint within = j * UNIT_N % X_UNIT * (X_UNIT / 8) + k % X_UNIT / 8;
    coopMatLoad(v, x, x_at / 4 + tile * (X_UNIT * X_UNIT / 8) + within, X_UNIT / 8, gl_CooperativeMatrixLayoutColumnMajor);
    return v;
}

// Waits for writes of the subgroup's shared memory only; subgroupBarrier() would also wait for loads from buffers.
void settle() {
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}

// Multiplies K loaded columns, and starts loading those DEPTH steps ahead.
void add_products(uint turn, uint k, uint far) {
    RIGHT v[STEPS * FRAGMENTS_N];
    if (EARLY)
        [[unroll]] for (uint i = 0; i < STEPS * FRAGMENTS_N; i++) v[i] = load_x(i % FRAGMENTS_N, k + i / FRAGMENTS_N * UNIT_K);
    put(turn, k);
    settle();
    if (k + far < n_columns) request(turn, k + far);
    [[unroll]] for (uint s = 0; s < STEPS; s++) {
        LEFT u[FRAGMENTS_M];
        [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
            coopMatLoad(u[i], halves, own + i * UNIT_M * STRIDE + s * UNIT_K / 8, STRIDE, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++) {
            if (!EARLY) v[s * FRAGMENTS_N + j] = load_x(j, k + s * UNIT_K);
            [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
                sums[j * FRAGMENTS_M + i] = coopMatMulAdd(u[i], v[s * FRAGMENTS_N + j], sums[j * FRAGMENTS_M + i]);
        }
    }
    settle();
}

void write(uint row, uint n, vec4 value) {
    const uint at_y = n * n_rows + row;
    if ((FLAGS & BIAS) != 0) value += bias[(bias_at + row) / 4];
    if ((FLAGS & RESIDUAL) != 0) value += residual[(residual_at + at_y) / 4];
    y[(y_at + at_y) / 4] = value;
    if ((FLAGS & HALF_Y) != 0)
        y_halves[halves_at / 2 + half_place(n, row / 4, n_rows / 4, X_TILES, X_UNIT)] = half_quad(value);
}

// The sum of a fragment over the subgroups that divide the columns.
vec4 total(uint part_m, uint slot, uint quad) {
    vec4 sum = vec4(0);
    [[unroll]] for (uint part = 0; part < PARTS_K; part++)
        sum += uintBitsToFloat(halves[(part * PARTS_M + part_m) * REGION + slot * QUADS + quad]);
    return sum;
}

void main() {
    begin_format();
    lane = gl_SubgroupInvocationID;
    own = gl_SubgroupID * REGION;
    const uint part_m = gl_SubgroupID % PARTS_M, part_k = gl_SubgroupID / PARTS_M;
    const uint row0 = gl_WorkGroupID.x * PARTS_M * OF_MATRIX * UNIT_M, n0 = gl_WorkGroupID.y * FRAGMENTS_N * UNIT_N;
    const uint n_x = row_count(rows);
    if (n0 >= n_x) return;
    at = planes_at(weights_at[0], n_rows * BLOCKS);
    if (IS_PAIRED) at2 = planes_at(weights_at[1], n_rows * BLOCKS);
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        const uint local = min(lane + i * LANES, A_ITEMS - 1u) / A_BLOCKS, fragment = local / UNIT_M;
        const uint row = ((part_m * OF_MATRIX) + (IS_PAIRED ? fragment / 2u : fragment)) * UNIT_M + local % UNIT_M;
        firsts[i] = min(row0 + row, n_rows - 1u) * BLOCKS;
    }

    [[unroll]] for (uint i = 0; i < FRAGMENTS; i++) sums[i] = ACCUMULATOR(0.0);
    const uint far = PARTS_K * K;  // distance between a subgroup's K columns
    [[unroll]] for (uint turn = 0; turn < DEPTH; turn++)
        if ((part_k + turn * PARTS_K) * K < n_columns) request(turn, part_k * K + turn * far);
    for (uint start = part_k * K; start < n_columns; start += DEPTH * far) {
        [[unroll]] for (uint turn = 0; turn < DEPTH; turn++) {
            const uint k = start + turn * far;
            if (k < n_columns) add_products(turn, k, DEPTH * far);
        }
    }

    [[unroll]] for (uint first = 0; first < FRAGMENTS; first += TURN) {
        barrier();
        [[unroll]] for (uint f = 0; f < TURN; f++)
            if (first + f < FRAGMENTS)
                coopMatStore(sums[first + f], halves, own + f * QUADS, UNIT_M / 4, gl_CooperativeMatrixLayoutColumnMajor);
        barrier();
        const uint n_results = min(TURN, FRAGMENTS - first) / RESULTS;
        for (uint e = gl_LocalInvocationIndex; e < PARTS_M * n_results * QUADS; e += THREADS) {
            const uint quad = e % QUADS, slot = e / QUADS % n_results * RESULTS, part = e / (QUADS * n_results);
            const uint i = (first + slot) % FRAGMENTS_M / RESULTS, j = (first + slot) / FRAGMENTS_M;
            const uint row = row0 + (part * OF_MATRIX + i) * UNIT_M + quad % (UNIT_M / 4) * 4;
            const uint n = n0 + j * UNIT_N + quad / (UNIT_M / 4);
            if (row >= n_rows || n >= n_x) continue;
            vec4 value = total(part, slot, quad);
            if (IS_PAIRED) {
                const vec4 other = total(part, slot + 1u, quad);
                [[unroll]] for (uint c = 0; c < 4; c++) {
                    const float values[2] = float[](value[c], other[c]);
                    value[c] = GATE;
                }
            }
            write(row, n, value);
        }
    }
}
