// Rearranges blocks of the file to planes (formats.glsl), or numbers of 16 bits to the order of lanes (weights.glsl). An
// invocation processes two blocks of 32 columns, so it writes whole words. Block layouts are those of ggml (ggml-common.h).
#version 450
#include "formats.glsl"
layout(local_size_x = 64) in;
layout(set = 0, binding = 0) readonly buffer Source { uint source[]; };
layout(set = 0, binding = 1) writeonly buffer Target { uint target[]; };
layout(push_constant) uniform Push {
    uint source_offset;  // in words
    uint target_offset;  // in words
    uint n_matrix;       // blocks in the whole matrix
    uint row_blocks;     // blocks in a row
    uint first;          // index of the source's first block: even, or a multiple of 8 for 256 columns
    uint n_source;       // blocks in the source
};

#if DENSE

void main() {
    const uint words = 16u, wide = 4u;  // of a block, and of a load
    for (uint i = 2u * gl_GlobalInvocationID.x; i < min(2u * gl_GlobalInvocationID.x + 2u, n_source); i++) {
        const uint row = (first + i) / row_blocks, block = (first + i) % row_blocks;
        const uint to = row / 8u * 8u * row_blocks * words + block / 4u * 512u + row % 8u * 16u + block % 4u * wide;
        for (uint e = 0u; e < words; e++)
            target[target_offset + to + e / wide * 128u + e % wide] = source[source_offset + i * words + e];
    }
}

#else

uint base;  // byte offset of the file's block, with FILE_BLOCKS of 32 columns in FILE_BYTES

uint byte_at(uint i) { uint at = base + i; return source[source_offset + at / 4u] >> (8u * (at & 3u)) & 255u; }
uint half_at(uint i) { return byte_at(i) | byte_at(i + 1u) << 8; }
uint nibble(uint byte_, uint high) { return high == 0u ? byte_ & 15u : byte_ >> 4; }

// The code of a column in block b of the file's block.
uint code_at(uint b, uint column) {
    uint half_ = b / 4u, j = b & 3u;  // for the types with 256 columns
#if defined(FORMAT_Q4_0) || defined(FORMAT_IQ4_NL)
    return nibble(byte_at(2u + (column & 15u)), column / 16u);
#elif defined(FORMAT_Q4_1)
    return nibble(byte_at(4u + (column & 15u)), column / 16u);
#elif defined(FORMAT_MXFP4)
    return nibble(byte_at(1u + (column & 15u)), column / 16u);
#elif defined(FORMAT_Q5_0)
    return nibble(byte_at(6u + (column & 15u)), column / 16u) | (byte_at(2u + column / 8u) >> (column & 7u) & 1u) << 4;
#elif defined(FORMAT_Q5_1)
    return nibble(byte_at(8u + (column & 15u)), column / 16u) | (byte_at(4u + column / 8u) >> (column & 7u) & 1u) << 4;
#elif defined(FORMAT_Q8_0)
    return byte_at(2u + column);
#elif defined(FORMAT_Q2_0)
    return byte_at(2u + 8u * b + column / 4u) >> (2u * (column & 3u)) & 3u;
#elif defined(FORMAT_Q2_K)
    return byte_at(16u + 32u * half_ + column) >> (2u * j) & 3u;
#elif defined(FORMAT_Q3_K)
    return (byte_at(32u + 32u * half_ + column) >> (2u * j) & 3u) | (byte_at(column) >> b & 1u) << 2;
#elif defined(FORMAT_Q4_K)
    return nibble(byte_at(16u + 32u * (b / 2u) + column), b & 1u);
#elif defined(FORMAT_Q5_K)
    return nibble(byte_at(48u + 32u * (b / 2u) + column), b & 1u) | (byte_at(16u + column) >> b & 1u) << 4;
#elif defined(FORMAT_Q6_K)
    return nibble(byte_at(64u * half_ + 32u * (j & 1u) + column), j / 2u)
         | (byte_at(128u + 32u * half_ + column) >> (2u * j) & 3u) << 4;
#elif defined(FORMAT_IQ4_XS)
    return nibble(byte_at(8u + 16u * b + (column & 15u)), column / 16u);
#endif
}

#if SCALES == SUPER
// Two bytes of scales.
uint scale_at(uint b) {
#if defined(FORMAT_Q2_K)
    return half_at(2u * b);
#elif defined(FORMAT_Q3_K)
    uint word = 0u;
    for (uint h = 0u; h < 2u; h++) {
        uint i = 2u * b + h;
        uint value = nibble(byte_at(96u + (i & 7u)), i / 8u) | (byte_at(104u + (i & 3u)) >> (2u * (i / 4u)) & 3u) << 4;
        word |= ((value - 32u) & 255u) << (8u * h);
    }
    return word;
#elif defined(FORMAT_Q4_K) || defined(FORMAT_Q5_K)
    if (b < 4u) return (byte_at(4u + b) & 63u) | (byte_at(8u + b) & 63u) << 8;
    uint scale = (byte_at(8u + b) & 15u) | byte_at(b) >> 6 << 4;
    return scale | (byte_at(8u + b) >> 4 | byte_at(4u + b) >> 6 << 4) << 8;
#elif defined(FORMAT_Q6_K)
    return half_at(192u + 2u * b);
#else
    uint value = nibble(byte_at(4u + b / 2u), b & 1u) | (half_at(2u) >> (2u * b) & 3u) << 4;
    return ((value - 32u) & 255u) * 0x101u;
#endif
}

uint super_at() {
#if defined(FORMAT_Q2_K)
    return half_at(80u) | half_at(82u) << 16;
#elif defined(FORMAT_Q3_K)
    return half_at(108u);
#elif defined(FORMAT_Q6_K)
    return half_at(208u);
#elif defined(FORMAT_IQ4_XS)
    return half_at(0u);
#else
    return half_at(0u) | half_at(2u) << 16;
#endif
}
#elif SCALES == PAIRS
uint scale_at(uint b) { return half_at(0u) | half_at(2u) << 16; }
#elif SCALES == EXPONENTS
// 2^(e - 127) as bfloat16, halved because the values are doubled.
uint scale_at(uint b) { uint e = byte_at(0u); return e > 1u ? e - 1u << 7 : 0x20u << e; }
#else
uint scale_at(uint b) { return half_at(0u); }
#endif

void put_codes(Planes at, uint number, uint b) {
    uint words[8];
    for (uint i = 0u; i < 8u; i++) {
        words[i] = 0u;
        for (uint k = 0u; k < 4u; k++) words[i] |= code_at(b, 4u * i + k) << (8u * k);
    }
#if LOW_BITS == 8
    for (uint i = 0u; i < 8u; i++) target[at.low + 8u * number + i] = words[i];
#elif LOW_BITS == 4
    for (uint i = 0u; i < 4u; i++)
        target[at.low + 4u * number + i] = words[i] & 0x0F0F0F0Fu | (words[i + 4u] & 0x0F0F0F0Fu) << 4;
#else
    for (uint j = 0u; j < 2u; j++) {
        uint word = 0u;
        for (uint m = 0u; m < 4u; m++) word |= (words[4u * j + m] & 0x03030303u) << (2u * m);
        target[at.low + 2u * number + j] = word;
    }
#endif
#if HIGH_BITS == 2
    for (uint j = 0u; j < 2u; j++) {
        uint word = 0u;
        for (uint m = 0u; m < 4u; m++) word |= (words[4u * j + m] >> 4 & 0x03030303u) << (2u * m);
        target[at.high + 2u * number + j] = word;
    }
#elif HIGH_BITS == 1
    uint bits = 0u;
    for (uint i = 0u; i < 8u; i++) bits |= (words[i] >> LOW_BITS & 0x01010101u) << i;
    target[at.high + number] = bits;
#endif
}

void main() {
    uint i = 2u * gl_GlobalInvocationID.x;
    if (i >= n_source) return;
    Planes at = planes_at(target_offset, n_matrix);
    uint scales[2] = uint[](0u, 0u);
    for (uint k = 0u; k < 2u && i + k < n_source; k++) {
        base = (i + k) / FILE_BLOCKS * FILE_BYTES;
        uint b = (i + k) % FILE_BLOCKS;
        put_codes(at, first + i + k, b);
        scales[k] = scale_at(b);
#if SCALES == PAIRS
        target[at.scales + first + i + k] = scales[k];
#endif
    }
#if SCALES != PAIRS
    target[at.scales + (first + i) / 2u] = scales[0] | scales[1] << 16;
#endif
#if SCALES == SUPER
    if (i % 8u == 0u) target[at.supers + (first + i) / 8u] = super_at();
#endif
}

#endif
