// y = W x for many rows of x, in float32: tiles of both in shared memory, for devices without cooperative matrices.
//
// A workgroup computes 64 rows of W times 32 rows of x, 32 columns at a time; an invocation computes 4 x 4 results.
// routes.glsl selects the rows of x and the matrix.
#version 450
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 16, local_size_y = 8) in;
layout(constant_id = 0) const uint BLOCKS = 1;  // blocks per row of the matrix
layout(constant_id = 1) const uint FLAGS = 0;

// FLAGS: plugins/pumice_vulkan/flags.py

#define WEIGHTS 2
#include "weights.glsl"
#include "common.glsl"
layout(set = 0, binding = 1) readonly buffer X1 { float x1[]; };
layout(set = 0, binding = 1) readonly buffer X4 { vec4 x4[]; };
layout(set = 0, binding = 3) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = 4) readonly buffer Residual { float residual[]; };
layout(set = 0, binding = 7) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows;
    uint x_at, weights_at, bias_at, residual_at, tiles_at, order_at, y_at;
    uint n_rows, n_columns;
    uint n_matrix_rows;  // rows of all matrices
    uint n_used;         // experts per token, or heads
};

const uint M = 64, N = 32, K = 32, STRIDE = K + 1;
shared float a[M * STRIDE];
shared float b[N * STRIDE];

#include "pieces.glsl"
#define TILES 5
#include "routes.glsl"

void load_a(Planes at, uint row0, uint k) {
    const uint pieces = K / PIECE;
    for (uint i = gl_LocalInvocationIndex; i < M * pieces; i += 128u) {
        uint row = i / pieces, p = i % pieces;
        vec4 v[PIECE / 4u];
        load_piece(at, matrix * n_rows + min(row0 + row, n_rows - 1u), k / PIECE + p, v);
        [[unroll]] for (uint j = 0; j < PIECE; j++) a[row * STRIDE + p * PIECE + j] = v[j / 4u][j & 3u];
    }
}

void load_b(uint k) {
    for (uint i = gl_LocalInvocationIndex; i < N * K / 4u; i += 128u) {
        uint row = i / (K / 4u), column = k + 4u * (i % (K / 4u));
        vec4 v = vec4(0);
        if (n0 + row < n_x && column < n_columns) {
            uint at = x_at + x_row(n0 + row) * n_columns + column;
            if ((FLAGS & RAGGED_X) == 0) v = x4[at / 4u];
            else for (uint j = 0; j < 4u; j++) if (column + j < n_columns) v[j] = x1[at + j];
        }
        [[unroll]] for (uint j = 0; j < 4u; j++) b[row * STRIDE + column - k + j] = v[j];
    }
}

void main() {
    const uint row0 = gl_WorkGroupID.x * M;
    if (!find_vectors(N)) return;
    begin_format();
    const Planes at = planes_at(weights_at, n_matrix_rows * BLOCKS);
    float sums[4][4];
    [[unroll]] for (uint i = 0; i < 4; i++) [[unroll]] for (uint j = 0; j < 4; j++) sums[i][j] = 0.0;
    for (uint k = 0; k < n_columns; k += K) {
        load_a(at, row0, k);
        load_b(k);
        barrier();
        for (uint kk = 0; kk < K; kk++) {
            vec4 u, v;
            [[unroll]] for (uint i = 0; i < 4; i++) u[i] = a[(gl_LocalInvocationID.x + 16u * i) * STRIDE + kk];
            [[unroll]] for (uint j = 0; j < 4; j++) v[j] = b[(gl_LocalInvocationID.y + 8u * j) * STRIDE + kk];
            [[unroll]] for (uint i = 0; i < 4; i++) [[unroll]] for (uint j = 0; j < 4; j++) sums[i][j] += u[i] * v[j];
        }
        barrier();
    }
    [[unroll]] for (uint j = 0; j < 4; j++) {
        const uint n = n0 + gl_LocalInvocationID.y + 8u * j;
        if (n >= n_x) continue;
        const uint y_start = y_row(n) * n_rows;
        [[unroll]] for (uint i = 0; i < 4; i++) {
            const uint row = row0 + gl_LocalInvocationID.x + 16u * i;
            if (row >= n_rows) continue;
            float value = sums[i][j];
            if ((FLAGS & BIAS) != 0) value += bias[bias_at + row];
            if ((FLAGS & RESIDUAL) != 0) value += residual[residual_at + y_start + row];
            y[y_at + y_start + row] = value;
        }
    }
}
