// Stores the keys and values of the step's tokens in their cells; an invocation stores 8 values, or 32 quantized ones.
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

float values[32];

#ifdef CACHE_QUANTIZED
float block_value(bool is_key, uint i) { return values[i]; }
#include "cache_encode.glsl"
#endif

float value(bool key, uint from, uint i, uint dim) {
    return i >= dim ? 0.0 : key ? k[from + i] : v[from + i];
}

#ifdef CACHE_QUANTIZED
// Rotates the 32 values of a unit; of 64 they are half, which begins with a sum or difference with the other half.
void rotate(bool key, uint from, uint unit, uint dim) {
    for (uint j = 0; !key && j < 32u; j++) {
        const float other = value(key, from, (unit ^ 1u) * 32u + j, dim);
        values[j] = (unit & 1u) == 0u ? values[j] + other : other - values[j];
    }
    for (uint distance = 1u; distance < 32u; distance *= 2u) {
        for (uint pair = 0; pair < 16u; pair++) {
            const uint i = 2u * pair - (pair & (distance - 1u));
            const float a = values[i], b = values[i + distance];
            values[i] = a + b;
            values[i + distance] = a - b;
        }
    }
    for (uint j = 0; j < 32u; j++) values[j] *= key ? K_FACTOR : V_FACTOR;
}
#endif

void main() {
#ifdef CACHE_QUANTIZED
    const uint UNIT = 32u;
#else
    const uint UNIT = 8u;
#endif
    uint k_units = (k_dim + UNIT - 1u) / UNIT, v_units = (v_dim + UNIT - 1u) / UNIT;
    uint i = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint token = i / (n_head * (k_units + v_units)), rest = i % (n_head * (k_units + v_units));
    if (token >= row_count(rows)) return;
    uint head = rest / (k_units + v_units), unit = rest % (k_units + v_units);
    bool key = unit < k_units;
    if (!key) unit -= k_units;

    uint dim = key ? k_dim : v_dim, row_words = key ? k_row_words : v_row_words;
    uint from = (key ? k_at : v_at) + (token * n_head + head) * dim;
    for (uint j = 0; j < UNIT; j++) values[j] = value(key, from, unit * UNIT + j, dim);

    uint position = step_words[positions + token];
    uint block = step_words[table + step_words[sequences + token] * table_width + position / block_size];
    uint row = (block * n_head + head) * block_size + position % block_size;
    uint to = cache_at + (key ? 0u : v_cache) + row * row_words;
#if defined(CACHE_F32)
    for (uint j = 0; j < 8u; j++) cache[to + unit * 8u + j] = floatBitsToUint(values[j]);
#elif defined(CACHE_F16)
    for (uint j = 0; j < 4u; j++) cache[to + unit * 4u + j] = packHalf2x16(vec2(values[2u * j], values[2u * j + 1u]));
#elif defined(CACHE_BF16)
    for (uint j = 0; j < 4u; j++) cache[to + unit * 4u + j] = pack_bf16(values[2u * j], values[2u * j + 1u]);
#else
    if (key ? HADAMARD_KEYS : HADAMARD_VALUES) rotate(key, from, unit, dim);
    uint codes = to + (key ? k_scale_words : v_scale_words) + unit * CACHE_BITS;
    Scaling s = scaling_of(key, 0u);
    for (uint j = 0; j < CACHE_BITS; j++) cache[codes + j] = code_word(key, 0u, s, j);
    for (uint j = 0; j < CACHE_SCALES; j++) cache[to + unit * CACHE_SCALES + j] = floatBitsToUint(kept(s)[j]);
#endif
}
