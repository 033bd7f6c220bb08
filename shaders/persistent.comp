// One token of a llama-like model in one dispatch: all layers, from the embedding's row to the logits.
//
// The workgroups are all resident at once and never wait at a barrier for each other. What one computes and others read
// passes through the buffer `act` in words of 16 bits of data and 16 of an epoch, the number of the token: readers poll
// the data itself until every word carries the current epoch. Each layer has regions of its own, and each word is written
// once per token, so a word shows either this token's data or an older epoch.
//
// Each workgroup computes the same rows of every matrix. A subgroup takes a chunk of the columns of some rows; a unit is a row's
// part of that width, at most one block of 32 columns per lane, and is loaded units before its product, whatever waits lie
// between.
//
// With SEVERAL, a step has up to TOKENS tokens, of one or several sequences (persistent_tokens.glsl): each unit is multiplied
// with all of them, and each sum has the order that it has for one.
//
// A poll that fails `limit` times sets `failed`; then no invocation waits again, and the host computes the token anew.
#version 450
#pragma use_vulkan_memory_model
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_integer_dot_product : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

// Each variant is for some types of matrices: sizes are specialization constants, and products are those of
// tools/token_products.py. With experts (WITH_EXPERTS), FFN is the width of all experts of a token. Weights may lie in any number
// of buffers, and are found by address.
layout(local_size_x = THREADS) in;
#include "persistent_constants.glsl"

#if defined(SOFTWARE) // all subgroups enter a loop
#define WITH_OTHERS true
#else
#define WITH_OTHERS false
#endif

#include "common.glsl"
#include "rope_angle.glsl"
#ifndef SEVERAL
#include "ranks.glsl"
#endif
layout(buffer_reference, std430, buffer_reference_align = 16) restrict readonly buffer Codes { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) restrict readonly buffer Bits { uvec2 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 2) restrict readonly buffer Scales { uint16_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) restrict readonly buffer Supers { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) restrict readonly buffer Floats { vec4 v[]; };
#define FLOATS(PLACE, I) Floats(PLACE).v[I]
#define CODES(PLACE, I) Codes(PLACE).v[I]
#define BITS(PLACE, I) Bits(PLACE).v[I]
#define SCALES(PLACE, I) uint(Scales(PLACE).v[I])
#define SUPERS(PLACE, I) Supers(PLACE).v[I]
layout(std430, set = 0, binding = 3) restrict readonly buffer Addresses { uvec2 addresses[]; };
layout(std430, set = 0, binding = 4) restrict readonly buffer Norms { vec4 norms[]; };
layout(std430, set = 0, binding = 5) restrict readonly buffer Turns { uvec2 turns[]; };
layout(std430, set = 0, binding = 6) restrict readonly buffer X { float x[]; };
layout(std430, set = 0, binding = 7) buffer Cache { uvec4 cache[]; };
// Caches of layers may lie in any number of buffers, and are found by address.
layout(buffer_reference, std430, buffer_reference_align = 16) restrict buffer Cells { uvec4 v[]; };
uvec2 cells; // of this layer
#define CACHE(I) Cells(cells).v[I]
layout(std430, set = 0, binding = 8) devicecoherent volatile buffer Act { uvec4 act[]; };
layout(std430, set = 0, binding = 9) buffer Epochs { uint epochs[]; };
layout(std430, set = 0, binding = 10) buffer Failed { uint failed[]; };
layout(std430, set = 0, binding = 11) writeonly buffer Y { float y[]; };
#ifdef SEVERAL // gated values of all tokens, which exceed the shared memory: codes and scales for each workgroup
layout(std430, set = 0, binding = 12) workgroupcoherent buffer Spilled { uvec4 spilled[]; };
layout(std430, set = 0, binding = 12) workgroupcoherent buffer SpilledWords { uint spilled_words[]; };
#else // the best logit of each workgroup
layout(std430, set = 0, binding = 12) writeonly buffer Best { uvec2 best[]; };
#endif
layout(push_constant) uniform Push {
    uint rows, a_at, b_at, places_at, norms_at, turns_at, x_at, cache_at, act_at, epochs_at, failed_at, y_at;
#ifdef SEVERAL
    uint spilled_at;
#else
    uint best_at;
#endif
    uint positions, table;   // indices in the step block
    uint v_cache;            // words from keys to values
    uint n_rot, second_distance;
    float magnitude, scale, eps;
    uint limit;              // polls
    uint probe;              // 1: only find out whether all workgroups run at the same time
#ifdef SEVERAL
    uint n_logits;           // rows of logits
    uint sequences, seq_starts, output_ids, table_width; // indices in the step block; words of a sequence's block table
#endif
};

// --- the division of work

#define CEIL(a, b) (((a) + (b) - 1u) / (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b)) // unlike max(), for specialization constants
const uint WARPS = THREADS / LANES;
const uint QUERY = HEADS * DIM, KEY = KV_HEADS * DIM;
const uint BLOCKS_X = WIDTH / 32u, BLOCKS_O = QUERY / 32u, BLOCKS_D = FFN / 32u; // blocks of a row
const uint SLOTS_X = WARPS / CHUNKS_X;
const uint OF_L = CEIL(VOCAB, GROUPS);
const uint N_Q = CEIL(OF_Q, SLOTS_X), N_K = CEIL(OF_K, SLOTS_X), N_L = CEIL(OF_L, WARPS / CHUNKS_L); // units of a subgroup
const uint ROWS_Q = OF_Q + 2u * OF_K, ROWS_G = 2u * OF_G;

// --- regions of `act`: words of eight bytes of data

const uint PARTS = GROUPS > HEADS ? GROUPS / HEADS : 1u; // of a head's positions
const uint TEAMS = HEADS / SHARE; // of heads that read the same keys together
const uint DEEP_PARTS = SHARE > 1u && GROUPS > TEAMS ? GROUPS / TEAMS : 1u; // of a team's positions
const uint MOST_PARTS = LARGER(PARTS, DEEP_PARTS);
const uint MERGED = DEEP_PARTS > 1u ? QUERY / 4u : 0u; // words
const uint ACT_Q = WIDTH / 4u, ACT_O = ACT_Q + (QUERY + 2u * KEY) / 4u, ACT_S = ACT_O + MOST_PARTS * QUERY / 4u;
const uint ACT_M = ACT_S + MOST_PARTS * HEADS, ACT_R = ACT_M + MERGED;
const uint ACT_F = ACT_R + WIDTH / 4u, ACT_L = ACT_F + FFN / 8u + FFN / 16u;
const uint ACT_LAYER = ACT_L + EXPERTS, TABLE_ROW = EXPERTS > 0u ? 9u : 8u; // numbers of a layer in the table
const uint BIASES_AT = (2u * LAYERS + 1u) * WIDTH + (WITH_HEAD_NORMS ? 2u * LAYERS * DIM : 0u); // in `norms`, behind norms
#ifdef SEVERAL
const uint ACT_TOKEN = LAYERS * ACT_LAYER + WIDTH / 4u; // words of a token
const uint ACT_PROBE = TOKENS * ACT_TOKEN;
#else
const uint ACT_PROBE = LAYERS * ACT_LAYER + WIDTH / 4u;
#endif

// --- shared memory

#ifdef SEVERAL
const uint MOST_XQ = LARGER(WIDTH, QUERY), MOST_XO = GATED_SHARED && FFN > MOST_XQ ? FFN : MOST_XQ;
const uint BLOCKS_TOKEN = MOST_XO / 32u, MOST_X = TOKENS * BLOCKS_TOKEN;
#else
const uint MOST_XO = LARGER(WIDTH, QUERY), MOST_X = LARGER(MOST_XO, FFN) / 32u;
#endif
const uint STRIDE_Q = ROWS_Q + 1u, STRIDE_G = ROWS_G + 1u, STRIDE_L = OF_L + 1u, STRIDE_X = OF_X + 1u;
const uint PARTIAL_QG = LARGER(STRIDE_Q, STRIDE_G);
const uint PARTIAL_X = LARGER(PARTIAL_QG * CHUNKS_X, STRIDE_L * CHUNKS_L);
const uint OCTETS = DIM / 8u, ROWS = LARGER(LANES / OCTETS, 1u); // of a position; positions of a subgroup at a time
const uint TOGETHER = SHARE < ROWS ? SHARE : ROWS; // heads whose sums over the subgroups are made at a time
const uint STRIDE_H = 9u * OCTETS; // of a head there, whose octets lie in different banks
const uint PARTIAL_OD = LARGER(CHUNKS_O, CHUNKS_D) * STRIDE_X;
const uint PARTIAL_H = WARPS * (SHARE > 1u ? TOGETHER * STRIDE_H : DIM);
#ifdef SEVERAL
const uint OF_STEP = SLOTS_X * AHEAD, PARTIAL_STEP = OF_STEP * CHUNKS_X; // rows of the output at a time; their parts
const uint PARTIAL_QGX = LARGER(STRIDE_Q, STRIDE_G) * CHUNKS_X, PARTIAL_QGO = LARGER(PARTIAL_QGX, PARTIAL_OD);
const uint PARTIAL_TOKEN = LARGER(PARTIAL_QGO, 2u * PARTIAL_STEP), PARTIAL = LARGER(TOKENS * PARTIAL_TOKEN, PARTIAL_H);
#else
const uint PARTIAL_ODH = LARGER(PARTIAL_OD, PARTIAL_H), PARTIAL = LARGER(PARTIAL_X, PARTIAL_ODH);
#endif
shared uvec4 codes[2u * MOST_X];
shared vec4 scales[MOST_X]; // of both halves of a block, and each times the sum of its codes
shared float partial[PARTIAL];
#ifdef SEVERAL
#define FIRST_QUERY (2u * TOKENS)
shared uint output_tokens[TOKENS]; // of the rows of logits
shared float squares[TOKENS * WARPS];
#else
#define FIRST_QUERY 2u
shared float squares[WARPS];
shared float post_squares[WARPS];
shared uvec2 bests[WARPS];
#endif
shared vec2 states[WARPS * SHARE]; // highest score and sum of weights
shared float heads[(FIRST_QUERY + SHARE) * DIM]; // key and value of a head (of each token), and queries

uint tid, wg, warp, lane, epoch;
uint position, per_part, n_used; // the newest position, positions of a part, parts that have some
#ifndef SEVERAL // with a WINDOW some layers attend to the last WINDOW positions, by a block table, a cache and angles of their own
uint window_table, window_v_cache;
uint oldest = 0u, from_table, from_v_cache, from_turns; // of this layer
#define OLDEST (WINDOW > 0u ? oldest : 0u) +
#define TABLE (WINDOW > 0u ? from_table : table)
#define V_CACHE (WINDOW > 0u ? from_v_cache : v_cache)
#define FROM_TURNS (WINDOW > 0u ? from_turns : 0u) +
#else
#define OLDEST
#define TABLE table
#define V_CACHE v_cache
#define FROM_TURNS
#endif
bool deep; // the newest position is behind many
bool dead = false;

// Places of the current token, where a step has several.
#ifdef SEVERAL
uint act_from, block_from, partial_from, table_from, own_from;
#define ACT_OF act_from +
#define BLOCK_OF block_from +
#define PARTIAL_OF partial_from +
#define TABLE_OF table_from +
#define OWN_OF own_from +
#else
#define ACT_OF
#define BLOCK_OF
#define PARTIAL_OF
#define TABLE_OF
#define OWN_OF
#endif

void give_up(uint why) {
    dead = true;
    failed[failed_at] = why;
}

// --- exchange between workgroups

void put(uint at, uvec2 v) {
    act[act_at / 4u + ACT_OF at] = uvec4(v.xx << uvec2(16, 0) & 0xffff0000u, v.yy << uvec2(16, 0) & 0xffff0000u) | epoch;
}

uvec4 peek(uint at) { return act[act_at / 4u + ACT_OF at]; }

bool is_new(uvec4 v) {
    const uvec4 e = (v ^ epoch) & 0xffffu;
    return (e.x | e.y | e.z | e.w) == 0u;
}

// Residual sums pass as a part of their value, since those of some models exceed float16; norms do not change by that.
const float SHRINK = 1.0 / 64.0;

uvec2 data_of(uvec4 v) { return v.xz >> 16 | v.yw & 0xffff0000u; }
vec4 halves_of(uvec4 v) {
    const uvec2 data = data_of(v);
    return vec4(unpackHalf2x16(data.x), unpackHalf2x16(data.y));
}

// A single workgroup has no others to wait for, only its own subgroups.
void before_polls() {
    if (GROUPS == 1u) {
        memoryBarrierBuffer();
        barrier();
    }
}

// Words of `n` that this invocation reads; all are requested before the first is tested.
#define MOST_READ 8u
uvec4 seen[MOST_READ];
#define REQUEST(COUNT, PLACE) [[unroll]] for (uint k = 0u; k < COUNT; k++) seen[k] = peek(PLACE);
#define POLL(COUNT, PLACE) \
    REQUEST(COUNT, PLACE) \
    for (uint spins = 0u; !dead; spins++) { \
        bool complete = true; \
        [[unroll]] for (uint k = 0u; k < COUNT; k++) complete = complete && is_new(seen[k]); \
        if (complete) break; \
        if (spins >= limit) give_up(1u); \
        REQUEST(COUNT, PLACE) \
    }

vec4 neighbours(float v) { // values of four lanes
    return vec4(v, subgroupShuffleXor(v, 1), subgroupShuffleXor(v, 2), subgroupShuffleXor(v, 3));
}

// Gives the values of four neighbouring lanes as float16, which must hold them.
void give_four(bool really, float v, uint at) {
    const vec4 all = neighbours(v);
    if (really && !(abs(v) < 65504.0)) give_up(2u);
    if (really && (tid & 3u) == 0u) put(at, uvec2(packHalf2x16(all.xy), packHalf2x16(all.zw)));
}

// --- activations in int8, in blocks of 16: four lanes

float scale_of(vec4 v) {
    float top = max(max(abs(v.x), abs(v.y)), max(abs(v.z), abs(v.w)));
    top = max(top, subgroupShuffleXor(top, 1));
    return max(top, subgroupShuffleXor(top, 2)) * (1.0 / 127.0);
}

uint quantize(vec4 v, float scale, out int sum) {
    const ivec4 q = clamp(ivec4(roundEven(v * (scale > 0.0 ? 1.0 / scale : 0.0))), -127, 127);
    sum = q.x + q.y + q.z + q.w;
    sum += subgroupShuffleXor(sum, 1);
    sum += subgroupShuffleXor(sum, 2);
    return uint(q.x & 255) | uint(q.y & 255) << 8 | uint(q.z & 255) << 16 | uint(q.w) << 24;
}

// Keeps columns 4e to 4e + 3 of x.
void keep(bool really, uint e, vec4 v) {
    const float size = scale_of(v);
    int sum;
    const uint q = quantize(v, size, sum), word = e & 7u;
    const float other = subgroupShuffleXor(size, 4);
    const int other_sum = subgroupShuffleXor(sum, 4);
    if (really) codes[(word >> 2) * MOST_X + BLOCK_OF e / 8u][word & 3u] = q;
    if (really && word == 0u) scales[BLOCK_OF e / 8u] = vec4(size, other, size * float(sum), other * float(other_sum));
}

// Types of matrices.
const uint Q4_0 = 0u, Q4_K = 1u, Q6_K = 2u, Q5_K = 3u, Q3_K = 4u;

// --- products

uvec4 x_low, x_high; // this lane's block of x
vec4 x_scales;

// Takes x of one of the chunks of so many blocks. Lanes behind its blocks multiply with zeros.
void take_narrow(uint chunk, uint chunks, uint blocks) {
    const uint n = CEIL(blocks, chunks), at = chunk * n + lane, b = BLOCK_OF min(at, blocks - 1u);
    x_low = codes[b];
    x_high = codes[MOST_X + b];
    x_scales = lane < n && at < blocks ? scales[b] : vec4(0.0);
}

#ifdef HAS_Q8_0
float product_q8_0(uvec4 low, uvec4 high, uint scale) {
    int first = 0, second = 0;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        first += dotPacked4x8EXT(int(low[i]), int(x_low[i]));
        second += dotPacked4x8EXT(int(high[i]), int(x_high[i]));
    }
    const vec2 dots = vec2(first, second) * x_scales.xy;
    return unpackHalf2x16(scale).x * (dots.x + dots.y);
}
#endif

// The product of a block of less than eight bits, as in weights.glsl. Only types of the variant are compiled.
float product(uint type, uvec4 low, uvec2 high, uint half_scale, uint super) {
    int first = 0, second = 0;
    [[unroll]] for (uint i = 0u; i < 4u; i++) {
        uvec2 words = uvec2(low[i], low[i] >> 4) & 0x0f0f0f0fu;
#ifdef HAS_Q6_K
        if (type == Q6_K) words |= (i < 2u ? high << (4u - 2u * i) : high >> (2u * i - 4u)) & 0x30303030u;
#endif
#ifdef HAS_Q5_K
        if (type == Q5_K) words |= uvec2(high.x << (4u - i), high.x >> i) & 0x10101010u;
#endif
#ifdef HAS_Q3_K
        const uvec2 bits = uvec2(i < 2u ? high.x << (2u - i) : high.x >> (i - 2u), high.x >> (i + 2u));
        if (type == Q3_K) words = low.xy >> (2u * i) & 0x03030303u | bits & 0x04040404u;
#endif
        first += dotPacked4x8EXT(int(words.x), int(x_low[i]));
        second += dotPacked4x8EXT(int(words.y), int(x_high[i]));
    }
    const vec2 dots = vec2(first, second) * x_scales.xy;
#if defined HAS_Q6_K || defined HAS_Q3_K
    if (type == Q6_K || type == Q3_K) {
        const vec2 parts = vec2(bitfieldExtract(int(half_scale), 0, 8), bitfieldExtract(int(half_scale), 8, 8));
        return unpackHalf2x16(super).x * dot(parts, dots - (type == Q6_K ? 32.0 : 4.0) * x_scales.zw);
    }
#endif
    const float all = dots.x + dots.y, sums = x_scales.z + x_scales.w;
#if defined HAS_Q4_K || defined HAS_Q5_K
    if (type == Q4_K || type == Q5_K) {
        const vec2 factors = unpackHalf2x16(super);
        return factors.x * float(half_scale & 255u) * all - factors.y * float(half_scale >> 8) * sums;
    }
#endif
    return unpackHalf2x16(half_scale).x * (all - 8.0 * sums);
}

#ifdef SEVERAL // persistent_tokens.glsl
uint n_outputs; // rows of logits
void take_x_of(uint t, uint chunk, uint chunks, uint blocks, bool is_gated);
void give_logits(uint first, uint which);
void take_heads(uint region, uint first_head, uint n, uint kv);
#endif

#ifdef WITH_EXPERTS
#include "persistent_experts.glsl"
#endif
#ifdef SEVERAL
#include "persistent_token_units.glsl"
#else
#include "persistent_units.glsl"
#endif

float row_sum(uint row, uint chunks, uint stride) {
    float sum = 0.0;
    [[unroll]] for (uint c = 0u; c < chunks; c++) sum += partial[PARTIAL_OF c * stride + row];
    return sum;
}

#ifndef SEVERAL
// 1 / sqrt(mean of squares + eps), of what passed as a part of its value
float norm_factor() {
    float sum = 0.0;
    for (uint i = lane; i < WARPS; i += LANES) sum += squares[i];
    return inversesqrt(subgroupAdd(sum) / float(WIDTH) + SHRINK * SHRINK * eps);
}

// --- x of a product

const uint READS_X = CEIL(WIDTH / 4u, THREADS);

const uint POST_NORMS_AT = BIASES_AT; // no model has both
vec4 stream[READS_X]; // x as it passes, to which each workgroup adds the normed results of blocks

// Adds the results of which this invocation has seen its words to x, behind norm `norm` of results.
void add_normed(uint norm) {
    float sum = 0.0;
    [[unroll]] for (uint k = 0u; k < READS_X; k++) {
        const vec4 v = k * THREADS + tid < WIDTH / 4u ? halves_of(seen[k]) : vec4(0.0);
        sum += dot(v, v);
    }
    sum = subgroupAdd(sum);
    if (subgroupElect()) post_squares[warp] = sum;
    barrier();
    sum = 0.0;
    for (uint i = lane; i < WARPS; i += LANES) sum += post_squares[i];
    const float factor = SHRINK * inversesqrt(subgroupAdd(sum) / float(WIDTH) + SHRINK * SHRINK * eps);
    [[unroll]] for (uint k = 0u; k < READS_X; k++) {
        const uint e = min(k * THREADS + tid, WIDTH / 4u - 1u);
        stream[k] += factor * halves_of(seen[k]) * norms[(norms_at + POST_NORMS_AT) / 4u + norm * (WIDTH / 4u) + e];
    }
}

// Keeps x times a norm's weights; its factor follows from the squares.
void take_normed(uint layer, uint region, uint norm) {
    float sum = 0.0;
#ifdef WITH_EXPERTS
    const bool routes = (norm & 1u) != 0u;
    if (routes) begin_routing(layer);
#endif
    vec4 weights[READS_X];
    [[unroll]] for (uint k = 0u; k < READS_X; k++) {
        weights[k] = norms[norms_at / 4u + norm * (WIDTH / 4u) + min(k * THREADS + tid, WIDTH / 4u - 1u)];
    }
    before_polls();
    if (region != 0u) {
        POLL(READS_X, region + min(k * THREADS + tid, WIDTH / 4u - 1u))
        if (POST_NORMS) add_normed(norm - 1u);
    }
    [[unroll]] for (uint k = 0u; k < READS_X; k++) {
        const uint e = k * THREADS + tid;
        const bool real = e < WIDTH / 4u;
        vec4 v = vec4(0.0);
        if (real && region != 0u) v = halves_of(seen[k]);
        if (real && region == 0u) {
            const uint at = x_at + 4u * e;
            v = SHRINK * vec4(x[at], x[at + 1u], x[at + 2u], x[at + 3u]);
        }
        if (POST_NORMS && region == 0u) stream[k] = v;
        else if (POST_NORMS && real) v = stream[k];
        sum += dot(v, v);
        keep(real, e, v * weights[k]);
#ifdef WITH_EXPERTS
        if (routes && real) route(k, v * weights[k]);
#endif
    }
    sum = subgroupAdd(sum);
    if (subgroupElect()) squares[warp] = sum;
#ifdef WITH_EXPERTS
    if (routes) sum_routed();
#endif
}

#endif

// The sum of parts of a head's positions as far as they are merged.
struct Merge { vec4 sum; float top, total; };

void merge(inout Merge all, vec4 sum, float top, float total) {
    const float fresh = max(all.top, top), before = exp(all.top - fresh), now = exp(top - fresh);
    all.sum = all.sum * before + sum * now;
    all.total = all.total * before + total * now;
    all.top = fresh;
}

const uint READS_O = CEIL(QUERY / 4u, THREADS);

// Keeps the results of attention, merging the parts of a head's positions, unless they are merged.
void take_attended(uint region) {
    before_polls();
    if (PARTS == 1u || n_used == 1u || deep) {
        const uint from = region + (deep && DEEP_PARTS > 1u ? ACT_M : ACT_O);
        POLL(READS_O, from + min(k * THREADS + tid, QUERY / 4u - 1u))
        [[unroll]] for (uint k = 0u; k < READS_O; k++) {
            const uint e = k * THREADS + tid;
            keep(e < QUERY / 4u, e, e < QUERY / 4u ? halves_of(seen[k]) : vec4(0.0));
        }
        return;
    }
    [[unroll]] for (uint first = 0u; first < QUERY / 4u; first += THREADS) {
        const uint e = first + tid, at = min(e, QUERY / 4u - 1u), head = at / (DIM / 4u);
        Merge all = Merge(vec4(0.0), -1e30, 0.0);
        for (uint part = 0u; part < n_used; part += 4u) {
            POLL(8u, region + (k < 4u ? ACT_O + min(part + k, n_used - 1u) * (QUERY / 4u) + at
                                      : ACT_S + min(part + k - 4u, n_used - 1u) * HEADS + head))
            [[unroll]] for (uint k = 0u; k < 4u; k++) {
                if (part + k < n_used) merge(all, halves_of(seen[k]), uintBitsToFloat(data_of(seen[4u + k]).x), 1.0);
            }
        }
        keep(e < QUERY / 4u, e, e < QUERY / 4u ? all.sum / all.total : vec4(0.0));
    }
}

#ifndef SEVERAL
// Keeps the gated values, which come as int8: eight codes a word, then a half block's scale and sum a word.
void take_gated(uint region) {
    const uint n = FFN / 8u + FFN / 16u;
    before_polls();
    [[unroll]] for (uint first = 0u; first < n; first += 4u * THREADS) {
        const uint count = min(4u, CEIL(n - first, THREADS));
        POLL(count, region + ACT_F + min(first + k * THREADS + tid, n - 1u))
        [[unroll]] for (uint k = 0u; k < 4u; k++) {
            if (k >= count) continue;
            const uint e = first + k * THREADS + tid;
            const uvec2 data = data_of(seen[k]);
            if (e < FFN / 8u) {
                const uint word = 2u * e & 7u, at = (word >> 2) * MOST_X + e / 4u;
                codes[at][word & 3u] = data.x;
                codes[at][(word & 3u) + 1u] = data.y;
            } else if (e < n) {
                const uint half_ = e - FFN / 8u;
                const float size = uintBitsToFloat(data.x);
                scales[half_ / 2u][half_ & 1u] = size;
                scales[half_ / 2u][2u + (half_ & 1u)] = size * float(int(data.y));
            }
        }
    }
}

#endif

// --- attention

const uint AT_ONCE = THREADS / OCTETS, POSITIONS = AT_ONCE * EACH;
uvec4 keys[EACH], values[EACH];
uint first_cells[EACH]; // rows in the cache of the first positions of this workgroup's part, for a head of keys 0

uint cell_of(uint p) {
    const uint block = step_words[TABLE + TABLE_OF p / block_size];
    return block * KV_HEADS * block_size + p % block_size;
}

void find_first_cells() {
    const uint start = OLDEST wg / HEADS * per_part;
    [[unroll]] for (uint e = 0u; e < EACH; e++) {
        first_cells[e] = cell_of(min(start + e * AT_ONCE + tid / OCTETS, position));
    }
}

void request(uint kv, uint first, bool cells_known) {
    [[unroll]] for (uint e = 0u; e < EACH; e++) {
        const uint cell = cells_known ? first_cells[e] : cell_of(min(first + e * AT_ONCE + tid / OCTETS, position));
        const uint at = (cell + kv * block_size) * OCTETS + tid % OCTETS;
        keys[e] = CACHE(at);
        values[e] = CACHE(at + V_CACHE / 4u);
    }
}

vec4 octet_half(uvec4 v, uint i) {
    return i == 0u ? vec4(unpackHalf2x16(v.x), unpackHalf2x16(v.y)) : vec4(unpackHalf2x16(v.z), unpackHalf2x16(v.w));
}

vec4 head_four(uint at) { return vec4(heads[at], heads[at + 1u], heads[at + 2u], heads[at + 3u]); }

const uint PER_LANE = CEIL(DIM, LANES);
uint head_norms; // of this layer

// A number of the norm of keys, or of queries.
float head_norm(bool of_key, uint i) {
    const uint at = head_norms + (of_key ? DIM : 0u) + i;
    return norms[at / 4u][at & 3u];
}

#define ANGLE(POSITION, PAIR) magnitude * turn(POSITION, turns[turns_at / 2u + FROM_TURNS PAIR])

// Turns a pair of values of the head at `BASE`.
#define TURN(BASE, PAIR, POSITION) \
        const uint one = BASE + (second_distance == 1u ? 2u * PAIR : PAIR), two = one + second_distance; \
        const vec2 angle = ANGLE(POSITION, PAIR); \
        const float a = heads[one], b = heads[two]; \
        heads[one] = a * angle.x - b * angle.y; \
        heads[two] = a * angle.y + b * angle.x;

#ifdef SEVERAL
#define CELL(VALUE, POSITION, FROM) new_cell(VALUE, POSITION, FROM + 8u * octet)
uint token, source, first_new; // the current token, its row, and the first position of its sequence in this step

// Eight values of a cell, of a key or value of this step where it is none of the cache.
uvec4 new_cell(uvec4 cached, uint p, uint from) {
    if (p < first_new) return cached;
    const uint at = 2u * DIM * (source - (position - min(p, position))) + from;
    const vec4 a = head_four(at), b = head_four(at + 4u);
    return uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
}
#else
#define CELL(VALUE, POSITION, FROM) VALUE

// Key and value of a head, and the queries of `n` heads from `first_head`, with norms and rotary positions.
void take_heads(uint region, uint first_head, uint n, uint kv) {
    const uint fours = DIM / 4u;
    const uint vector = min(warp, 1u + n); // key, value, queries
    float weights[PER_LANE];
    if (WITH_HEAD_NORMS) {
        [[unroll]] for (uint i = 0u; i < PER_LANE; i++) weights[i] = head_norm(vector == 0u, min(i * LANES + lane, DIM - 1u));
    }
    before_polls();
    if (WITH_OTHERS || tid < (2u + n) * fours) {
        const uint e = min(tid, (2u + n) * fours - 1u), which = e / fours;
        const uint from = which < 2u ? QUERY / 4u + which * (KEY / 4u) + kv * fours : (first_head + which - 2u) * fours;
        POLL(1u, region + ACT_Q + from + e % fours)
        const vec4 v = halves_of(seen[0]);
        [[unroll]] for (uint c = 0u; c < 4u; c++) heads[4u * e + c] = v[c];
    }
    barrier();
    if (WITH_HEAD_NORMS && (WITH_OTHERS || warp < 2u + n)) {
        float values[PER_LANE], square = 0.0;
        [[unroll]] for (uint i = 0u; i < PER_LANE; i++) {
            values[i] = i * LANES + lane < DIM ? heads[vector * DIM + i * LANES + lane] : 0.0;
            square += values[i] * values[i];
        }
        const float factor = inversesqrt(subgroupAdd(square) / float(DIM) + eps);
        [[unroll]] for (uint i = 0u; i < PER_LANE; i++) {
            const bool real = warp < 2u + n && vector != 1u && i * LANES + lane < DIM;
            if (real) heads[vector * DIM + i * LANES + lane] = values[i] * factor * weights[i];
        }
    }
    if (WITH_HEAD_NORMS) barrier();
    if (tid < (1u + n) * (n_rot / 2u)) {
        const uint pair = tid % (n_rot / 2u), which = tid / (n_rot / 2u), base = which == 0u ? 0u : (1u + which) * DIM;
        TURN(base, pair, position)
    }
    barrier();
}
#endif

// Writes the new key and value of a head to the cache.
void store(uint kv) {
#ifdef SEVERAL
    if (token != source) return; // it repeats another
#endif
    const uint cell = cell_of(position) + kv * block_size;
    if (tid < 2u * OCTETS) {
        const uint from = OWN_OF 8u * tid; // keys, then values
        const uint at = cell * OCTETS + tid % OCTETS + (tid < OCTETS ? 0u : V_CACHE / 4u);
        const vec4 a = head_four(from), b = head_four(from + 4u);
        CACHE(at) = uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
    }
}

// `v` within a soft cap, unless that is zero; tanh, without an overflow.
float capped(float v, float cap) { return cap > 0.0 ? cap * (1.0 - 2.0 / (exp(2.0 * v / cap) + 1.0)) : v; }

float rescaled(float top, float fresh) { return top == fresh ? 1.0 : exp(top - fresh); }

// Attention of a head to a part of the positions.
void attend(uint region, uint head, uint part, bool requested) {
    const uint kv = head / (HEADS / KV_HEADS), octet = tid % OCTETS;
    const uint start = OLDEST part * per_part, end = min(start + per_part, position + 1u);
    if (!requested) request(kv, start, false);
    take_heads(region, head, 1u, kv);
    if (end == position + 1u && head % (HEADS / KV_HEADS) == 0u) store(kv);
    const vec4 query[2] = vec4[](head_four(FIRST_QUERY * DIM + 8u * octet), head_four(FIRST_QUERY * DIM + 8u * octet + 4u));
    vec4 sum[2] = vec4[](vec4(0.0), vec4(0.0));
    float top = -1e30, total = 0.0;
    for (uint first = start; first < end; first += POSITIONS) {
        uvec4 some_keys[EACH], some_values[EACH];
        [[unroll]] for (uint e = 0u; e < EACH; e++) {
            some_keys[e] = keys[e];
            some_values[e] = values[e];
        }
        if (first + POSITIONS < end) request(kv, first + POSITIONS, false);
        float score[EACH], fresh = top;
        [[unroll]] for (uint e = 0u; e < EACH; e++) {
            const uint p = first + e * AT_ONCE + tid / OCTETS;
            score[e] = 0.0;
            [[unroll]] for (uint i = 0u; i < 2u; i++) {
                const vec4 key = p == position ? head_four(OWN_OF 8u * octet + 4u * i) : octet_half(CELL(some_keys[e], p, 0u), i);
                score[e] += dot(key, query[i]);
            }
            [[unroll]] for (uint step = 1u; step < OCTETS; step *= 2u) score[e] += subgroupShuffleXor(score[e], step);
            score[e] = p < end ? capped(score[e] * scale, SOFT_CAP) : -1e30;
            fresh = max(fresh, score[e]);
        }
        const float factor = rescaled(top, fresh);
        top = fresh;
        total *= factor;
        [[unroll]] for (uint i = 0u; i < 2u; i++) sum[i] *= factor;
        [[unroll]] for (uint e = 0u; e < EACH; e++) {
            const uint p = first + e * AT_ONCE + tid / OCTETS;
            const float weight = p < end ? exp(score[e] - fresh) : 0.0;
            total += weight;
            [[unroll]] for (uint i = 0u; i < 2u; i++) {
                const vec4 value = p == position ? head_four(OWN_OF DIM + 8u * octet + 4u * i) : octet_half(CELL(some_values[e], p, DIM), i);
                if (p < end) sum[i] += weight * value;
            }
        }
    }
    float fresh = top;
    [[unroll]] for (uint step = OCTETS; step < LANES; step *= 2u) fresh = max(fresh, subgroupShuffleXor(fresh, step));
    const float factor = rescaled(top, fresh);
    total *= factor;
    [[unroll]] for (uint i = 0u; i < 2u; i++) sum[i] *= factor;
    [[unroll]] for (uint step = OCTETS; step < LANES; step *= 2u) {
        total += subgroupShuffleXor(total, step);
        [[unroll]] for (uint i = 0u; i < 2u; i++) sum[i] += subgroupShuffleXor(sum[i], step);
    }
    if (lane == 0u) states[warp] = vec2(fresh, total);
    if (lane < OCTETS) {
        [[unroll]] for (uint i = 0u; i < 8u; i++) partial[warp * DIM + 8u * octet + i] = sum[i / 4u][i % 4u];
    }
    barrier();
    const uint d = tid;
    if (WITH_OTHERS || tid < CEIL(DIM, LANES) * LANES) { // whole subgroups
        float highest = -1e30, all = 0.0, v = 0.0;
        [[unroll]] for (uint w = 0u; w < WARPS; w++) highest = max(highest, states[w].x);
        for (uint w = 0u; w < WARPS; w++) {
            const float share = rescaled(states[w].x, highest);
            all += share * states[w].y;
            v += share * partial[w * DIM + min(d, DIM - 1u)];
        }
        give_four(d < DIM, v / all, region + ACT_O + part * (QUERY / 4u) + head * (DIM / 4u) + d / 4u);
        if (d == 0u) put(region + ACT_S + part * HEADS + head, uvec2(floatBitsToUint(highest + log(all)), 0u));
    }
    barrier();
}

// Words of a part without positions are written too, so that no word keeps the epoch of a token long ago.
void skip_part(uint region, uint head, uint part) {
    if (tid < DIM / 4u) put(region + ACT_O + part * (QUERY / 4u) + head * (DIM / 4u) + tid, uvec2(0u));
    if (tid == 0u) put(region + ACT_S + part * HEADS + head, uvec2(0u));
}

// --- attention to many positions: the heads of a workgroup share each key and value that it reads

const uint DEEP_STEP = AT_ONCE * DEEP_EACH;

// Attention of SHARE heads to a part of the positions.
void attend_together(uint region, uint team, uint part) {
    const uint first_head = team * SHARE, kv = first_head / (HEADS / KV_HEADS), octet = tid % OCTETS, row = tid / OCTETS;
    const uint start = OLDEST part * per_part, end = min(start + per_part, position); // of those in the cache
    const uint base = kv * block_size * OCTETS + octet;
    uvec4 some_keys[DEEP_EACH], some_values[DEEP_EACH];
    uint at[DEEP_EACH]; // in the cache, of the next positions
#define FIND(FIRST) [[unroll]] for (uint e = 0u; e < DEEP_EACH; e++) \
        at[e] = base + cell_of(min(FIRST + e * AT_ONCE + row, end - 1u)) * OCTETS;
#define READ(TARGET, OFFSET) [[unroll]] for (uint e = 0u; e < DEEP_EACH; e++) TARGET[e] = CACHE(at[e] + OFFSET);
    FIND(start)
    READ(some_keys, 0u)
    READ(some_values, V_CACHE / 4u)
    FIND(start + DEEP_STEP)
    take_heads(region, first_head, SHARE, kv);
    if (end == position && first_head % (HEADS / KV_HEADS) == 0u) store(kv);
    vec4 query[2u * SHARE], sum[2u * SHARE];
    float top[SHARE], total[SHARE];
    [[unroll]] for (uint h = 0u; h < SHARE; h++) {
        query[2u * h] = scale * head_four((FIRST_QUERY + h) * DIM + 8u * octet);
        query[2u * h + 1u] = scale * head_four((FIRST_QUERY + h) * DIM + 8u * octet + 4u);
        sum[2u * h] = sum[2u * h + 1u] = vec4(0.0);
        top[h] = -1e30;
        total[h] = 0.0;
    }
    [[dont_unroll]] for (uint first = start; first < end; first += DEEP_STEP) {
        float score[DEEP_EACH * SHARE];
        [[unroll]] for (uint e = 0u; e < DEEP_EACH; e++) {
            const vec4 low = octet_half(CELL(some_keys[e], first + e * AT_ONCE + row, 0u), 0u);
            const vec4 high = octet_half(CELL(some_keys[e], first + e * AT_ONCE + row, 0u), 1u);
            [[unroll]] for (uint h = 0u; h < SHARE; h++) {
                score[e * SHARE + h] = dot(low, query[2u * h]) + dot(high, query[2u * h + 1u]);
            }
        }
        if (first + DEEP_STEP < end) { READ(some_keys, 0u) }
        [[unroll]] for (uint i = 0u; i < DEEP_EACH * SHARE; i++) {
            [[unroll]] for (uint step = 1u; step < OCTETS; step *= 2u) score[i] += subgroupShuffleXor(score[i], step);
        }
        [[unroll]] for (uint i = 0u; i < DEEP_EACH * SHARE; i++) score[i] = capped(score[i], SOFT_CAP);
        [[unroll]] for (uint h = 0u; h < SHARE; h++) {
            float fresh = top[h];
            [[unroll]] for (uint e = 0u; e < DEEP_EACH; e++) {
                if (first + e * AT_ONCE + row < end) fresh = max(fresh, score[e * SHARE + h]);
            }
            const float factor = exp(top[h] - fresh);
            top[h] = fresh;
            total[h] *= factor;
            sum[2u * h] *= factor;
            sum[2u * h + 1u] *= factor;
            [[unroll]] for (uint e = 0u; e < DEEP_EACH; e++) {
                const float weight = first + e * AT_ONCE + row < end ? exp(score[e * SHARE + h] - fresh) : 0.0;
                score[e * SHARE + h] = weight;
                total[h] += weight;
            }
        }
        [[unroll]] for (uint e = 0u; e < DEEP_EACH; e++) {
            const vec4 low = octet_half(CELL(some_values[e], first + e * AT_ONCE + row, DIM), 0u);
            const vec4 high = octet_half(CELL(some_values[e], first + e * AT_ONCE + row, DIM), 1u);
            [[unroll]] for (uint h = 0u; h < SHARE; h++) {
                sum[2u * h] += score[e * SHARE + h] * low;
                sum[2u * h + 1u] += score[e * SHARE + h] * high;
            }
        }
        if (first + DEEP_STEP < end) {
            READ(some_values, V_CACHE / 4u)
            FIND(first + 2u * DEEP_STEP)
        }
    }
    [[unroll]] for (uint h = 0u; h < SHARE; h++) {
        if (end == position) { // the newest, not in the cache
            float score = dot(head_four(OWN_OF 8u * octet), query[2u * h]) + dot(head_four(OWN_OF 8u * octet + 4u), query[2u * h + 1u]);
            [[unroll]] for (uint step = 1u; step < OCTETS; step *= 2u) score += subgroupShuffleXor(score, step);
            score = capped(score, SOFT_CAP);
            if (row == 0u) {
                const float fresh = max(top[h], score), factor = exp(top[h] - fresh), weight = exp(score - fresh);
                top[h] = fresh;
                total[h] = total[h] * factor + weight;
                sum[2u * h] = sum[2u * h] * factor + weight * head_four(OWN_OF DIM + 8u * octet);
                sum[2u * h + 1u] = sum[2u * h + 1u] * factor + weight * head_four(OWN_OF DIM + 8u * octet + 4u);
            }
        }
        float fresh = top[h];
        [[unroll]] for (uint step = OCTETS; step < LANES; step *= 2u) fresh = max(fresh, subgroupShuffleXor(fresh, step));
        const float factor = exp(top[h] - fresh);
        total[h] *= factor;
        [[unroll]] for (uint i = 0u; i < 2u; i++) sum[2u * h + i] *= factor;
        [[unroll]] for (uint step = OCTETS; step < LANES; step *= 2u) {
            total[h] += subgroupShuffleXor(total[h], step);
            [[unroll]] for (uint i = 0u; i < 2u; i++) sum[2u * h + i] += subgroupShuffleXor(sum[2u * h + i], step);
        }
        if (lane == 0u) states[warp * SHARE + h] = vec2(fresh, total[h]);
    }
    [[unroll]] for (uint from = 0u; from < SHARE; from += TOGETHER) {
        const uint mine = min(lane / OCTETS, TOGETHER - 1u);
        [[unroll]] for (uint h = 0u; h < TOGETHER; h++) {
            if (lane / OCTETS != h) continue;
            [[unroll]] for (uint i = 0u; i < 8u; i++) {
                partial[(warp * TOGETHER + mine) * STRIDE_H + 9u * octet + i] = sum[2u * (from + h) + i / 4u][i % 4u];
            }
        }
        barrier();
        if (WITH_OTHERS || tid < CEIL(TOGETHER * DIM, LANES) * LANES) {
            const uint h = min(tid / DIM, TOGETHER - 1u), d = tid % DIM, head = first_head + from + h;
            float highest = -1e30, all = 0.0, v = 0.0;
            [[unroll]] for (uint w = 0u; w < WARPS; w++) highest = max(highest, states[w * SHARE + from + h].x);
            for (uint w = 0u; w < WARPS; w++) {
                const vec2 state = states[w * SHARE + from + h];
                const float share = exp(state.x - highest);
                all += share * state.y;
                v += share * partial[(w * TOGETHER + h) * STRIDE_H + d + d / 8u];
            }
            const bool real = tid < TOGETHER * DIM;
            give_four(real, v / all, region + ACT_O + part * (QUERY / 4u) + head * (DIM / 4u) + d / 4u);
            const float size = highest + log(all);
            if (real && d == 0u) put(region + ACT_S + part * HEADS + head, uvec2(floatBitsToUint(size), 0u));
        }
        barrier();
    }
}

const uint OWN_MERGED = LARGER(QUERY / 4u / GROUPS, 1u), ACROSS = LARGER(LANES / OWN_MERGED, 1u);
const uint MERGES = CEIL(DEEP_PARTS, ACROSS); // of a lane, at most half of MOST_READ

// Merges the parts of this workgroup's share of attended values.
void merge_parts(uint region) {
    if (warp != 0u) return;
    const uint word = wg * OWN_MERGED + lane % OWN_MERGED, head = word / (DIM / 4u), part = lane / OWN_MERGED * MERGES;
    POLL(2u * MERGES, region + (k < MERGES ? ACT_O + min(part + k, n_used - 1u) * (QUERY / 4u) + word
                                           : ACT_S + min(part + k - MERGES, n_used - 1u) * HEADS + head))
    Merge all = Merge(vec4(0.0), -1e30, 0.0);
    [[unroll]] for (uint k = 0u; k < MERGES; k++) {
        if (part + k < n_used) merge(all, halves_of(seen[k]), uintBitsToFloat(data_of(seen[MERGES + k]).x), 1.0);
    }
    [[unroll]] for (uint step = OWN_MERGED; step < LANES; step *= 2u) {
        merge(all, subgroupShuffleXor(all.sum, step), subgroupShuffleXor(all.top, step), subgroupShuffleXor(all.total, step));
    }
    const vec4 v = all.sum / all.total;
    if (lane < OWN_MERGED) put(region + ACT_M + word, uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw)));
}

// Writes the words of a team's part without positions.
void skip_together(uint region, uint team, uint part) {
    if (tid < SHARE * (DIM / 4u)) put(region + ACT_O + part * (QUERY / 4u) + team * SHARE * (DIM / 4u) + tid, uvec2(0u));
    if (tid < SHARE) put(region + ACT_S + part * HEADS + team * SHARE + tid, uvec2(0u));
}

#ifndef SEVERAL
void attend_deep(uint region) {
    const uint team = wg % TEAMS, part = wg / TEAMS;
    if (GROUPS < TEAMS) {
        for (uint t = wg; t < TEAMS; t += GROUPS) attend_together(region, t, 0u);
    } else if (part < n_used) {
        attend_together(region, team, part);
    } else {
        skip_together(region, team, part);
    }
    ask_again();
    if (DEEP_PARTS > 1u) merge_parts(region);
}

#endif

// Writes what only attention to many positions writes, often enough that no word keeps the epoch of a token long ago.
void refresh(uint region) {
    if (DEEP_PARTS > 1u && (epoch & 255u) == 0u) {
        if (wg / TEAMS >= PARTS) skip_together(region, wg % TEAMS, wg / TEAMS);
        if (tid < OWN_MERGED) put(region + ACT_M + wg * OWN_MERGED + tid, uvec2(0u));
    }
}

#ifdef SEVERAL
#include "persistent_tokens.glsl"
#define TAKE_X(CHUNKS, BLOCKS)
#define TAKE_ATTENDED take_all_attended
#else
#define TAKE_X(CHUNKS, BLOCKS) take_narrow(warp % CHUNKS, CHUNKS, BLOCKS);
#define TAKE_ATTENDED take_attended

// --- results of products

#define IS_OWN(ROW) ((ROW) < OF_X && wg * OF_X + (ROW) < WIDTH)

void give_heads(uint region, float factor) {
    [[unroll]] for (uint first = 0u; first < ROWS_Q; first += THREADS) {
        const uint row = first + tid;
        bool real = row < ROWS_Q && wg * OF_Q + row < QUERY;
        if (row >= OF_Q) real = row < ROWS_Q && wg * OF_K + (row - OF_Q) % OF_K < KEY;
        float v = real ? row_sum(row, CHUNKS_X, STRIDE_Q) * factor : 0.0;
        uint to = wg * OF_Q + row;
        if (row >= OF_Q) to = QUERY + wg * OF_K + row - OF_Q;
        if (row >= OF_Q + OF_K) to = QUERY + KEY + wg * OF_K + row - OF_Q - OF_K;
        if (BIASES && real) v += norm_number(norms_at + BIASES_AT + here * (QUERY + 2u * KEY) + to);
        give_four(real, v, region + ACT_Q + to / 4u);
    }
}

const uint OWN = CEIL(OF_X, THREADS);
float residual[OWN]; // the rows of x of this workgroup, in float32

void give_residual(uint at, uint chunks) {
    [[unroll]] for (uint k = 0u; k < OWN; k++) {
        const uint row = k * THREADS + tid;
        if (POST_NORMS) residual[k] = 0.0; // readers add
        if (IS_OWN(row)) residual[k] += row_sum(row, chunks, STRIDE_X);
        give_four(IS_OWN(row), SHRINK * residual[k], at + (wg * OF_X + row) / 4u);
    }
}

// GELU by the tanh is x times a sigmoid, too
#define SLOPE(V) (GELU ? 1.5957691216 * (V + 0.044715 * V * V * V) : V)

void give_gated(uint region, float factor) {
    [[unroll]] for (uint first = 0u; first < OF_G / 4u; first += THREADS) {
        const uint four = first + tid;
        const bool real = four < OF_G / 4u && wg * OF_G + 4u * four < FFN;
        vec4 v = vec4(0.0);
        [[unroll]] for (uint c = 0u; c < 4u; c++) {
            if (!real) continue;
            const float gate = row_sum(4u * four + c, CHUNKS_X, STRIDE_G) * factor;
            v[c] = gate / (1.0 + exp(-SLOPE(gate))) * row_sum(OF_G + 4u * four + c, CHUNKS_X, STRIDE_G) * factor;
        }
#ifdef WITH_EXPERTS
        if (real) v *= shares[(wg * OF_G + 4u * four) / OF_EXPERT];
#endif
        const float size = scale_of(v);
        int sum;
        const uint q = quantize(v, size, sum), other = subgroupShuffleXor(q, 1), e = wg * (OF_G / 4u) + four;
        if (!real) continue;
        if ((four & 1u) == 0u) put(region + ACT_F + e / 2u, uvec2(q, other));
        if ((four & 3u) == 0u) put(region + ACT_F + FFN / 8u + e / 4u, uvec2(floatBitsToUint(size), uint(sum)));
    }
}

#endif

// --- the token

// All workgroups tell each other that they run.
void probe_residency() {
    if (tid == 0u) put(ACT_PROBE + wg, uvec2(1u));
    before_polls();
    for (uint i = tid; i < GROUPS; i += THREADS) {
        POLL(1u, ACT_PROBE + i)
    }
}

#ifndef SEVERAL
// True if this workgroup computes a part of a head of its own.
bool has_part() { return !deep && GROUPS >= HEADS && wg / HEADS < min(n_used, PARTS); }

// Computes this workgroup's part of attention, whose keys are requested before the products of queries.
void attend_own(uint region) {
    const uint head = wg % HEADS, part = wg / HEADS;
    if (deep) {
        attend_deep(region);
    } else if (GROUPS < HEADS) {
        for (uint h = wg; h < HEADS; h += GROUPS) attend(region, h, 0u, false);
    } else if (has_part()) {
        attend(region, head, part, true);
    } else if (part < PARTS) {
        skip_part(region, head, part);
    }
    if (!deep) refresh(region);
}

uvec2 best_of_lanes(uvec2 mine) {
    const uint top = subgroupMax(mine.x);
    return uvec2(top, subgroupMin(mine.x == top ? mine.y : NOTHING.y));
}

// Stores the best logit of this workgroup as shaders/best.comp does that of its part.
void give_best(uvec2 mine) {
    mine = best_of_lanes(mine);
    if (subgroupElect()) bests[warp] = mine;
    barrier();
    if (tid != 0u) return;
    for (uint w = 1u; w < WARPS; w++) {
        if (before(bests[w], mine)) mine = bests[w];
    }
    best[best_at / 2u + wg] = mine;
}

// Stores this workgroup's logits, of which `factor` is the norm's, and the best of them.
void store_logits(float factor) {
    uvec2 mine = NOTHING;
    for (uint first = 0u; first < OF_L; first += THREADS) {
        const uint row = first + tid, id = wg * OF_L + row;
        if (row < OF_L && id < VOCAB) {
            const float v = capped(row_sum(row, CHUNKS_L, STRIDE_L) * factor, LOGIT_CAP);
            const uvec2 found = uvec2(key_of(floatBitsToUint(v)), id);
            y[y_at + id] = v;
            if (before(found, mine)) mine = found;
        }
    }
    give_best(mine);
}

// Divides the positions up to NEWEST, from the oldest one on, into parts: of many only those in the cache.
#define DIVIDE_POSITIONS(NEWEST) \
        deep = SHARE > 1u && NEWEST >= DEEP; \
        if (deep) { \
            per_part = AT_ONCE * CEIL(NEWEST, DEEP_PARTS * AT_ONCE); \
            n_used = CEIL(NEWEST, per_part); \
        } else { \
            const uint n_parts = clamp((NEWEST + 1u) / (2u * POSITIONS), 1u, PARTS); \
            per_part = POSITIONS * CEIL(NEWEST + 1u, n_parts * POSITIONS); \
            n_used = CEIL(NEWEST + 1u, per_part); \
            if (GROUPS >= HEADS && wg / HEADS < n_used) find_first_cells(); \
        }

// Finds the positions that a layer attends to, and their places; `near`: the last WINDOW ones.
void find_positions(bool near) {
    oldest = near && position >= WINDOW ? position - WINDOW + 1u : 0u;
    from_table = near ? window_table : table;
    from_v_cache = near ? window_v_cache : v_cache;
    from_turns = near ? n_rot / 2u : 0u;
    const uint newest = position - oldest;
    DIVIDE_POSITIONS(newest)
}
#endif

void find_cells(uint layer) {
    cells = addresses[places_at / 2u + TABLE_ROW * layer + 7u];
#ifndef SEVERAL
    if (WINDOW == 0u) return;
    find_positions((cells.x & 1u) != 0u);
    cells.x &= ~1u;
#endif
}

void compute_layer(uint layer) {
    const uint region = layer * ACT_LAYER;
    const bool last = layer + 1u == LAYERS;
    find_cells(layer);
    move_on();
    load_places(min(layer + 1u, LAYERS - 1u));
    head_norms = norms_at + (2u * LAYERS + 1u) * WIDTH + 2u * layer * DIM;
#ifndef SEVERAL
    if (has_part()) request(wg % HEADS / (HEADS / KV_HEADS), wg / HEADS * per_part, true);
#endif

    take_normed(layer, region, 2u * layer);
    barrier();
    TAKE_X(CHUNKS_X, BLOCKS_X)
    multiply_q(last);
    multiply_k(last);
    multiply_v(last);
    float factor = norm_factor();
    barrier();
    give_heads(region, factor);

#ifdef SEVERAL
    attend_all(region);
#else
    attend_own(region);
#endif

    TAKE_ATTENDED(region);
    barrier();
    TAKE_X(CHUNKS_O, BLOCKS_O)
    multiply_o(last);
    barrier();
    give_residual(region + ACT_R, CHUNKS_O);

    take_normed(layer, region + ACT_R, 2u * layer + 1u);
    barrier();
#ifdef WITH_EXPERTS
    factor = norm_factor();
    give_routed(region, factor);
    take_routed(region);
    TAKE_X(CHUNKS_X, BLOCKS_X)
    multiply_gate_and_up();
#else
    TAKE_X(CHUNKS_X, BLOCKS_X)
    multiply_gate(last);
    multiply_up(last);
    factor = norm_factor();
#endif
    barrier();
    give_gated(region, factor);

    take_gated(region);
    barrier();
#ifndef WITH_EXPERTS
    TAKE_X(CHUNKS_D, BLOCKS_D)
#endif
    multiply_down(last);
    barrier();
    give_residual(region + ACT_LAYER, CHUNKS_D);
}

#ifndef SEVERAL
void compute_logits() {
    take_normed(LAYERS, LAYERS * ACT_LAYER, 2u * LAYERS);
    barrier();
    TAKE_X(CHUNKS_X, BLOCKS_X)
    multiply_output();
    const float factor = norm_factor();
    barrier();
    store_logits(factor);
}
#endif

void main() {
    tid = gl_LocalInvocationIndex;
    wg = gl_WorkGroupID.x;
    warp = gl_SubgroupID;
    lane = gl_SubgroupInvocationID;
    epoch = epochs[epochs_at + wg] + 1u & 0xffffu;
    if (probe != 0u) {
        probe_residency();
    } else {
#ifdef SEVERAL
        find_tokens();
#else
        position = step_words[positions];
        if (WINDOW == 0u) {
            DIVIDE_POSITIONS(position)
        }
        if (WINDOW > 0u) { // in the table behind the output's address
            window_table = addresses[places_at / 2u + TABLE_ROW * LAYERS + 1u].x;
            window_v_cache = addresses[places_at / 2u + TABLE_ROW * LAYERS + 2u].x;
        }
#endif
        load_places(0u);
        move_on();
        load_first();
#ifdef SEVERAL
        begin_residual();
#else
        [[unroll]] for (uint k = 0u; k < OWN; k++) {
            residual[k] = IS_OWN(k * THREADS + tid) ? x[x_at + wg * OF_X + k * THREADS + tid] : 0.0;
        }
#endif
        for (uint layer = 0u; layer < LAYERS; layer++) compute_layer(layer);
        compute_logits();
    }
    barrier();
    if (tid == 0u) epochs[epochs_at + wg] = epoch;
}
