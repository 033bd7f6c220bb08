// Table rows of the n-grams that end with each token, by a 64-bit hash in two words: low, high.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 1) readonly buffer Tokens { float tokens[]; };
layout(std430, set = 0, binding = 2) readonly buffer Numbers { uint numbers[]; }; // multipliers, sizes, offsets
layout(std430, set = 0, binding = 3) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push { uint rows, tokens_at, numbers_at, y_at; uint n_tokens, n_heads; };

uvec2 multiplied(uint token, uint multiplier_at) {
    uvec2 product;
    umulExtended(token, numbers[multiplier_at], product.y, product.x);
    product.y += token * numbers[multiplier_at + 1u];
    return product;
}

// Long division bit by bit: the remainder stays below the size, which is at most 2^31.
uint remainder(uvec2 value, uint size) {
    uint left = value.y % size;
    for (int bit = 31; bit >= 0; bit--) {
        left = (left << 1) | ((value.x >> bit) & 1u);
        left = left >= size ? left - size : left;
    }
    return left;
}

void main() {
    const uint i = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= row_count(rows) * n_heads) return;
    const uint row = i / n_heads, head = i % n_heads, sizes_at = numbers_at + 2u * n_tokens;
    const uint n = 2u + head / (n_heads / (n_tokens - 1u)); // tokens per n-gram
    uvec2 ngram = uvec2(0u);
    for (uint j = 0u; j < n; j++) {
        ngram ^= multiplied(uint(tokens[tokens_at + row * n_tokens + j]), numbers_at + 2u * j);
    }
    y[y_at + i] = remainder(ngram, numbers[sizes_at + head]) + numbers[sizes_at + n_heads + head];
}
