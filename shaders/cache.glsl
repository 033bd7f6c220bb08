// Rows of the key and value cache; plugins/pumice_vulkan/kv_cache.py has the macros of each type.
//
// A row of floats (CACHE_F32, CACHE_F16, CACHE_BF16) has the values of one head in a cell, padded with zeros to 8. A row of
// codes (CACHE_BITS: 4, 5 or 8) has those of all heads, whose blocks of 32 may span heads: first the scale of each block
// in float32, with CACHE_MINIMUM also its minimum, padded to 4 words (scale_words); then the blocks' codes:
//   8 bits: eight words of int8
//   4 bits: four words, lowest nibble first; CACHE_OFFSET is subtracted
//   5 bits: the low four bits likewise, then a word with the fifth bits

#ifdef CACHE_BITS
#define CACHE_QUANTIZED
#define CACHE_SCALES (1u + CACHE_MINIMUM)  // words per block of scale and minimum

vec4 from_codes(vec4 codes, float scale, float minimum) {
#if CACHE_MINIMUM
    return codes * scale + minimum;
#elif CACHE_BITS == 8
    return scale * codes;
#else
    return scale * (codes - float(CACHE_OFFSET));
#endif
}

// Packs four codes in the low bits of words.
#if CACHE_BITS == 8
vec4 code_quad(uint word, uint none) {
    int w = int(word);
    return vec4(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8), bitfieldExtract(w, 16, 8), w >> 24);
}
#elif CACHE_BITS == 5
vec4 code_quad(uint w, uint bits) {
    return vec4(w & 15u | bits << 4 & 16u, w >> 4 & 15u | bits << 3 & 16u, w >> 8 & 15u | bits << 2 & 16u,
                w >> 12 & 15u | bits << 1 & 16u);
}
#else
vec4 code_quad(uint w, uint none) { return vec4(w & 15u, w >> 4 & 15u, w >> 8 & 15u, w >> 12 & 15u); }
#endif
#endif

#ifdef CACHE_BF16
vec4 from_bf16(uvec2 w) { return uintBitsToFloat(uvec4(w.x << 16, w.x & 0xFFFF0000u, w.y << 16, w.y & 0xFFFF0000u)); }
uint rounded_to_bf16(float x) {
    uint bits = floatBitsToUint(x);
    return isnan(x) ? bits | 0x400000u : bits + 0x7FFFu + (bits >> 16 & 1u);
}
uint pack_bf16(float low, float high) { return rounded_to_bf16(low) >> 16 | rounded_to_bf16(high) & 0xFFFF0000u; }
#endif

#ifndef CACHE_WRITE
#ifndef CACHE_ACCESS
#define CACHE_ACCESS readonly
#endif
layout(std430, set = 0, binding = CACHE_BINDING) CACHE_ACCESS buffer Cache1 { uint cache1[]; };
layout(std430, set = 0, binding = CACHE_BINDING) CACHE_ACCESS buffer Cache2 { uvec2 cache2[]; };
layout(std430, set = 0, binding = CACHE_BINDING) CACHE_ACCESS buffer Cache4 { uvec4 cache4[]; };

#ifdef CACHE_QUANTIZED
float scale_at(uint row, uint block) { return uintBitsToFloat(cache1[row + CACHE_SCALES * block]); }
float minimum_at(uint row, uint block) {
    return CACHE_MINIMUM != 0 ? uintBitsToFloat(cache1[row + CACHE_SCALES * block + 1u]) : 0.0;
}
#endif

// Values 4 * quad to 4 * quad + 3 of the row at a word.
vec4 cache_quad(uint row, uint quad, uint scale_words) {
#if defined(CACHE_F32)
    return uintBitsToFloat(cache4[row / 4u + quad]);
#elif defined(CACHE_F16)
    uvec2 w = cache2[row / 2u + quad];
    return vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
#elif defined(CACHE_BF16)
    return from_bf16(cache2[row / 2u + quad]);
#else
    float scale = scale_at(row, quad / 8u), minimum = minimum_at(row, quad / 8u);
#if CACHE_BITS == 8
    return from_codes(code_quad(cache1[row + scale_words + quad], 0u), scale, minimum);
#elif CACHE_BITS == 5
    uint block = row + scale_words + quad / 8u * 5u, shift = quad & 7u;
    return from_codes(code_quad(cache1[block + shift / 2u] >> (16u * (quad & 1u)), cache1[block + 4u] >> (4u * shift)),
                      scale, minimum);
#else
    return from_codes(code_quad(cache1[row + scale_words + quad / 2u] >> (16u * (quad & 1u)), 0u), scale, minimum);
#endif
#endif
}

// Eight values as loaded; conversion follows later, so loads do not stall.
struct Octet {
#if defined(CACHE_F32)
    vec4 a, b;
#elif defined(CACHE_F16) || defined(CACHE_BF16)
    uvec4 words;
#else
    float scale;
#if CACHE_MINIMUM
    float minimum;
#endif
    uvec2 codes; // 8-bit codes; else low bits, and the fifth bits in their positions
#endif
};

Octet load_octet(uint row, uint octet, uint scale_words) {
    Octet loaded;
#if defined(CACHE_F32)
    loaded.a = uintBitsToFloat(cache4[row / 4u + 2u * octet]);
    loaded.b = uintBitsToFloat(cache4[row / 4u + 2u * octet + 1u]);
#elif defined(CACHE_F16) || defined(CACHE_BF16)
    loaded.words = cache4[row / 4u + octet];
#else
    loaded.scale = scale_at(row, octet / 4u);
#if CACHE_MINIMUM
    loaded.minimum = minimum_at(row, octet / 4u);
#endif
#if CACHE_BITS == 8
    loaded.codes = cache2[(row + scale_words) / 2u + octet];
#elif CACHE_BITS == 5
    uint block = row + scale_words + octet / 4u * 5u;
    loaded.codes = uvec2(cache1[block + (octet & 3u)], cache1[block + 4u] >> (8u * (octet & 3u)));
#else
    loaded.codes = uvec2(cache1[row + scale_words + octet], 0u);
#endif
#endif
    return loaded;
}

Octet no_octet() {
    Octet none;
#if defined(CACHE_F32)
    none.a = none.b = vec4(0.0);
#elif defined(CACHE_F16) || defined(CACHE_BF16)
    none.words = uvec4(0u);
#else
    none.scale = 0.0;
#if CACHE_MINIMUM
    none.minimum = 0.0;
#endif
    none.codes = uvec2(0u);
#endif
    return none;
}

vec4 octet_half(Octet octet, uint i) {
#if defined(CACHE_F32)
    return i == 0u ? octet.a : octet.b;
#elif defined(CACHE_F16)
    uvec2 w = i == 0u ? octet.words.xy : octet.words.zw;
    return vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
#elif defined(CACHE_BF16)
    return from_bf16(i == 0u ? octet.words.xy : octet.words.zw);
#else
#if CACHE_MINIMUM
    float minimum = octet.minimum;
#else
    const float minimum = 0.0;
#endif
#if CACHE_BITS == 8
    return from_codes(code_quad(octet.codes[i], 0u), octet.scale, minimum);
#else
    return from_codes(code_quad(octet.codes.x >> (16u * i), octet.codes.y >> (4u * i)), octet.scale, minimum);
#endif
#endif
}
#endif
