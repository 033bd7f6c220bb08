// What the attention kernels share: their arguments, and where the row of a position lies.
#define CACHE_BINDING 2
#include "cache.glsl"

layout(std430, set = 0, binding = 1) readonly buffer Q { float q[]; };
layout(std430, set = 0, binding = 3) readonly buffer Sinks { float sinks[]; };
layout(std430, set = 0, binding = 4) buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, q_at, cache_at, sinks_at, y_at;
    uint sequences, positions, seq_starts, table, table_width, block_size; // words of the step block
    uint n_head_kv, heads_per_key;
    uint k_row_words, v_row_words, k_scale_words, v_scale_words, v_cache;
    uint k_dim, v_dim, v_head_dim, window; // v_head_dim: from head to head in a quantized row
    float scale, softcap;
    uint n_parts;
};

#define LOWEST uintBitsToFloat(0xff800000u)

uint cache_row(uint sequence, uint position, uint head_kv) {
    uint block = step_words[table + sequence * table_width + position / block_size];
#ifdef CACHE_QUANTIZED
    return block * block_size + position % block_size;
#else
    return (block * n_head_kv + head_kv) * block_size + position % block_size;
#endif
}

vec4 key_quad(uint row, uint head_kv, uint quad) {
#ifdef CACHE_QUANTIZED
    quad += head_kv * k_dim / 4u;
#endif
    return cache_quad(row, quad, k_scale_words);
}

// Eight values.
void key_octet(uint row, uint head_kv, uint octet, out vec4 a, out vec4 b) {
#ifdef CACHE_F16
    uvec4 w = cache4[row / 4u + octet];
    a = vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
    b = vec4(unpackHalf2x16(w.z), unpackHalf2x16(w.w));
#else
    a = key_quad(row, head_kv, 2u * octet);
    b = key_quad(row, head_kv, 2u * octet + 1u);
#endif
}

vec4 value_quad(uint row, uint head_kv, uint quad) {
#ifdef CACHE_QUANTIZED
    quad += head_kv * v_head_dim / 4u;
#endif
    return cache_quad(row, quad, v_scale_words);
}

float capped(float score) {
    float s = score * scale;
    return softcap == 0.0 ? s : softcap * (1.0 - 2.0 / (exp(2.0 * s / softcap) + 1.0));
}
