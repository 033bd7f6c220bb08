// Encodes blocks of 32 values as ggml rounds them. Requires cache.glsl and vec4 block_quad(bool is_key, uint i), four values.

const uint MOST_CODE = (1u << CACHE_BITS) - 1u;

struct Scaling { float scale, minimum, inverse; };

// The nearest float16, by its bits: NVIDIA's compiler simplifies unpackHalf2x16(packHalf2x16(x)) to x.
float as_half(float x) {
    uint bits = floatBitsToUint(x);
    if ((bits & 0x7FFFFFFFu) < 0x38800000u) return roundEven(x * 16777216.0) / 16777216.0; // multiples of 2^-24
    return uintBitsToFloat(bits + 0xFFFu + (bits >> 13 & 1u) & 0xFFFFE000u);
}

Scaling scaling_of(bool is_key, uint first) {
    Scaling s;
#if CACHE_MINIMUM
    float low = block_quad(is_key, first).x, high = low;
    for (uint j = 0; j < 32u; j++) {
        float x = block_quad(is_key, first + j / 4u)[j % 4u];
        low = min(low, x);
        high = max(high, x);
    }
    s.scale = (high - low) / float(MOST_CODE);
    s.minimum = low;
#else
    float extreme = 0.0;
    for (uint j = 0; j < 32u; j++) {
        float x = block_quad(is_key, first + j / 4u)[j % 4u];
        if (abs(x) > abs(extreme)) extreme = x;
    }
    s.scale = CACHE_BITS == 8 ? abs(extreme) / 127.0 : extreme / -float(CACHE_OFFSET);
    s.minimum = 0.0;
#endif
    s.inverse = s.scale == 0.0 ? 0.0 : 1.0 / s.scale;
    return s;
}

// Rounds a scale or a minimum to the precision of GGUF's blocks.
vec2 kept(Scaling s) { return vec2(as_half(s.scale), as_half(s.minimum)); }

int code_of(Scaling s, float x) {
#if CACHE_BITS == 8
    float scaled = x * s.inverse;
    return int(sign(scaled) * floor(abs(scaled) + 0.5));
#elif CACHE_MINIMUM
    return int(min(MOST_CODE, uint((x - s.minimum) * s.inverse + 0.5)));
#else
    return int(min(MOST_CODE, uint(x * s.inverse + (float(CACHE_OFFSET) + 0.5))));
#endif
}

// Word w of a block's CACHE_BITS words of codes.
uint code_word(bool is_key, uint first, Scaling s, uint w) {
    uint word = 0u;
#if CACHE_BITS == 8
    const vec4 x = block_quad(is_key, first + w);
    for (uint n = 0; n < 4u; n++) word |= (uint(code_of(s, x[n])) & 255u) << (8u * n);
#else
    for (uint n = 0; w < 4u && n < 8u; n++)
        word |= (uint(code_of(s, block_quad(is_key, first + 2u * w + n / 4u)[n % 4u])) & 15u) << (4u * n);
#if CACHE_BITS == 5
    for (uint n = 0; w == 4u && n < 32u; n++)
        word |= uint(code_of(s, block_quad(is_key, first + n / 4u)[n % 4u])) >> 4 << n;
#endif
#endif
    return word;
}
