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
#endif
