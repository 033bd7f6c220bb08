// decode(block, i): value i of the GGUF block that begins at a byte, for each type; layouts are ggml-common.h's.
// Uses u8, s8, u16 and f16, which read the bytes.

uint nibble(uint at, uint i) { return (u8(at + (i & 15u)) >> (i < 16u ? 0u : 4u)) & 15u; }

#if defined(TYPE_IQ4_NL) || defined(TYPE_IQ4_XS)
const int IQ4[16] = int[](-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
#endif

#if defined(TYPE_F32)
#define BLOCK 1u
#define BLOCK_BYTES 4u
float decode(uint at, uint i) { return uintBitsToFloat(table[table_at + (at >> 2)]); }

#elif defined(TYPE_F16)
#define BLOCK 1u
#define BLOCK_BYTES 2u
float decode(uint at, uint i) { return f16(at); }

#elif defined(TYPE_BF16)
#define BLOCK 1u
#define BLOCK_BYTES 2u
float decode(uint at, uint i) { return uintBitsToFloat(u16(at) << 16); }

#elif defined(TYPE_Q4_0)
#define BLOCK 32u
#define BLOCK_BYTES 18u
float decode(uint at, uint i) { return f16(at) * (float(nibble(at + 2u, i)) - 8.0); }

#elif defined(TYPE_Q4_1)
#define BLOCK 32u
#define BLOCK_BYTES 20u
float decode(uint at, uint i) { return f16(at) * float(nibble(at + 4u, i)) + f16(at + 2u); }

#elif defined(TYPE_Q5_0)
#define BLOCK 32u
#define BLOCK_BYTES 22u
float decode(uint at, uint i) {
    uint high = (u8(at + 2u + i / 8u) >> (i & 7u)) & 1u;
    return f16(at) * (float(nibble(at + 6u, i) | high << 4) - 16.0);
}

#elif defined(TYPE_Q5_1)
#define BLOCK 32u
#define BLOCK_BYTES 24u
float decode(uint at, uint i) {
    uint high = (u8(at + 4u + i / 8u) >> (i & 7u)) & 1u;
    return f16(at) * float(nibble(at + 8u, i) | high << 4) + f16(at + 2u);
}

#elif defined(TYPE_Q8_0)
#define BLOCK 32u
#define BLOCK_BYTES 34u
float decode(uint at, uint i) { return f16(at) * float(s8(at + 2u + i)); }

#elif defined(TYPE_IQ4_NL)
#define BLOCK 32u
#define BLOCK_BYTES 18u
float decode(uint at, uint i) { return f16(at) * float(IQ4[nibble(at + 2u, i)]); }

#elif defined(TYPE_MXFP4)
#define BLOCK 32u
#define BLOCK_BYTES 17u
const float FP4[8] = float[](0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0);
float decode(uint at, uint i) {
    uint q = nibble(at + 1u, i), e = u8(at);
    float scale = uintBitsToFloat(e == 0u ? 0x00400000u : e << 23);
    return (q < 8u ? scale : -scale) * FP4[q & 7u];
}

#elif defined(TYPE_Q2_K)
#define BLOCK 256u
#define BLOCK_BYTES 84u
float decode(uint at, uint i) {
    uint q = (u8(at + 16u + i / 128u * 32u + (i & 31u)) >> (2u * (i / 32u & 3u))) & 3u;
    uint scale = u8(at + i / 16u);
    return f16(at + 80u) * float(scale & 15u) * float(q) - f16(at + 82u) * float(scale >> 4);
}

#elif defined(TYPE_Q3_K)
#define BLOCK 256u
#define BLOCK_BYTES 110u
float decode(uint at, uint i) {
    int q = int((u8(at + 32u + i / 128u * 32u + (i & 31u)) >> (2u * (i / 32u & 3u))) & 3u);
    if (((u8(at + (i & 31u)) >> (i / 32u)) & 1u) == 0u) q -= 4;
    uint s = i / 16u;
    uint low = s < 8u ? u8(at + 96u + s) & 15u : u8(at + 88u + s) >> 4;
    uint high = (u8(at + 104u + (s & 3u)) >> (2u * (s / 4u))) & 3u;
    return f16(at + 108u) * (float(low | high << 4) - 32.0) * float(q);
}

#elif defined(TYPE_Q4_K) || defined(TYPE_Q5_K)
// The scale and the minimum of 32 values, 6 bits each.
uvec2 scale_min(uint at, uint g) {
    if (g < 4u) return uvec2(u8(at + g) & 63u, u8(at + g + 4u) & 63u);
    uint both = u8(at + g + 4u);
    return uvec2((both & 15u) | u8(at + g - 4u) >> 6 << 4, both >> 4 | u8(at + g) >> 6 << 4);
}
#define BLOCK 256u
#ifdef TYPE_Q4_K
#define BLOCK_BYTES 144u
#define QUANTS 16u
#else
#define BLOCK_BYTES 176u
#define QUANTS 48u
#endif
float decode(uint at, uint i) {
    uint g = i / 32u;
    uint q = (u8(at + QUANTS + g / 2u * 32u + (i & 31u)) >> (4u * (g & 1u))) & 15u;
#ifdef TYPE_Q5_K
    q |= ((u8(at + 16u + (i & 31u)) >> g) & 1u) << 4;
#endif
    uvec2 s = scale_min(at + 4u, g);
    return f16(at) * float(s.x) * float(q) - f16(at + 2u) * float(s.y);
}

#elif defined(TYPE_Q6_K)
#define BLOCK 256u
#define BLOCK_BYTES 210u
float decode(uint at, uint i) {
    uint quarter = i / 32u & 3u, l = i & 31u, n = i / 128u;
    uint low = (u8(at + n * 64u + (quarter & 1u) * 32u + l) >> (quarter < 2u ? 0u : 4u)) & 15u;
    uint high = (u8(at + 128u + n * 32u + l) >> (2u * quarter)) & 3u;
    return f16(at + 208u) * float(s8(at + 192u + i / 16u)) * (float(low | high << 4) - 32.0);
}

#elif defined(TYPE_IQ4_XS)
#define BLOCK 256u
#define BLOCK_BYTES 136u
float decode(uint at, uint i) {
    uint g = i / 32u;
    uint low = (u8(at + 4u + g / 2u) >> (4u * (g & 1u))) & 15u;
    uint high = (u16(at + 2u) >> (2u * g)) & 3u;
    return f16(at) * (float(low | high << 4) - 32.0) * float(IQ4[nibble(at + 8u + g * 16u, i & 31u)]);
}
#endif
