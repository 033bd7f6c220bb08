// y = W x for a few rows of x: each weight is read once, directly from memory to registers.
//
// A workgroup has GROUPS x LANES invocations. A group computes ROWS rows of the matrix; its lanes run along the columns,
// UNROLL blocks of each row at a time. Loads are issued as early as possible: the first weights are requested before x is
// processed.
//
// Up to three matrices share a dispatch (query, key, value); with PAIRED two give silu(W0 x) * (W1 x), or gelu. With EXPERTS each
// workgroup of y and z is one product with its own matrix: given by an id, or by the head. Else workgroup y is a pass
// over TOKENS further rows of x.
//
// x is float32 (FLOAT) or int8: with X_QUANTIZED as stored by quantize.comp, else quantized here, with X_NORM after
// x / sqrt(mean(x^2) + eps) * weight. With QUANTIZED_Y results are also stored as int8 for the next product; a workgroup
// then computes whole blocks of 32.
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
#ifndef FLOAT
#extension GL_EXT_integer_dot_product : require
#endif

layout(constant_id = 0) const uint LANES = 32;  // a multiple of the subgroup size
layout(constant_id = 1) const uint GROUPS = 1;
layout(constant_id = 2) const uint ROWS = 4;  // rows per group; even if PAIRED
layout(constant_id = 3) const uint UNROLL = 1;
layout(constant_id = 4) const uint TOKENS = 1;
layout(constant_id = 5) const uint SUBGROUP = 32;
layout(constant_id = 6) const uint BLOCKS = 1;  // blocks per row of the matrix
layout(constant_id = 7) const uint X_MODE = 0;
layout(constant_id = 8) const uint FLAGS = 0;
layout(constant_id = 9) const uint MATRICES = 1;
layout(constant_id = 10) const bool PREFETCH = false;
layout(local_size_x_id = 0, local_size_y_id = 1) in;

// X_MODE and FLAGS have the values of plugins/pumice_vulkan/flags.py.
const bool EXPERTS = (FLAGS & (BY_ID | BY_HEAD)) != 0;

#define WEIGHTS 3
#include "weights.glsl"

#include "common.glsl"
#include "functions.glsl"
layout(set = 0, binding = 1) readonly buffer X1 { float x1[]; };
layout(set = 0, binding = 1) readonly buffer X2 { uvec2 x2[]; };
layout(set = 0, binding = 1) readonly buffer X4 { vec4 x4[]; };
layout(set = 0, binding = 1) readonly buffer XI { ivec4 xi[]; };
layout(set = 0, binding = 2) readonly buffer Norm { vec4 norm[]; };
layout(set = 0, binding = 6) readonly buffer Bias0 { float bias0[]; };
layout(set = 0, binding = 7) readonly buffer Bias1 { float bias1[]; };
layout(set = 0, binding = 8) readonly buffer Bias2 { float bias2[]; };
layout(set = 0, binding = 9) readonly buffer Residual { float residual[]; };
layout(set = 0, binding = 10) readonly buffer Ids { uint ids[]; };
layout(set = 0, binding = 11) buffer Y { float y[]; };
layout(set = 0, binding = 12) writeonly buffer YI { uint yi[]; };
layout(push_constant) uniform Push {
    uint rows;
    uint x_at, norm_at;
    uint weights_at[3];
    uint bias_at[3];
    uint residual_at, ids_at;
    uint y_at[3];
    uint n_rows[3];     // rows of each matrix
    uint n_matrix_rows; // rows of the first matrix, including all experts
    uint n_columns;
    uint n_used;        // experts per token, or heads
    float eps;
};

const uint SUBGROUPS = LANES * GROUPS / SUBGROUP;
const uint OUT_ROWS = (FLAGS & PAIRED) != 0 ? ROWS / 2 : ROWS;  // results per group
const uint TILE = OUT_ROWS * GROUPS;
shared float partial[SUBGROUPS * ROWS * TOKENS];

uint lane, group;
uint pair;  // pair of a token and an expert
uint first_token;  // of this pass
uint matrix, tile_row;  // matrix and first row of this tile
Block blocks[UNROLL * ROWS], incoming[UNROLL * ROWS];
uint numbers_of[ROWS];  // index of each row's first block
Planes planes, planes2;  // planes of the matrix, and of the second of a pair
float sums[ROWS * TOKENS];

uint tiles_of(uint m) { return (n_rows[m] + TILE - 1u) / TILE; }

uint n_tiles() {
    uint n = tiles_of(0);
    if ((FLAGS & PAIRED) == 0 && MATRICES > 1) n += tiles_of(1);
    if (MATRICES > 2) n += tiles_of(2);
    return n;
}

void choose(uint tile) {
    matrix = 0;
    if ((FLAGS & PAIRED) == 0) {
        while (matrix + 1u < MATRICES && tile >= tiles_of(matrix)) tile -= tiles_of(matrix++);
    }
    tile_row = tile * TILE;
    uint n_total = (EXPERTS ? n_matrix_rows : n_rows[matrix]) * BLOCKS;
    planes = planes_at(weights_at[matrix], n_total);
    if ((FLAGS & PAIRED) != 0) planes2 = planes_at(weights_at[1], n_total);
    uint expert = 0;
    if ((FLAGS & BY_ID) != 0) expert = ids[ids_at + pair];
    if ((FLAGS & BY_HEAD) != 0) expert = pair % n_used;
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint row = tile_row + group * OUT_ROWS + ((FLAGS & PAIRED) != 0 ? r / 2u : r);
        numbers_of[r] = (expert * n_rows[0] + min(row, n_rows[matrix] - 1u)) * BLOCKS;
    }
}

void load_blocks(uint b) {
    [[unroll]] for (uint u = 0; u < UNROLL; u++)
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            uint number = numbers_of[r] + min(b + u * LANES, BLOCKS - 1u);
            if ((FLAGS & PAIRED) != 0 && (r & 1u) != 0)
                incoming[u * ROWS + r] = load_block(planes2, number);
            else
                incoming[u * ROWS + r] = load_block(planes, number);
        }
}

// The row of x of a token of this pass. Later passes may reach beyond the last row, whose results are not written.
uint x_row(uint n) {
    if ((FLAGS & BY_ID) != 0 && (FLAGS & OWN_X) == 0) return pair / n_used;
    if (EXPERTS) return pair;
    return first_token == 0u ? n : min(first_token + n, row_count(rows) - 1u);
}

#ifdef FLOAT
void begin_x() {}

vec4 load_x(uint at, uint column) {
    if ((FLAGS & RAGGED_X) == 0) return x4[(at + column) / 4u];
    vec4 v = vec4(0);
    for (uint k = 0; k < 4; k++) if (column + k < n_columns) v[k] = x1[at + column + k];
    return v;
}

void add_products(uint u, uint b) {
    [[unroll]] for (uint n = 0; n < TOKENS; n++) {
        const uint start = x_at + x_row(n) * n_columns;
        [[unroll]] for (uint i = 0; i < BLOCK_COLUMNS / 4u; i++) {
            vec4 v = load_x(start, b * BLOCK_COLUMNS + 4u * i);
            [[unroll]] for (uint r = 0; r < ROWS; r++)
                sums[r * TOKENS + n] += dot(v, numbers(blocks[u * ROWS + r], numbers_of[r] + b, i));
        }
    }
}

#else
const uint X_BLOCKS = X_MODE == X_QUANTIZED ? 1 : BLOCKS * TOKENS;
shared uvec4 codes[2 * X_BLOCKS];
shared uvec2 scales[X_BLOCKS];
shared float squares[SUBGROUPS * TOKENS];

#include "quantize.glsl"

// Quantizes the rows of x into shared memory.
void begin_x() {
    if (X_MODE == X_QUANTIZED) return;
    const uint threads = LANES * GROUPS, quarters = BLOCKS * 8u;
    const uint at = group * LANES + lane;
    float factors[TOKENS];
    [[unroll]] for (uint n = 0; n < TOKENS; n++) factors[n] = 1.0;
    if (X_MODE == X_NORM) {
        [[unroll]] for (uint n = 0; n < TOKENS; n++) {
            float sum = 0.0;
            for (uint i = at; i < quarters; i += threads) {
                vec4 v = x4[x_at / 4u + x_row(n) * quarters + i];
                sum += dot(v, v);
            }
            sum = subgroupAdd(sum);
            if (subgroupElect()) squares[gl_SubgroupID * TOKENS + n] = sum;
        }
        barrier();
        [[unroll]] for (uint n = 0; n < TOKENS; n++) {
            float sum = 0.0;
            [[unroll]] for (uint s = 0; s < SUBGROUPS; s++) sum += squares[s * TOKENS + n];
            factors[n] = inversesqrt(sum / float(4u * quarters) + eps);
        }
    }
    [[unroll]] for (uint n = 0; n < TOKENS; n++)
        for (uint i = at; i < quarters; i += threads) {
            vec4 v = x4[x_at / 4u + x_row(n) * quarters + i] * factors[n];
            if (X_MODE == X_NORM) v *= norm[norm_at / 4u + i];
            Quantized q = quantize(v);
            uint b = n * BLOCKS + i / 8u;
            codes[(i >> 2 & 1u) * X_BLOCKS + b][i & 3u] = q.codes;
            if ((i & 7u) == 0u) scales[b] = uvec2(floatBitsToUint(q.scale), q.sums);
        }
    barrier();
}

void add_products(uint u, uint b) {
    [[unroll]] for (uint n = 0; n < TOKENS; n++) {
        ivec4 first, second;
        uvec2 scale;
        if (X_MODE == X_QUANTIZED) {
            uint at = x_at + x_row(n) * padded(BLOCKS * 10u);
            first = xi[at / 4u + b];
            second = xi[at / 4u + BLOCKS + b];
            scale = x2[at / 2u + 4u * BLOCKS + b];
        } else {
            first = ivec4(codes[n * BLOCKS + b]);
            second = ivec4(codes[X_BLOCKS + n * BLOCKS + b]);
            scale = scales[n * BLOCKS + b];
        }
        float x_scale = uintBitsToFloat(scale.x);
        int sum0 = bitfieldExtract(int(scale.y), 0, 16), sum1 = int(scale.y) >> 16;
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            Block block = blocks[u * ROWS + r];
            int dot0 = 0, dot1 = 0;
            [[unroll]] for (uint i = 0; i < 4; i++) {
                ivec2 words = ivec2(code_words(block, i));
                dot0 += dotPacked4x8EXT(words.x, first[i]);
                dot1 += dotPacked4x8EXT(words.y, second[i]);
            }
            vec2 s0 = block_scale(block, numbers_of[r] + b, 0);
#if SPLIT
            vec2 s1 = block_scale(block, numbers_of[r] + b, 1);
            float sum = s0.x * float(dot0) + s1.x * float(dot1) + s0.y * float(sum0) + s1.y * float(sum1);
#else
            float sum = s0.x * float(dot0 + dot1) + s0.y * float(sum0 + sum1);
#endif
            sums[r * TOKENS + n] += x_scale * sum;
        }
    }
}
#endif


// The result of a row of the tile: the sum over all its lanes.
float result(uint m, uint n, uint first_row, uint local_row) {
    const uint of_group = LANES / SUBGROUP;
    const uint g = local_row / OUT_ROWS, r = local_row % OUT_ROWS, row = first_row + local_row;
    float values[2] = float[](0.0, 0.0);
    for (uint s = 0; s < of_group; s++) {
        uint at = (g * of_group + s) * ROWS * TOKENS;
        if ((FLAGS & PAIRED) != 0) {
            values[0] += partial[at + 2u * r * TOKENS + n];
            values[1] += partial[at + (2u * r + 1u) * TOKENS + n];
        } else {
            values[0] += partial[at + r * TOKENS + n];
        }
    }
    if ((FLAGS & BIAS) != 0) {
        values[0] += m == 0 ? bias0[bias_at[0] + row] : m == 1 ? bias1[bias_at[1] + row] : bias2[bias_at[2] + row];
        if ((FLAGS & PAIRED) != 0) values[1] += bias1[bias_at[1] + row];
    }
    if ((FLAGS & PAIRED) != 0) values[0] = GATE;
    if ((FLAGS & RESIDUAL) != 0) values[0] += residual[residual_at + (EXPERTS ? pair : first_token + n) * n_rows[m] + row];
    return values[0];
}

#ifndef FLOAT
// Also stores int8 as quantize.comp does; blocks are complete.
void write_quantized(uint first_row) {
    const uint n_blocks = n_rows[0] / 32u;
    for (uint i = group * LANES + lane; i < TILE / 4u * TOKENS; i += LANES * GROUPS) {
        const uint n = i / (TILE / 4u), row = i % (TILE / 4u) * 4u;
        if (first_row + row >= n_rows[0]) continue;
        vec4 v;
        [[unroll]] for (uint k = 0; k < 4; k++) {
            v[k] = result(0, n, first_row, row + k);
            y[y_at[0] + n * n_rows[0] + first_row + row + k] = v[k];
        }
        Quantized q = quantize(v);
        const uint b = (first_row + row) / 32u, at = y_at[1] + n * padded(10u * n_blocks);
        yi[at + (row >> 4 & 1u) * 4u * n_blocks + 4u * b + (row >> 2 & 3u)] = q.codes;
        if ((row & 31u) == 0u) {
            yi[at + 8u * n_blocks + 2u * b] = floatBitsToUint(q.scale);
            yi[at + 8u * n_blocks + 2u * b + 1u] = q.sums;
        }
    }
}
#endif

void write(uint m, uint first_row) {
    barrier();
    [[unroll]] for (uint i = 0; i < ROWS * TOKENS; i++) {
        float sum = subgroupAdd(sums[i]);
        if (subgroupElect()) partial[gl_SubgroupID * ROWS * TOKENS + i] = sum;
    }
    barrier();
#ifndef FLOAT
    if ((FLAGS & QUANTIZED_Y) != 0) {
        write_quantized(first_row);
        return;
    }
#endif
    for (uint i = group * LANES + lane; i < TILE * TOKENS; i += LANES * GROUPS) {
        uint n = i / TILE, row = first_row + i % TILE;
        if (row >= n_rows[m] || !EXPERTS && first_token + n >= row_count(rows)) continue;
        y[y_at[m] + (EXPERTS ? pair : first_token + n) * n_rows[m] + row] = result(m, n, first_row, i % TILE);
    }
}

void main() {
    const uint index = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    lane = index % LANES;
    group = index / LANES;
    pair = gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y;
    first_token = EXPERTS ? 0 : gl_WorkGroupID.y * TOKENS;
    if (EXPERTS ? pair >= row_count(rows) * n_used : first_token != 0u && first_token >= row_count(rows)) return;
    begin_format();
    uint tile = gl_WorkGroupID.x;
    const uint end = n_tiles();
    choose(tile);
    load_blocks(lane);
    begin_x();
    while (true) {
        [[unroll]] for (uint i = 0; i < ROWS * TOKENS; i++) sums[i] = 0.0;
        for (uint b = lane; b < BLOCKS; b += LANES * UNROLL) {
            [[unroll]] for (uint i = 0; i < UNROLL * ROWS; i++) blocks[i] = incoming[i];
            const uint next = b + LANES * UNROLL;
            if (PREFETCH && next < BLOCKS) load_blocks(next);
            [[unroll]] for (uint u = 0; u < UNROLL; u++)
                if (b + u * LANES < BLOCKS) add_products(u, b + u * LANES);
            if (!PREFETCH && next < BLOCKS) load_blocks(next);
        }
        const uint m = matrix, row = tile_row;
        tile += gl_NumWorkGroups.x;
        if (tile < end) {
            choose(tile);
            load_blocks(lane);
        }
        write(m, row);
        if (tile >= end) break;
    }
}
