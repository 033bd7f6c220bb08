// y = W x on matrix units whose division of fragments among lanes is known: each lane loads the blocks of W that its part
// of the fragments needs, and converts them in registers.
//
// Of a fragment of W, lane 4g + q holds columns 2q, 2q + 1, 2q + 8 and 2q + 9 of row g, then those of row g + 8; of one of
// x, the same columns of vector g, and with 16 vectors of g + 8 (NVIDIA's units; probe.py tests a device for it). Sums do not depend on the
// order of columns, so a step takes 128 of them: lane q has the q-th 32, four columns for each of eight fragments.
//
// A workgroup computes PARTS_M * FRAGMENTS_M * 16 rows of W times FRAGMENTS_N * 16 rows of x with PARTS_M x PARTS_K
// subgroups: PARTS_K of them divide the columns, and add up their sums at the end. x is float16 in the order of lanes
// (halves.glsl). With PAIRED a subgroup's fragments alternate between two matrices, and the result is
// silu(W0 x) * (W1 x), or gelu. With HALF_Y it is also stored as float16. With BY_ID each tile of x has the matrix of its expert
// (routes.glsl), and x lies in rows. n_rows is a multiple of 4, n_columns of 128.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
layout(constant_id = 0) const uint THREADS = 256;  // PARTS_M * PARTS_K subgroups of 32
layout(constant_id = 1) const uint BLOCKS = 1;  // blocks per row of the matrix
layout(constant_id = 2) const uint FLAGS = 0;
layout(constant_id = 3) const uint PARTS_M = 1;
layout(constant_id = 4) const uint PARTS_K = 8;  // at most the steps of a row
layout(constant_id = 5) const uint FRAGMENTS_M = 1;  // fragments per subgroup; even if PAIRED
layout(constant_id = 6) const uint FRAGMENTS_N = 1;
layout(constant_id = 7) const uint DEPTH = 1;  // steps of W in flight; of numbers 1, 2 or 4 quarters of a step
layout(constant_id = 8) const uint X_TILES = 1;  // tiles of 16 rows of x; 0: rows follow each other
layout(constant_id = 9) const bool UPPER = true;  // false if x has up to eight rows
layout(constant_id = 10) const uint WIDTH = 16;  // vectors of a fragment of sums: 8 or 16
layout(constant_id = 11) const bool X_FIRST = false;  // all vectors of four columns are loaded before products; not BY_ID
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
layout(set = 0, binding = 8) writeonly buffer Y { vec4 y[]; };
layout(set = 0, binding = 9) writeonly buffer Halves { uvec2 y_halves[]; };
layout(push_constant) uniform Push {
    uint rows;
    uint x_at, weights_at[2], bias_at, residual_at, tiles_at, order_at, y_at, halves_at;
    uint n_rows, n_columns;
    uint n_matrix_rows;  // rows of all matrices
    uint n_used;         // experts per token
};

#define TILES 6
#define TILE_INDEX gl_WorkGroupID.x
#include "routes.glsl"

const uint UNIT = 16, STEP = 128;  // rows and columns of a fragment, columns of a step
#define ACCUMULATOR coopmat<float, gl_ScopeSubgroup, UNIT, WIDTH, gl_MatrixUseAccumulator>
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, UNIT, UNIT, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, UNIT, WIDTH, gl_MatrixUseB>

const bool IS_PAIRED = (FLAGS & PAIRED) != 0;
const uint OF_MATRIX = IS_PAIRED ? FRAGMENTS_M / 2 : FRAGMENTS_M;  // fragments per subgroup and matrix
const uint MOST_FRAGMENTS = 4;  // along rows of a subgroup
const uint FRAGMENTS = FRAGMENTS_M * FRAGMENTS_N, RESULTS = IS_PAIRED ? 2 : 1, QUADS = UNIT * UNIT / 4;
const uint LOADS = FRAGMENTS_M * 2;  // blocks of a lane and step or quarter, one for each of its rows
// Shared memory holds TURN fragments of each subgroup at the end.
const uint ROOM = 32 / (PARTS_M * PARTS_K) < RESULTS ? RESULTS : 32 / (PARTS_M * PARTS_K) / RESULTS * RESULTS;
const uint TURN = ROOM < FRAGMENTS ? ROOM : FRAGMENTS;
shared uvec4 halves[PARTS_M * PARTS_K * TURN * QUADS];

uint lane, first_tile;  // first tile of x
Planes at, at2;  // planes of the matrix, and of the second of a pair
uint firsts[LOADS];  // numbers of this lane's blocks at column 0
uint x_firsts[FRAGMENTS_N * 2];  // places of its vectors, if they lie in rows
Block blocks[DEPTH * LOADS];  // being loaded

// The number of a row's block for columns k on of a matrix, or for fragments 2t and 2t + 1 of step k of numbers.
#if DENSE
uint block_number(uint row, uint k, uint t) { return firsts[row] + (k / STEP * 4 + t) * 32; }
#define LOAD(planes, number) Block(weights4[planes.low / 4u + number])
#else
uint block_number(uint row, uint k, uint t) { return firsts[row] + k / BLOCK_COLUMNS; }
#define LOAD load_block
#endif

void request(uint turn, uint k, uint t) {
    [[unroll]] for (uint i = 0; i < LOADS; i++) {
        if (IS_PAIRED && i / 2 % 2 == 1) blocks[turn * LOADS + i] = LOAD(at2, block_number(i, k, t));
        else blocks[turn * LOADS + i] = LOAD(at, block_number(i, k, t));
    }
}

const uint HALVES_N = UNIT / WIDTH;  // fragments of sums for 16 vectors
ACCUMULATOR sums[FRAGMENTS * HALVES_N];
uvec4 vectors[FRAGMENTS_N * 2];  // of four columns

// 16 bytes of x for fragments 2t and 2t + 1 of a step: of vector g, or g + 8, of a tile.
uvec4 load_x(uint k, uint tile, uint upper, uint t) {
    if (upper == 1 && !UPPER) return uvec4(0);
    if (X_TILES == 0) return x[x_firsts[tile * 2 + upper] + k / STEP * (STEP / 8) + t * 4];
    const uint at_tile = k / STEP * X_TILES + min(first_tile + tile, X_TILES - 1);
    return x[x_at / 4 + ((at_tile * 2 + upper) * 4 + t) * 32 + lane];
}

// Adds the products of fragments 2t and 2t + 1 of a step.
void multiply(LEFT u[2 * MOST_FRAGMENTS], uint k, uint t) {
    [[unroll]] for (uint e = 0; e < FRAGMENTS_N * 2; e++) {
        const uint j = X_FIRST ? e % FRAGMENTS_N : e / 2, odd = X_FIRST ? e / FRAGMENTS_N : e % 2;
        if ((FLAGS & BY_ID) != 0 && j > 0 && n0 + j * UNIT >= n_x) break;
        if (!X_FIRST && odd == 0)
            [[unroll]] for (uint upper = 0; upper < 2; upper++) vectors[j * 2 + upper] = load_x(k, j, upper, t);
        [[unroll]] for (uint h = 0; h < (UPPER ? HALVES_N : 1); h++) {
            RIGHT v;
            [[unroll]] for (uint c = 0; c < WIDTH / 2; c++)
                v[c] = as_pair(vectors[j * 2 + h + c / 4][odd * 2 + c / 2 % 2])[c % 2];
            [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++) {
                const uint to = (j * FRAGMENTS_M + i) * HALVES_N + h;
                sums[to] = coopMatMulAdd(u[odd * FRAGMENTS_M + i], v, sums[to]);
            }
        }
    }
}

#if DENSE

void add_numbers(Block now[LOADS], uint k, uint t) {
    [[unroll]] for (uint i = 0; X_FIRST && i < FRAGMENTS_N * 2; i++) vectors[i] = load_x(k, i / 2, i % 2, t);
    LEFT u[2 * MOST_FRAGMENTS];
    [[unroll]] for (uint row = 0; row < LOADS; row++) {
        const uvec4 words = octet(now[row]);
        [[unroll]] for (uint c = 0; c < 8; c++)
            u[c / 4 * FRAGMENTS_M + row / 2][row % 2 * 4 + c % 4] = as_pair(words[c / 2])[c % 2];
    }
    multiply(u, k, t);
}

void add_all(uint part_k) {
    const uint far = PARTS_K * STEP;  // distance between a subgroup's steps
    [[unroll]] for (uint t = 0; t < DEPTH; t++) request(t, part_k * STEP, t);
    for (uint k = part_k * STEP; k < n_columns; k += far) {
        [[unroll]] for (uint t = 0; t < 4; t++) {
            const uint turn = t % DEPTH, ahead = t + DEPTH;
            Block now[LOADS];
            [[unroll]] for (uint i = 0; i < LOADS; i++) now[i] = blocks[turn * LOADS + i];
            if (ahead < 4) request(turn, k, ahead);
            else request(turn, min(k + far, n_columns - STEP), ahead - 4);
            add_numbers(now, k, t);
        }
    }
}

#else

void add_products(uint turn, uint k) {
    [[unroll]] for (uint t = 0; t < 4; t++) {
        LEFT u[2 * MOST_FRAGMENTS];
        [[unroll]] for (uint i = 0; i < 4 * FRAGMENTS_M; i++) {
            const uint odd = i / (2 * FRAGMENTS_M), row = i % (2 * FRAGMENTS_M);
            f16vec2 pairs[2];
            quad(blocks[turn * LOADS + row], block_number(row, k, 0), 2 * t + odd, pairs);
            [[unroll]] for (uint c = 0; c < 4; c++) u[i / 2][row % 2 * 4 + c] = pairs[c / 2][c % 2];
        }
        [[unroll]] for (uint i = 0; X_FIRST && i < FRAGMENTS_N * 2; i++) vectors[i] = load_x(k, i / 2, i % 2, t);
        multiply(u, k, t);
    }
}

// With up to eight vectors, quads that share a word are converted together; pairs of matrices with one scale a block are
// faster without.
const bool CONVERT_WORDS = FRAGMENTS_N == 1 && !UPPER && LOW_BITS == 4 && TABLE == 0
                           && (SCALES == SUPER || FRAGMENTS_M == 1);

void add_few_products(uint turn, uint k) {
    uvec4 all[4];
    [[unroll]] for (uint t = 0; t < 4; t++) all[t] = load_x(k, 0, 0, t);
    f16vec2 factors[LOADS], centres[LOADS];
    [[unroll]] for (uint row = 0; row < LOADS; row++)
        half_scales(blocks[turn * LOADS + row], block_number(row, k, 0), factors[row], centres[row]);
    [[unroll]] for (uint word = 0; word < 4; word++) {
        LEFT u[2 * FRAGMENTS_M]; // low nibbles of all fragments, then high ones
        [[unroll]] for (uint row = 0; row < LOADS; row++) {
            f16vec2 pairs[4];
            two_quads(blocks[turn * LOADS + row], word, factors[row], centres[row], pairs);
            [[unroll]] for (uint c = 0; c < 8; c++) u[c / 4 * FRAGMENTS_M + row / 2][row % 2 * 4 + c % 4] = pairs[c / 2][c % 2];
        }
        [[unroll]] for (uint high = 0; high < 2; high++) {
            RIGHT v;
            const uvec4 own = all[high * 2 + word / 2];
            [[unroll]] for (uint c = 0; c < WIDTH / 2; c++)
                v[c] = c < 4 ? as_pair(own[word % 2 * 2 + c / 2 % 2])[c % 2] : float16_t(0.0);
            [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
                sums[i * HALVES_N] = coopMatMulAdd(u[high * FRAGMENTS_M + i], v, sums[i * HALVES_N]);
        }
    }
}

void add_all(uint part_k) {
    const uint far = PARTS_K * STEP;  // distance between a subgroup's steps
    [[unroll]] for (uint turn = 0; turn < DEPTH; turn++)
        if ((part_k + turn * PARTS_K) * STEP < n_columns) request(turn, part_k * STEP + turn * far, 0);
    for (uint start = part_k * STEP; start < n_columns; start += DEPTH * far) {
        [[unroll]] for (uint turn = 0; turn < DEPTH; turn++) {
            const uint k = start + turn * far;
            if (k >= n_columns) break;
            if (CONVERT_WORDS) add_few_products(turn, k);
            else add_products(turn, k);
            if (k + DEPTH * far < n_columns) request(turn, k + DEPTH * far, 0);
        }
    }
}

#endif

void write(uint row, uint n, vec4 value) {
    const uint at_y = y_row(n) * n_rows + row;
    if ((FLAGS & BIAS) != 0) value += bias[(bias_at + row) / 4];
    if ((FLAGS & RESIDUAL) != 0) value += residual[(residual_at + at_y) / 4];
    y[(y_at + at_y) / 4] = value;
    if ((FLAGS & HALF_Y) != 0)
        y_halves[halves_at / 2 + half_place(y_row(n), row / 4, n_rows / 4, X_TILES, LANE_ORDER)] = half_quad(value);
}

// The sum of a fragment over the subgroups that divide the columns.
vec4 total(uint part_m, uint slot, uint quad) {
    vec4 sum = vec4(0);
    [[unroll]] for (uint part = 0; part < PARTS_K; part++)
        sum += uintBitsToFloat(halves[((part * PARTS_M + part_m) * TURN + slot) * QUADS + quad]);
    return sum;
}

void main() {
    if (!find_vectors(FRAGMENTS_N * UNIT)) return;
    begin_format();
    lane = gl_SubgroupInvocationID;
    const uint part_m = gl_SubgroupID % PARTS_M, part_k = gl_SubgroupID / PARTS_M;
    const uint row0 = gl_WorkGroupID.y * PARTS_M * OF_MATRIX * UNIT;
    first_tile = n0 / UNIT;
    at = planes_at(weights_at[0], n_matrix_rows * BLOCKS);
    if (IS_PAIRED) at2 = planes_at(weights_at[1], n_matrix_rows * BLOCKS);
    [[unroll]] for (uint i = 0; i < LOADS; i++) {
        const uint fragment = part_m * OF_MATRIX + (IS_PAIRED ? i / 4 : i / 2);
        const uint row = row0 + fragment * UNIT + i % 2 * 8 + lane / 4;
        const uint of_stack = matrix * n_rows + min(row, n_rows - 1u);
        firsts[i] = DENSE != 0 ? of_stack / 8 * 8 * BLOCKS + lane : of_stack * BLOCKS + lane % 4;
    }
    if (X_TILES == 0)
        [[unroll]] for (uint i = 0; i < FRAGMENTS_N * 2; i++)
            x_firsts[i] = x_at / 4 + x_row(min(n0 + i * 8 + lane / 4, n_x - 1u)) * (n_columns / 8) + lane % 4;

    [[unroll]] for (uint i = 0; i < FRAGMENTS * HALVES_N; i++) sums[i] = ACCUMULATOR(0.0);
    add_all(part_k);

    [[unroll]] for (uint first = 0; first < FRAGMENTS; first += TURN) {
        barrier();
        [[unroll]] for (uint f = 0; f < TURN; f++)
            [[unroll]] for (uint h = 0; first + f < FRAGMENTS && h < HALVES_N; h++)
                coopMatStore(sums[(first + f) * HALVES_N + h], halves,
                             (gl_SubgroupID * TURN + f) * QUADS + h * (QUADS / HALVES_N), UNIT / 4,
                             gl_CooperativeMatrixLayoutColumnMajor);
        barrier();
        const uint n_results = min(TURN, FRAGMENTS - first) / RESULTS;
        for (uint e = gl_LocalInvocationIndex; e < PARTS_M * n_results * QUADS; e += THREADS) {
            const uint quad = e % QUADS, slot = e / QUADS % n_results * RESULTS, part = e / (QUADS * n_results);
            const uint i = (first + slot) % FRAGMENTS_M / RESULTS, j = (first + slot) / FRAGMENTS_M;
            const uint row = row0 + (part * OF_MATRIX + i) * UNIT + quad % (UNIT / 4) * 4;
            const uint n = n0 + j * UNIT + quad / (UNIT / 4);
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
