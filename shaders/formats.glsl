// The planes of a quantized matrix (plugins/pumice_vulkan/formats.py), and how codes become numbers.
//
// FORMAT names the format. A block is 32 columns of a row; its number is row * blocks_of_a_row + block. Codes are eight
// words of four columns each, kept in planes: LOW_BITS of each code, then HIGH_BITS. Plane after plane, each begun at a
// multiple of four words:
//   4 bits: four words; low nibbles are words 0 to 3, high nibbles words 4 to 7
//   2 bits: two words; bits 2m and 2m + 1 of each byte of word j are word 4j + m
//   1 bit:  one word; bit i of each byte is word i
//   8 bits: eight words
// Scales: HALVES (one float16 a block), PAIRS (two: scale and minimum), EXPONENTS (one bfloat16), or SUPER: two bytes a
// block, and for each eight blocks two float16 that multiply them.

#define q4_0 1
#define q4_1 2
#define q5_0 3
#define q5_1 4
#define q8_0 5
#define q2_k 6
#define q3_k 7
#define q4_k 8
#define q5_k 9
#define q6_k 10
#define iq4_nl 11
#define iq4_xs 12
#define mxfp4 13
#define f32 14
#define f16 15
#define bf16 16

#define DENSE (FORMAT == f32 || FORMAT == f16 || FORMAT == bf16)

#define HALVES 1
#define PAIRS 2
#define EXPONENTS 3
#define SUPER 4

#if FORMAT == q8_0
#define LOW_BITS 8
#elif FORMAT == q2_k || FORMAT == q3_k
#define LOW_BITS 2
#else
#define LOW_BITS 4
#endif

#if FORMAT == q5_0 || FORMAT == q5_1 || FORMAT == q3_k || FORMAT == q5_k
#define HIGH_BITS 1
#elif FORMAT == q6_k
#define HIGH_BITS 2
#else
#define HIGH_BITS 0
#endif

#if FORMAT == q4_1 || FORMAT == q5_1
#define SCALES PAIRS
#elif FORMAT == mxfp4
#define SCALES EXPONENTS
#elif FORMAT == q2_k || FORMAT == q3_k || FORMAT == q4_k || FORMAT == q5_k || FORMAT == q6_k || FORMAT == iq4_xs
#define SCALES SUPER
#else
#define SCALES HALVES
#endif

// The bytes of SUPER: signed scales of both halves; scale and minimum of both; or of each half, four bits each.
#define SIGNED_BYTES (FORMAT == q3_k || FORMAT == q6_k || FORMAT == iq4_xs)
#define NIBBLES (FORMAT == q2_k)
// Whether the two halves of a block, of 16 columns, have scales of their own.
#define SPLIT (FORMAT == q2_k || FORMAT == q3_k || FORMAT == q6_k)

// What is subtracted from codes.
#if FORMAT == q4_0
#define OFFSET 8
#elif FORMAT == q5_0
#define OFFSET 16
#elif FORMAT == q3_k
#define OFFSET 4
#elif FORMAT == q6_k
#define OFFSET 32
#else
#define OFFSET 0
#endif

#define TABLE (FORMAT == iq4_nl || FORMAT == iq4_xs || FORMAT == mxfp4)
#define LOW_WORDS LOW_BITS
#define HIGH_WORDS HIGH_BITS

struct Planes { uint low, high, scales, supers; };  // word offsets

uint padded(uint n_words) { return (n_words + 3u) & ~3u; }

// Where the planes of a matrix of so many blocks lie that begins at a word.
Planes planes_at(uint offset, uint n_blocks) {
    Planes p;
    p.low = offset;
    p.high = p.low + padded(n_blocks * LOW_WORDS);
    p.scales = p.high + padded(n_blocks * HIGH_WORDS);
    p.supers = p.scales + padded(SCALES == PAIRS ? n_blocks : (n_blocks + 1u) / 2u);
    return p;
}
