// Loads from a matrix in planes: blocks of codes, scales, numbers. Requires WEIGHTS, the binding of the matrix, and BLOCKS,
// the blocks per row.
#include "formats.glsl"

layout(set = 0, binding = WEIGHTS) restrict readonly buffer Weights1 { uint weights[]; };
layout(set = 0, binding = WEIGHTS) restrict readonly buffer Weights2 { uvec2 weights2[]; };
layout(set = 0, binding = WEIGHTS) restrict readonly buffer Weights4 { uvec4 weights4[]; };

#if DENSE

// Four columns of float32, or eight of 16 bits.
struct Block { uvec4 words; };

// Where a block lies. With IN_LANES the blocks of eight rows and 128 columns lie together, as subgroups of
// matmul_lanes.comp read them: lane 4g + q reads block 4q + t of row g, for t from 0 to 3.
uint place_of(uint number) {
#ifdef IN_LANES
    const uint row = number / BLOCKS, block = number % BLOCKS;
    return row / 8u * 8u * BLOCKS + block / 16u * 128u + block % 4u * 32u + row % 8u * 4u + block / 4u % 4u;
#else
    return number;
#endif
}

Block load_block(Planes at, uint number) { return Block(weights4[at.low / 4u + place_of(number)]); }
void begin_format() {}

vec4 numbers(Block block, uint number, uint i) {
#ifdef FORMAT_F32
    return uintBitsToFloat(block.words);
#elif defined(FORMAT_F16)
    return vec4(unpackHalf2x16(block.words[2u * i]), unpackHalf2x16(block.words[2u * i + 1u]));
#else
    uvec2 pairs = uvec2(block.words[2u * i], block.words[2u * i + 1u]);
    return uintBitsToFloat(uvec4(pairs.x << 16, pairs.x & 0xFFFF0000u, pairs.y << 16, pairs.y & 0xFFFF0000u));
#endif
}

#else

// A block as loaded; conversion follows later, so loads do not stall.
struct Block {
#if LOW_BITS == 8
    uvec4 low, low2;
#elif LOW_BITS == 4
    uvec4 low;
#else
    uvec2 low;
#endif
#if HIGH_BITS == 2
    uvec2 high;
#elif HIGH_BITS == 1
    uint high;
#endif
    uint scale;
#if SCALES == SUPER
    uint super;
#endif
};

Block load_block(Planes at, uint number) {
    Block block;
#if LOW_BITS == 8
    block.low = weights4[at.low / 4u + 2u * number];
    block.low2 = weights4[at.low / 4u + 2u * number + 1u];
#elif LOW_BITS == 4
    block.low = weights4[at.low / 4u + number];
#else
    block.low = weights2[at.low / 2u + number];
#endif
#if HIGH_BITS == 2
    block.high = weights2[at.high / 2u + number];
#elif HIGH_BITS == 1
    block.high = weights[at.high + number];
#endif
#if SCALES == PAIRS
    block.scale = weights[at.scales + number];
#else
    block.scale = weights[at.scales + number / 2u];
#endif
#if SCALES == SUPER
    block.super = weights[at.supers + number / 8u];
#endif
    return block;
}

#if TABLE
// Looks up both codes of each byte: results in the lowest and the third byte.
shared uint code_pairs[256];

const int TABLE_VALUES[16] = int[](VALUES);

void begin_format() {
    for (uint i = gl_LocalInvocationIndex; i < 256u; i += gl_WorkGroupSize.x * gl_WorkGroupSize.y)
        code_pairs[i] = uint(TABLE_VALUES[i & 15u] & 255) | uint(TABLE_VALUES[i >> 4] & 255) << 16;
    barrier();
}
#else
void begin_format() {}
#endif

// Codes of columns 4i to 4i + 3, and of those 16 further, in bytes; signed with a table or eight bits.
uvec2 code_words(Block block, uint i) {
#if TABLE
    uint codes = block.low[i];
    uint pairs = code_pairs[codes & 255u] | code_pairs[codes >> 8 & 255u] << 8;
    uint pairs2 = code_pairs[codes >> 16 & 255u] | code_pairs[codes >> 24] << 8;
    return uvec2(pairs & 0xFFFFu | pairs2 << 16, pairs >> 16 | pairs2 & 0xFFFF0000u);
#else
#if LOW_BITS == 8
    uvec2 words = uvec2(block.low[i], block.low2[i]);
#elif LOW_BITS == 4
    uvec2 words = uvec2(block.low[i], block.low[i] >> 4) & 0x0F0F0F0Fu;
#else
    uvec2 words = block.low >> (2u * i) & 0x03030303u;
#endif
#if HIGH_BITS == 2
    words |= (i < 2u ? block.high << (4u - 2u * i) : block.high >> (2u * i - 4u)) & 0x30303030u;
#elif HIGH_BITS == 1
    uint first = i < LOW_BITS ? block.high << (LOW_BITS - i) : block.high >> (i - LOW_BITS);
    uint second = block.high >> (i + 4u - LOW_BITS);
    words |= uvec2(first, second) & (0x01010101u << LOW_BITS);
#endif
    return words;
#endif
}

// A number is code * x + y in this half of the block.
vec2 block_scale(Block block, uint number, uint half_) {
#if SCALES == PAIRS
    return unpackHalf2x16(block.scale);
#else
    uint word = (number & 1u) == 0u ? block.scale : block.scale >> 16;
#if SCALES == HALVES
    float d = unpackHalf2x16(word).x;
    return vec2(d, -float(OFFSET) * d);
#elif SCALES == EXPONENTS
    return vec2(uintBitsToFloat(word << 16), 0.0);
#else
    vec2 d = unpackHalf2x16(block.super);
#if !HAS_MINIMUM
    float scale = d.x * float(bitfieldExtract(int(word), SPLIT != 0 ? 8 * int(half_) : 0, 8));
    return vec2(scale, -float(OFFSET) * scale);
#elif SPLIT
    uint byte_ = word >> (8u * half_);
    return vec2(d.x * float(byte_ & 15u), -d.y * float(byte_ >> 4 & 15u));
#else
    return vec2(d.x * float(word & 255u), -d.y * float(word >> 8 & 255u));
#endif
#endif
#endif
}

// Columns 4i to 4i + 3 as numbers.
vec4 numbers(Block block, uint number, uint i) {
    vec2 scale = block_scale(block, number, i / 4u);
    uint word = code_words(block, i & 3u)[i >> 2];
#if TABLE || LOW_BITS == 8
    ivec4 codes = ivec4(int(word << 24) >> 24, int(word << 16) >> 24, int(word << 8) >> 24, int(word) >> 24);
#else
    uvec4 codes = uvec4(word & 255u, word >> 8 & 255u, word >> 16 & 255u, word >> 24);
#endif
    return vec4(codes) * scale.x + scale.y;
}

#endif
