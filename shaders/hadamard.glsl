// Rotations around a quantized cache: queries and keys by the Hadamard matrix of 32 neighbouring values over sqrt(32), values
// and results by that of 64 (graph/rotate.py). Includers define HADAMARD_ID, the first of two specialization constants.
#ifdef CACHE_QUANTIZED
layout(constant_id = HADAMARD_ID) const bool HADAMARD_KEYS = false;
layout(constant_id = HADAMARD_ID + 1) const bool HADAMARD_VALUES = false;
#else
const bool HADAMARD_KEYS = false, HADAMARD_VALUES = false;
#endif
const uint K_BLOCK = 8u, V_BLOCK = 16u;                // quads that are rotated together
const float K_FACTOR = 0.17677669529663687, V_FACTOR = 0.125;

// The product of a quad and the Hadamard matrix of four.
vec4 hadamard_quad(vec4 x) {
    const vec2 sums = x.xz + x.yw, differences = x.xz - x.yw;
    return vec4(sums.x + sums.y, differences.x + differences.y, sums.x - sums.y, differences.x - differences.y);
}

// A term of a quad of a product: a quad of its block, whose sign is that of the matrix in the row and column of the quads.
vec4 hadamard_term(vec4 x, uint row, uint column) {
    return uintBitsToFloat(floatBitsToUint(x) ^ uint(bitCount(row & column)) << 31);
}

// Defines vec4 NAME(uint from, uint i): quad i of a row that begins at an index of an array, as the product of its block.
#define HADAMARD_OF(NAME, ARRAY, BLOCK, FACTOR) \
vec4 NAME(uint from, uint i) { \
    vec4 sum = vec4(0.0); \
    for (uint b = 0; b < (BLOCK); b++) sum += hadamard_term(ARRAY[from + i - i % (BLOCK) + b], i % (BLOCK), b); \
    return hadamard_quad(sum) * FACTOR; \
}

// Defines void NAME(uint me): replaces ROWS rows of WIDTH quads of a shared array, STRIDE quads apart, by the products OF
// returns. All THREADS invocations take part, after a barrier.
#define HADAMARD_ROWS(NAME, OF, ARRAY, ROWS, WIDTH, STRIDE, THREADS) \
void NAME(uint me) { \
    const uint ALL = (ROWS) * (WIDTH); \
    vec4 products[(ALL + (THREADS) - 1u) / (THREADS)]; \
    for (uint t = 0; t * (THREADS) < ALL; t++) { \
        const uint i = min(me + t * (THREADS), ALL - 1u); \
        products[t] = OF(i / (WIDTH) * (STRIDE), i % (WIDTH)); \
    } \
    barrier(); \
    for (uint t = 0; t * (THREADS) < ALL; t++) { \
        const uint i = me + t * (THREADS); \
        if (i < ALL) ARRAY[i / (WIDTH) * (STRIDE) + i % (WIDTH)] = products[t]; \
    } \
    barrier(); \
}
