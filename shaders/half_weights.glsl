// Eight columns of a matrix in float16 for matrix units. In each four columns the second and the third are swapped, as
// half.comp does for activations: bytes of codes become pairs of float16 by a mask, and sums are the same.

f16vec2 as_pair(uint word) { return unpackFloat2x16(word); }
uvec2 paired(vec4 v) { return uvec2(packFloat2x16(f16vec2(v.xz)), packFloat2x16(f16vec2(v.yw))); }

#if DENSE

uvec4 octet(Block block) {
#ifdef FORMAT_F16
    const uvec4 w = block.words;
    return uvec4(w.x & 0xFFFFu | w.y << 16, w.x >> 16 | w.y & 0xFFFF0000u,
                 w.z & 0xFFFFu | w.w << 16, w.z >> 16 | w.w & 0xFFFF0000u);
#else
    return uvec4(paired(numbers(block, 0, 0)), paired(numbers(block, 0, 1)));
#endif
}

#else

// The value subtracted from codes, which centres codes with minimums on zero, where float16 is most precise. Signed codes
// are made unsigned first.
#define SIGNED_CODES (TABLE != 0 || LOW_BITS == 8)
#define ZERO (SIGNED_CODES ? 128 : HAS_MINIMUM != 0 ? 1 << (LOW_BITS + HIGH_BITS - 1) : OFFSET)

// Columns 4f to 4f + 3 of a block; the second and the third are swapped. A byte c in the low bits of float16 1024 represents 1024 + c.
void quad(Block block, uint number, uint f, out f16vec2 pairs[2]) {
    const vec2 scale = block_scale(block, number, f / 4);
    const f16vec2 factor = f16vec2(scale.x), centre = f16vec2(scale.x * ZERO + scale.y);
    const uint codes = code_words(block, f % 4)[f / 4] ^ (SIGNED_CODES ? 0x80808080u : 0u);
    [[unroll]] for (uint odd = 0; odd < 2; odd++) {
        const f16vec2 pair = as_pair(codes >> (8 * odd) & 0x00FF00FFu | 0x64006400u) - f16vec2(1024 + ZERO);
        pairs[odd] = HAS_MINIMUM != 0 ? fma(pair, factor, centre) : pair * factor;
    }
}

#define NIBBLES (LOW_BITS == 4 && HIGH_BITS == 0 && TABLE == 0)

// The factors of both halves of a block, and what is added to centred codes times these, rounded as by quad(). Bytes become
// float16 by a mask, since conversions of integers are slow.
void half_scales(Block block, uint number, out f16vec2 factors, out f16vec2 centres) {
    centres = f16vec2(0.0);
#if SCALES == PAIRS
    const vec2 pair = unpackHalf2x16(block.scale);
    const f16vec2 both = f16vec2(vec2(pair.x, pair.x * ZERO + pair.y));
    factors = both.xx;
    centres = both.yy;
#elif SCALES == HALVES
    const f16vec2 pair = as_pair(block.scale);
    factors = (number & 1u) == 0u ? pair.xx : pair.yy;
#elif SCALES == SUPER && !(HAS_MINIMUM != 0 && SPLIT != 0)
    const uint word = (number & 1u) == 0u ? block.scale : block.scale >> 16, bytes = word & 255u | (word & 0xFF00u) << 8;
    const f16vec2 super = as_pair(block.super);
#if HAS_MINIMUM
    const vec2 pair = vec2(as_pair(bytes | 0x64006400u) - f16vec2(1024)) * vec2(super);
    const f16vec2 both = f16vec2(vec2(pair.x, pair.x * ZERO - pair.y));
    factors = both.xx;
    centres = both.yy;
#else // signed bytes
    factors = (as_pair(bytes ^ 0x64806480u) - f16vec2(1152)) * super.xx;
    if (SPLIT == 0) factors = factors.xx;
#endif
#else
    const vec2 low = block_scale(block, number, 0), high = block_scale(block, number, 1);
    factors = f16vec2(low.x, high.x);
    centres = f16vec2(low.x * ZERO + low.y, high.x * ZERO + high.y);
#endif
}

// Quads i and i + 4 of a block, as quad() converts them. Codes of four bits are numbers in their common word: a nibble in the
// low bits of float16 1024, or in bits 4 to 7 of 64.
void two_quads(Block block, uint i, f16vec2 factors, f16vec2 centres, out f16vec2 pairs[4]) {
    [[unroll]] for (uint upper = 0; upper < 2; upper++) {
#if NIBBLES
        const uint codes = block.low[i], mask = upper == 0 ? 0x000F000Fu : 0x00F000F0u;
        const uint base = upper == 0 ? 1024 : 64, bits = upper == 0 ? 0x64006400u : 0x54005400u;
#else
        const uint codes = code_words(block, i)[upper] ^ (SIGNED_CODES ? 0x80808080u : 0u), mask = 0x00FF00FFu;
        const uint base = 1024, bits = 0x64006400u;
#endif
        const f16vec2 factor = f16vec2(factors[upper]), centre = f16vec2(centres[upper]);
        [[unroll]] for (uint odd = 0; odd < 2; odd++) {
            const f16vec2 pair = as_pair(codes >> (8 * odd) & mask | bits) - f16vec2(base + ZERO);
            pairs[2 * upper + odd] = HAS_MINIMUM != 0 ? fma(pair, factor, centre) : pair * factor;
        }
    }
}

// Octets 2h and 2h + 1 of a block, one half of it.
void octets(Block block, uint number, uint h, out uvec4 both[2]) {
    const vec2 scale = block_scale(block, number, h);
    const f16vec2 factor = f16vec2(scale.x), centre = f16vec2(scale.x * ZERO + scale.y);
    [[unroll]] for (uint i = 0; i < 4; i++) {
        uint codes = code_words(block, i)[h] ^ (SIGNED_CODES ? 0x80808080u : 0u);
        [[unroll]] for (uint odd = 0; odd < 2; odd++) {
            f16vec2 pair = as_pair(codes >> (8 * odd) & 0x00FF00FFu | 0x64006400u) - f16vec2(1024 + ZERO);
            pair = HAS_MINIMUM != 0 ? fma(pair, factor, centre) : pair * factor;
            both[i / 2][i % 2 * 2 + odd] = packFloat2x16(pair);
        }
    }
}

#endif
