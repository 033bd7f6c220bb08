// The planes of a quantized matrix, and the conversion of codes to numbers.
//
// plugins/pumice_vulkan/formats.py has the types, and the macros of each variant. A block is 32 columns of a row; its index
// is row * blocks_per_row + block. Codes are eight words of four columns each, stored in planes: LOW_BITS of each code,
// then HIGH_BITS. Each plane starts at a multiple of four words:
//   4 bits: four words; low nibbles are words 0 to 3, high nibbles words 4 to 7
//   2 bits: two words; bits 2m and 2m + 1 of each byte of word j are word 4j + m
//   1 bit:  one word; bit i of each byte is word i
//   8 bits: eight words
// SCALES: HALVES (one float16 per block), PAIRS (two: scale and minimum), EXPONENTS (one bfloat16), or SUPER: two bytes per
// block, and per eight blocks two float16 that multiply them.
// The bytes of SUPER: scale and minimum (HAS_MINIMUM), else a signed scale; for each half of a block if SPLIT, with four
// bits each if there are minimums.
// OFFSET is subtracted from codes; with TABLE they are indices of VALUES.

#define HALVES 1
#define PAIRS 2
#define EXPONENTS 3
#define SUPER 4

struct Planes { uint low, high, scales, supers; };  // word offsets

uint padded(uint n_words) { return (n_words + 3u) & ~3u; }

// Word offsets of the planes of a matrix with `blocks` blocks at a word; a dense matrix has only the first.
Planes planes_at(uint offset, uint n_blocks) {
    Planes p;
    p.low = offset;
#if !DENSE
    p.high = p.low + padded(n_blocks * LOW_BITS);
    p.scales = p.high + padded(n_blocks * HIGH_BITS);
    p.supers = p.scales + padded(SCALES == PAIRS ? n_blocks : (n_blocks + 1u) / 2u);
#endif
    return p;
}
