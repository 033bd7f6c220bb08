// Parts shared by the attention kernels: the row of a position, and its values.

#define LOWEST uintBitsToFloat(0xff800000u)

uint cell_row(uint block, uint position, uint head_kv) {
#ifdef CACHE_QUANTIZED
    return block * block_size + position % block_size;
#else
    return (block * n_head_kv + head_kv) * block_size + position % block_size;
#endif
}

uint cache_row(uint sequence, uint position, uint head_kv) {
    uint block = step_words[table + sequence * table_width + position / block_size];
    return cell_row(block, position, head_kv);
}

// The offset of a head's values in a row, in units of `unit` values.
uint head_start(uint head_kv, uint head_dim, uint width) {
#ifdef CACHE_QUANTIZED
    return head_kv * head_dim / width;
#else
    return 0u;
#endif
}

vec4 key_quad(uint row, uint head_kv, uint quad) {
    return cache_quad(row, head_start(head_kv, k_dim, 4u) + quad, k_scale_words);
}

vec4 value_quad(uint row, uint head_kv, uint quad) {
    return cache_quad(row, head_start(head_kv, v_head_dim, 4u) + quad, v_scale_words);
}

Octet load_key(uint row, uint head_kv, uint octet) {
    return load_octet(row, head_start(head_kv, k_dim, 8u) + octet, k_scale_words);
}

Octet load_value(uint row, uint head_kv, uint octet) {
    return load_octet(row, head_start(head_kv, v_head_dim, 8u) + octet, v_scale_words);
}

float capped(float score) {
    float s = score * scale;
    return softcap == 0.0 ? s : softcap * (1.0 - 2.0 / (exp(2.0 * s / softcap) + 1.0));
}
