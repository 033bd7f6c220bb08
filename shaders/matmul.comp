// y = W x for many rows of x, in float32: tiles of both in shared memory, for devices without matrix units.
//
// With FLOAT16 tiles and products are float16, two rows at a time, and so are sums of STEP columns; longer ones are float32.
// Activations are multiplied by X_SCALE, so that products of a million, and sums of them, are still within float16.
//
// A workgroup computes M rows of W times N rows of x, DEPTH columns at a time; an invocation computes ROWS x VECTORS
// results, four adjacent rows and vectors of each group. The next columns are requested before the last are multiplied.
// routes.glsl selects the rows of x and the matrix; splits.glsl adds up what several workgroups computed of a tile.
#version 450
#extension GL_EXT_control_flow_attributes : require
#ifdef FLOAT16
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define QUAD f16vec4
#define X_SCALE 0.0625
#else
#define QUAD vec4
#endif
layout(constant_id = 0) const uint BLOCKS = 1;  // blocks per row of the matrix
layout(constant_id = 1) const uint FLAGS = 0;
layout(constant_id = 2) const uint THREADS_M = 16;
layout(constant_id = 3) const uint THREADS_N = 8;
layout(constant_id = 4) const uint ROWS = 4;     // a multiple of four
layout(constant_id = 5) const uint VECTORS = 8;  // a multiple of four
layout(constant_id = 6) const uint SPLITS = 1;  // workgroups that divide the columns
layout(constant_id = 7) const uint DEPTH = 16;  // columns at a time
layout(constant_id = 8) const uint STEP = 16;  // columns of the unrolled loop; compilers keep sums in memory if it is long
layout(local_size_x_id = 2, local_size_y_id = 3) in;

// FLAGS: plugins/pumice_vulkan/flags.py

#define WEIGHTS 2
#include "weights.glsl"
#ifdef FLOAT16
#include "half_weights.glsl"
#endif
#include "common.glsl"
layout(set = 0, binding = 1) readonly buffer X1 { float x1[]; };
layout(set = 0, binding = 1) readonly buffer X4 { vec4 x4[]; };
layout(set = 0, binding = 3) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = 4) readonly buffer Residual { float residual[]; };
layout(set = 0, binding = 9) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows;
    uint x_at, weights_at, bias_at, residual_at, tiles_at, order_at, sums_at, counters_at, y_at;
    uint n_rows, n_columns;
    uint n_matrix_rows;  // rows of all matrices
    uint n_used;         // experts per token, or heads
};

const uint M = THREADS_M * ROWS, N = THREADS_N * VECTORS, THREADS = THREADS_M * THREADS_N;
const uint PIECE = BLOCK_COLUMNS < DEPTH ? BLOCK_COLUMNS : DEPTH, PIECES = DEPTH / PIECE;  // columns and number of an invocation's loads
const uint MATRIX_LOADS = (M * PIECES + THREADS - 1u) / THREADS, X_LOADS = (N * DEPTH / 4u + THREADS - 1u) / THREADS;
shared QUAD a[DEPTH * M / 4];  // by columns
shared QUAD b[DEPTH * N / 4];

#define TILES 5
#include "routes.glsl"

Block incoming[MATRIX_LOADS];
vec4 incoming_x[X_LOADS];

// The block that has piece `i` of the tile: adjacent invocations take adjacent rows, so that they write adjacent words.
uint block_number(uint row0, uint i, uint k) {
    const uint row = min(row0 + i % M, n_rows - 1u);
    return (matrix * n_rows + row) * BLOCKS + min((k + i / M * PIECE) / BLOCK_COLUMNS, BLOCKS - 1u);
}

vec4 load_x(uint i, uint k) {
    const uint n = n0 + i % N, column = k + 4u * (i / N);
    vec4 v = vec4(0);
    if (n >= n_x || column >= n_columns) return v;
    const uint at = x_at + x_row(n) * n_columns + column;
    if ((FLAGS & RAGGED_X) == 0) return x4[at / 4u];
    for (uint j = 0; j < 4u; j++) if (column + j < n_columns) v[j] = x1[at + j];
    return v;
}

void load(Planes at, uint row0, uint k) {
    [[unroll]] for (uint u = 0; u < MATRIX_LOADS; u++)
        incoming[u] = load_block(at, block_number(row0, gl_LocalInvocationIndex + u * THREADS, k));
    [[unroll]] for (uint u = 0; u < X_LOADS; u++) incoming_x[u] = load_x(gl_LocalInvocationIndex + u * THREADS, k);
}

// Macros, since functions would change the code of float32, which is measured.
#ifdef FLOAT16
float16_t saturated(float x) { return float16_t(clamp(x, -65504.0, 65504.0)); }
#if DENSE
f16vec4 half_numbers(Block block, uint number, uint i) { return f16vec4(clamp(numbers(block, number, i), -65504.0, 65504.0)); }
#else
f16vec4 half_numbers(Block block, uint number, uint i) {
    f16vec2 pairs[2];
    quad(block, number, i, pairs);
    return f16vec4(pairs[0].x, pairs[1].x, pairs[0].y, pairs[1].y);
}
#endif
#define NUMBERS half_numbers
#define X_NUMBER(x) saturated((x) * X_SCALE)
#else
#define NUMBERS numbers
#define X_NUMBER(x) x
#endif

void store(uint row0, uint k) {
    [[unroll]] for (uint u = 0; u < MATRIX_LOADS; u++) {
        const uint i = gl_LocalInvocationIndex + u * THREADS, row = i % M, column = i / M * PIECE;
        if (i >= M * PIECES) break;
        const uint number = block_number(row0, i, k), first = (k + column) % BLOCK_COLUMNS / 4u;
        const bool within = (k + column) / BLOCK_COLUMNS < BLOCKS;
        [[unroll]] for (uint q = 0; q < PIECE / 4u; q++) {
            const QUAD v = within ? NUMBERS(incoming[u], number, first + q) : QUAD(0);
            [[unroll]] for (uint j = 0; j < 4; j++) a[((column + 4u * q + j) * M + row) / 4u][row & 3u] = v[j];
        }
    }
    [[unroll]] for (uint u = 0; u < X_LOADS; u++) {
        const uint i = gl_LocalInvocationIndex + u * THREADS, n = i % N, column = 4u * (i / N);
        if (column >= DEPTH) break;
        [[unroll]] for (uint j = 0; j < 4; j++) b[((column + j) * N + n) / 4u][n & 3u] = X_NUMBER(incoming_x[u][j]);
    }
}

const uint N_SUMS = ROWS / 4 * VECTORS;
vec4 sums[N_SUMS];
#define SUMS 7
#define SUM vec4
#define SUM_WORDS 4
#include "splits.glsl"

#ifdef FLOAT16
f16vec2 parts[2 * N_SUMS];  // of STEP columns
#define BEGIN_PARTS [[unroll]] for (uint i = 0; i < 2 * N_SUMS; i++) parts[i] = f16vec2(0);
#define ADD_PARTS [[unroll]] for (uint i = 0; i < N_SUMS; i++) sums[i] += vec4(parts[2 * i], parts[2 * i + 1]);
void add_product(uint i, f16vec4 u, float16_t v) {
    parts[2 * i] = fma(u.xy, f16vec2(v), parts[2 * i]);
    parts[2 * i + 1] = fma(u.zw, f16vec2(v), parts[2 * i + 1]);
}
#define ADD_PRODUCT(i, u, v) add_product(i, u, v)
#else
#define BEGIN_PARTS
#define ADD_PARTS
#define ADD_PRODUCT(i, u, v) sums[i] += u * v
#endif

void multiply(uint k) {
    QUAD u[ROWS / 4];
    [[unroll]] for (uint i = 0; i < ROWS / 4; i++) u[i] = a[k * M / 4u + i * THREADS_M + gl_LocalInvocationID.x];
    [[unroll]] for (uint j = 0; j < VECTORS / 4; j++) {
        const QUAD v = b[k * N / 4u + j * THREADS_N + gl_LocalInvocationID.y];
        [[unroll]] for (uint c = 0; c < 4; c++)
            [[unroll]] for (uint i = 0; i < ROWS / 4; i++) ADD_PRODUCT((4u * j + c) * (ROWS / 4) + i, u[i], v[c]);
    }
}

// Write sum `i` of this invocation: four rows of a vector.
void write(uint row0, uint i, vec4 sum) {
    const uint j = i / (ROWS / 4), n = n0 + 4u * (j / 4u * THREADS_N + gl_LocalInvocationID.y) + j % 4u;
    const uint row = row0 + 4u * (i % (ROWS / 4) * THREADS_M + gl_LocalInvocationID.x);
    if (n >= n_x) return;
    const uint y_start = y_row(n) * n_rows;
    [[unroll]] for (uint r = 0; r < 4; r++) {
        if (row + r >= n_rows) continue;
        float value = sum[r];
#ifdef FLOAT16
        value /= X_SCALE;
#endif
        if ((FLAGS & BIAS) != 0) value += bias[bias_at + row + r];
        if ((FLAGS & RESIDUAL) != 0) value += residual[residual_at + y_start + row + r];
        y[y_at + y_start + row + r] = value;
    }
}

void main() {
    const uint row0 = gl_WorkGroupID.x * M;
    if (!find_vectors(N)) return;
    begin_format();
    const Planes at = planes_at(weights_at, n_matrix_rows * BLOCKS);
    [[unroll]] for (uint i = 0; i < N_SUMS; i++) sums[i] = vec4(0);
    const uvec2 part = own_part(n_columns, DEPTH);
    load(at, row0, part.x);
    for (uint k = part.x; k < part.y; k += DEPTH) {
        store(row0, k);
        barrier();
        if (k + DEPTH < part.y) load(at, row0, k + DEPTH);
        [[dont_unroll]] for (uint kk = 0; kk < DEPTH; kk += STEP) {
            BEGIN_PARTS
            [[unroll]] for (uint s = 0; s < STEP; s++) multiply(kk + s);
            ADD_PARTS
        }
        barrier();
    }
    if (SPLITS == 1) {
        [[unroll]] for (uint i = 0; i < N_SUMS; i++) write(row0, i, sums[i]);
    } else if (leave_sums()) {
        [[dont_unroll]] for (uint i = 0; i < N_SUMS; i++) write(row0, i, total(i));
    }
}
