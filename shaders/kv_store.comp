// Stores the keys and values of the step's tokens in their cells; an invocation stores 8 values, or has four of those to be
// quantized: eight of them encode a block, a word each.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#define CACHE_WRITE
#include "cache.glsl"
#define HADAMARD_ID 0
#include "hadamard.glsl"

layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 1) readonly buffer K { float k[]; };
layout(std430, set = 0, binding = 2) readonly buffer V { float v[]; };
layout(std430, set = 0, binding = 3) buffer Cache { uint cache[]; };
layout(push_constant) uniform Push {
    uint rows, k_at, v_at, cache_at;
    uint sequences, positions, table, table_width, block_size; // indices in the step block
    uint n_head, k_dim, v_dim;                                 // v_dim 0: no values
    uint k_row_words, v_row_words, k_scale_words, v_scale_words, v_cache;
};

float value(bool key, uint from, uint i, uint dim) {
    return i >= dim ? 0.0 : key ? k[from + i] : v[from + i];
}

#ifdef CACHE_QUANTIZED
const uint SHARE = 64u, EACH = 4u; // values of a head of a token come in so many, of which an invocation has some
shared vec4 quads[gl_WorkGroupSize.x];
HADAMARD_OF(rotated_key, quads, K_BLOCK, K_FACTOR)
HADAMARD_OF(rotated_value, quads, V_BLOCK, V_FACTOR)
vec4 block_quad(bool is_key, uint i) { return quads[i]; }
#include "cache_encode.glsl"

// Stores the word of block `block` that belongs to this invocation.
void store(bool really, bool key, uint to, uint block, vec4 x) {
    const uint me = gl_LocalInvocationID.x, first = me / 8u * 8u, w = me % 8u;
    quads[me] = x;
    barrier();
    if (HADAMARD_KEYS || HADAMARD_VALUES) {
        if (key && HADAMARD_KEYS) x = rotated_key(0u, me);
        if (!key && HADAMARD_VALUES) x = rotated_value(0u, me);
        barrier();
        quads[me] = x;
        barrier();
    }
    if (!really) return;
    const Scaling s = scaling_of(key, first);
    const uint codes = to + (key ? k_scale_words : v_scale_words) + block * CACHE_BITS;
    if (w < CACHE_BITS) cache[codes + w] = code_word(key, first, s, w);
    if (w < CACHE_SCALES) cache[to + block * CACHE_SCALES + w] = floatBitsToUint(kept(s)[w]);
}
#else
const uint SHARE = 8u, EACH = 8u;

void store(bool really, bool key, uint to, uint unit, float values[EACH]) {
    if (!really) return;
#if defined(CACHE_F32)
    for (uint j = 0; j < 8u; j++) cache[to + unit * 8u + j] = floatBitsToUint(values[j]);
#elif defined(CACHE_F16)
    for (uint j = 0; j < 4u; j++) cache[to + unit * 4u + j] = packHalf2x16(vec2(values[2u * j], values[2u * j + 1u]));
#else
    for (uint j = 0; j < 4u; j++) cache[to + unit * 4u + j] = pack_bf16(values[2u * j], values[2u * j + 1u]);
#endif
}
#endif

void main() {
    const uint k_units = (k_dim + SHARE - 1u) / SHARE * (SHARE / EACH), v_units = (v_dim + SHARE - 1u) / SHARE * (SHARE / EACH);
    const uint i = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    const uint token = i / (n_head * (k_units + v_units)), rest = i % (n_head * (k_units + v_units));
    const uint head = rest / (k_units + v_units);
    uint unit = rest % (k_units + v_units);
    const bool key = unit < k_units;
    if (!key) unit -= k_units;

    const uint dim = key ? k_dim : v_dim, from = (key ? k_at : v_at) + (token * n_head + head) * dim;
    const bool really = token < row_count(rows) && unit * EACH < dim;
    uint to = 0u;
    if (really) {
        const uint position = step_words[positions + token];
        const uint block = step_words[table + step_words[sequences + token] * table_width + position / block_size];
        const uint row = (block * n_head + head) * block_size + position % block_size;
        to = cache_at + (key ? row * k_row_words : v_cache + row * v_row_words);
    }
#ifdef CACHE_QUANTIZED
    vec4 values = vec4(0.0);
    for (uint j = 0; really && j < EACH; j++) values[j] = value(key, from, unit * EACH + j, dim);
    store(really, key, to, unit / 8u, values);
#else
    float values[EACH];
    for (uint j = 0; j < EACH; j++) values[j] = really ? value(key, from, unit * EACH + j, dim) : 0.0;
    store(really, key, to, unit, values);
#endif
}
