// What the attention kernels share: where the row of a position lies, and its values.

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
