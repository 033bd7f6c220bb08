// y = W x for many rows of x in int8 (quantize.comp): tiles of both in shared memory, for devices without matrix units.
//
// A workgroup computes M rows of W times N rows of x, DEPTH blocks of 32 columns at a time; an invocation computes
// ROWS x VECTORS results. The next blocks are requested before the last are multiplied. Rows are those with the same
// remainder, so that adjacent invocations read adjacent words. routes.glsl selects the rows of x and the matrix;
// splits.glsl adds up what several workgroups computed of a tile.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_integer_dot_product : require
layout(constant_id = 0) const uint BLOCKS = 1;  // blocks per row of the matrix
layout(constant_id = 1) const uint FLAGS = 0;
layout(constant_id = 2) const uint THREADS_M = 16;
layout(constant_id = 3) const uint THREADS_N = 8;
layout(constant_id = 4) const uint ROWS = 4;
layout(constant_id = 5) const uint VECTORS = 8;
layout(constant_id = 6) const uint SPLITS = 1;  // workgroups that divide the columns
layout(local_size_x_id = 2, local_size_y_id = 3) in;

// FLAGS: plugins/pumice_vulkan/flags.py

#define WEIGHTS 2
#include "weights.glsl"
#include "common.glsl"
layout(set = 0, binding = 1) readonly buffer X2 { uvec2 x2[]; };
layout(set = 0, binding = 1) readonly buffer X4 { uvec4 x4[]; };
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
const uint DEPTH = 2;
const uint PARTS = SPLIT + 1;  // scales of a block
const uint MATRIX_LOADS = (M * DEPTH + THREADS - 1u) / THREADS, X_LOADS = (N * DEPTH + THREADS - 1u) / THREADS;
shared uvec4 codes[2 * DEPTH * M];  // halves of blocks
shared vec2 scales[PARTS * DEPTH * M];
shared uvec4 x_codes[2 * DEPTH * N];
shared vec3 x_scales[DEPTH * N];  // scale, and sums of both halves times it

#define TILES 5
#include "routes.glsl"

Block incoming[MATRIX_LOADS];
uvec4 incoming_x[2 * X_LOADS];
uvec2 incoming_scales[X_LOADS];

uint block_number(uint row0, uint i, uint b) {
    const uint row = min(row0 + i / DEPTH, n_rows - 1u);
    return (matrix * n_rows + row) * BLOCKS + min(b + i % DEPTH, BLOCKS - 1u);
}

void load(Planes at, uint row0, uint b) {
    [[unroll]] for (uint u = 0; u < MATRIX_LOADS; u++)
        incoming[u] = load_block(at, block_number(row0, gl_LocalInvocationIndex + u * THREADS, b));
    [[unroll]] for (uint u = 0; u < X_LOADS; u++) {
        const uint i = gl_LocalInvocationIndex + u * THREADS, own = min(b + i % DEPTH, BLOCKS - 1u);
        const uint start = x_at + x_row(min(n0 + i / DEPTH, n_x - 1u)) * padded(BLOCKS * 10u);
        incoming_x[2u * u] = x4[start / 4u + own];
        incoming_x[2u * u + 1u] = x4[start / 4u + BLOCKS + own];
        incoming_scales[u] = x2[start / 2u + 4u * BLOCKS + own];
    }
}

// Bytes of codes without what is subtracted from them, so that only minimums are left to add.
uint centred(uint word) {
#if HAS_MINIMUM || OFFSET == 0
    return word;
#else
    return ((word | 0x80808080u) - OFFSET * 0x01010101u) ^ 0x80808080u;
#endif
}

void store(uint row0, uint b) {
    [[unroll]] for (uint u = 0; u < MATRIX_LOADS; u++) {
        const uint i = gl_LocalInvocationIndex + u * THREADS, row = i / DEPTH, d = i % DEPTH;
        if (i >= M * DEPTH) break;
        uvec4 first, second;
        [[unroll]] for (uint w = 0; w < 4; w++) {
            const uvec2 words = code_words(incoming[u], w);
            first[w] = centred(words.x);
            second[w] = centred(words.y);
        }
        codes[2u * d * M + row] = first;
        codes[(2u * d + 1u) * M + row] = second;
        [[unroll]] for (uint p = 0; p < PARTS; p++) {
            const vec2 scale = block_scale(incoming[u], block_number(row0, i, b), p);
            scales[(PARTS * d + p) * M + row] = b + d < BLOCKS ? scale : vec2(0);
        }
    }
    [[unroll]] for (uint u = 0; u < X_LOADS; u++) {
        const uint i = gl_LocalInvocationIndex + u * THREADS, n = i / DEPTH, d = i % DEPTH;
        if (i >= N * DEPTH) break;
        x_codes[2u * d * N + n] = incoming_x[2u * u];
        x_codes[(2u * d + 1u) * N + n] = incoming_x[2u * u + 1u];
        const float scale = uintBitsToFloat(incoming_scales[u].x);
        const int both = int(incoming_scales[u].y);
        x_scales[d * N + n] = scale * vec3(1.0, float(bitfieldExtract(both, 0, 16)), float(both >> 16));
    }
}

int dot_half(uvec4 u, uvec4 v, int sum) {
    [[unroll]] for (uint i = 0; i < 4; i++) sum += dotPacked4x8EXT(int(u[i]), int(v[i]));
    return sum;
}

// An integer of up to 22 bits in the low bits of 1.5 * 2^23, which conversion takes a sum and no slower instruction.
const int ZERO = 0x4B400000;
float as_float(int sum) { return intBitsToFloat(sum) - 12582912.0; }

const uint N_SUMS = ROWS * VECTORS;
float sums[N_SUMS];
#define SUMS 7
#define SUM float
#define SUM_WORDS 1
#include "splits.glsl"

void multiply(uint d) {
    uvec4 first[ROWS], second[ROWS];
    vec2 scale[ROWS * PARTS];
    [[unroll]] for (uint i = 0; i < ROWS; i++) {
        const uint row = gl_LocalInvocationID.x + THREADS_M * i;
        first[i] = codes[2u * d * M + row];
        second[i] = codes[(2u * d + 1u) * M + row];
        [[unroll]] for (uint p = 0; p < PARTS; p++) scale[PARTS * i + p] = scales[(PARTS * d + p) * M + row];
    }
    [[unroll]] for (uint j = 0; j < VECTORS; j++) {
        const uint n = gl_LocalInvocationID.y + THREADS_N * j;
        const uvec4 x_first = x_codes[2u * d * N + n], x_second = x_codes[(2u * d + 1u) * N + n];
        const vec3 x_scale = x_scales[d * N + n];
        [[unroll]] for (uint i = 0; i < ROWS; i++) {
            int dot0 = dot_half(first[i], x_first, ZERO);
#if SPLIT
            const int dot1 = dot_half(second[i], x_second, ZERO);
            float sum = scale[2u * i].x * as_float(dot0) + scale[2u * i + 1u].x * as_float(dot1);
#else
            float sum = scale[i].x * as_float(dot_half(second[i], x_second, dot0));
#endif
            sum *= x_scale.x;
#if HAS_MINIMUM && SPLIT
            sum += scale[2u * i].y * x_scale.y + scale[2u * i + 1u].y * x_scale.z;
#elif HAS_MINIMUM
            sum += scale[i].y * (x_scale.y + x_scale.z);
#endif
            sums[i * VECTORS + j] += sum;
        }
    }
}

// Write sum `i` of this invocation.
void write(uint row0, uint i, float value) {
    const uint n = n0 + gl_LocalInvocationID.y + THREADS_N * (i % VECTORS);
    const uint row = row0 + gl_LocalInvocationID.x + THREADS_M * (i / VECTORS);
    if (n >= n_x || row >= n_rows) return;
    const uint y_start = y_row(n) * n_rows;
    if ((FLAGS & BIAS) != 0) value += bias[bias_at + row];
    if ((FLAGS & RESIDUAL) != 0) value += residual[residual_at + y_start + row];
    y[y_at + y_start + row] = value;
}

void main() {
    const uint row0 = gl_WorkGroupID.x * M;
    if (!find_vectors(N)) return;
    begin_format();
    const Planes at = planes_at(weights_at, n_matrix_rows * BLOCKS);
    [[unroll]] for (uint i = 0; i < N_SUMS; i++) sums[i] = 0.0;
    const uvec2 part = own_part(BLOCKS, DEPTH);
    load(at, row0, part.x);
    for (uint b = part.x; b < part.y; b += DEPTH) {
        store(row0, b);
        barrier();
        if (b + DEPTH < part.y) load(at, row0, b + DEPTH);
        [[unroll]] for (uint d = 0; d < DEPTH; d++) multiply(d);
        barrier();
    }
    if (SPLITS == 1) {
        [[unroll]] for (uint i = 0; i < N_SUMS; i++) write(row0, i, sums[i]);
    } else if (leave_sums()) {
        [[dont_unroll]] for (uint i = 0; i < N_SUMS; i++) write(row0, i, total(i));
    }
}
