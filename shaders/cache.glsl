// Rows of the key and value cache: CACHE_F32, CACHE_F16, CACHE_Q8_0 or CACHE_Q4_0.
// A row of floats has the values of one head in a cell, padded with zeros to 8. A quantized row has those of all heads,
// whose blocks of 32 may go from head to head: first float32 scales, padded to 4 words (scale_words), then codes.

#if defined(CACHE_Q8_0) || defined(CACHE_Q4_0)
#define CACHE_QUANTIZED
#endif

#ifndef CACHE_WRITE
#ifndef CACHE_ACCESS
#define CACHE_ACCESS readonly
#endif
layout(std430, set = 0, binding = CACHE_BINDING) CACHE_ACCESS buffer Cache1 { uint cache1[]; };
layout(std430, set = 0, binding = CACHE_BINDING) CACHE_ACCESS buffer Cache2 { uvec2 cache2[]; };
layout(std430, set = 0, binding = CACHE_BINDING) CACHE_ACCESS buffer Cache4 { uvec4 cache4[]; };

// Values 4 * quad and the next three of the row that begins at a word.
vec4 cache_quad(uint row, uint quad, uint scale_words) {
#if defined(CACHE_F32)
    return uintBitsToFloat(cache4[row / 4u + quad]);
#elif defined(CACHE_F16)
    uvec2 w = cache2[row / 2u + quad];
    return vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
#else
    float scale = uintBitsToFloat(cache1[row + quad / 8u]);
#if defined(CACHE_Q8_0)
    int w = int(cache1[row + scale_words + quad]);
    return scale * vec4(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8), bitfieldExtract(w, 16, 8), w >> 24);
#else
    uint w = cache1[row + scale_words + quad / 2u] >> (16u * (quad & 1u));
    return scale * (vec4(w & 15u, w >> 4 & 15u, w >> 8 & 15u, w >> 12 & 15u) - 8.0);
#endif
#endif
}

// Eight values as loaded: nothing here waits for memory.
struct Octet {
#if defined(CACHE_F32)
    vec4 a, b;
#elif defined(CACHE_F16)
    uvec4 words;
#else
    float scale;
    uvec2 codes; // of CACHE_Q4_0 only the first
#endif
};

Octet load_octet(uint row, uint octet, uint scale_words) {
#if defined(CACHE_F32)
    return Octet(uintBitsToFloat(cache4[row / 4u + 2u * octet]), uintBitsToFloat(cache4[row / 4u + 2u * octet + 1u]));
#elif defined(CACHE_F16)
    return Octet(cache4[row / 4u + octet]);
#else
    float scale = uintBitsToFloat(cache1[row + octet / 4u]);
#if defined(CACHE_Q8_0)
    return Octet(scale, cache2[(row + scale_words) / 2u + octet]);
#else
    return Octet(scale, uvec2(cache1[row + scale_words + octet], 0u));
#endif
#endif
}

Octet no_octet() {
#if defined(CACHE_F32)
    return Octet(vec4(0.0), vec4(0.0));
#elif defined(CACHE_F16)
    return Octet(uvec4(0u));
#else
    return Octet(0.0, uvec2(0u));
#endif
}

vec4 octet_half(Octet octet, uint i) {
#if defined(CACHE_F32)
    return i == 0u ? octet.a : octet.b;
#elif defined(CACHE_F16)
    uvec2 w = i == 0u ? octet.words.xy : octet.words.zw;
    return vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
#elif defined(CACHE_Q8_0)
    int w = int(octet.codes[i]);
    return octet.scale * vec4(bitfieldExtract(w, 0, 8), bitfieldExtract(w, 8, 8), bitfieldExtract(w, 16, 8), w >> 24);
#else
    uint w = octet.codes.x >> (16u * i);
    return octet.scale * (vec4(w & 15u, w >> 4 & 15u, w >> 8 & 15u, w >> 12 & 15u) - 8.0);
#endif
}
#endif
