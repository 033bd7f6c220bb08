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
