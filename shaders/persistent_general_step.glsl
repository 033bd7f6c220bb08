// Requests and products of one of the two steps of shaders/persistent_general.glsl, whose units are U0 to U3. Each unit has a
// name of its own: compilers leave arrays with indices of functions in memory.

#define LOAD_UNIT(U, FROM, I) \
    U.low = CODES(FROM.low, I); \
    if (type == Q6_K) U.high = BITS(FROM.high, I); \
    U.scale = SCALES(FROM.scale, I); \
    if (type != Q4_0) U.super = SUPERS(FROM.super, (I) / 8u);

// Requests `rr` rows of a matrix from `row` on, and chunks from `chunk` on, before `end`.
void LOAD_AS(Source from, uint rr, uint row, uint chunk, uint end, bool ragged, uint type) {
    const Pointers first = aim(from, row, chunk, type);
    LOAD_UNIT(U0, first, 0u)
    Pointers other = first;
    if (rr == 1u) other = aim(from, row, chunk + 1u, type);
    if (!ragged || rr > 1u || chunk + 1u < end) { LOAD_UNIT(U1, other, (rr > 1u ? from.blocks : 0u)) }
#ifndef FEW_UNITS
    other = first;
    if (rr < 4u) other = aim(from, row, chunk + 2u / rr, type);
    if (!ragged || rr > 2u || chunk + 2u / rr < end) { LOAD_UNIT(U2, other, (rr > 2u ? 2u * from.blocks : 0u)) }
    if (rr == 1u) other = aim(from, row, chunk + 3u, type);
    if (!ragged || rr > 2u || chunk + 3u / rr < end) {
        LOAD_UNIT(U3, other, (rr > 2u ? 3u * from.blocks : rr == 2u ? from.blocks : 0u))
    }
#endif
}

void LOAD_STEP(Source from, uint mask, uint rr, uint row, uint chunk, uint end, bool ragged) {
    const uint type = from.type;
#ifdef HAS_Q4_K
    if (is(mask, type, Q4_K)) LOAD_AS(from, rr, row, chunk, end, ragged, Q4_K);
#endif
#ifdef HAS_Q4_0
    if (is(mask, type, Q4_0)) LOAD_AS(from, rr, row, chunk, end, ragged, Q4_0);
#endif
    if (is(mask, type, Q6_K)) LOAD_AS(from, rr, row, chunk, end, ragged, Q6_K);
}

// Multiplies with x, of which the row's first block is `x_block`.
void MULTIPLY_AS(uint blocks, uint x_block, uint rr, uint chunk, uint end, bool ragged, uint type) {
    take_part(x_block, blocks, chunk);
    s0 += product_as(U0, type);
    if (rr > 1u) {
        s1 += product_as(U1, type);
    } else if (!ragged || chunk + 1u < end) {
        take_part(x_block, blocks, chunk + 1u);
        s0 += product_as(U1, type);
    }
#ifndef FEW_UNITS
    if (rr > 2u) {
        s2 += product_as(U2, type);
        s3 += product_as(U3, type);
    } else {
        if (!ragged || chunk + 2u / rr < end) {
            take_part(x_block, blocks, chunk + 2u / rr);
            s0 += product_as(U2, type);
            if (rr == 2u) s1 += product_as(U3, type);
        }
        if (rr == 1u && (!ragged || chunk + 3u < end)) {
            take_part(x_block, blocks, chunk + 3u);
            s0 += product_as(U3, type);
        }
    }
#endif
}

void MULTIPLY_STEP(uint type, uint mask, uint blocks, uint x_block, uint rr, uint chunk, uint end, bool ragged) {
    if (ragged && chunk >= end) return;
#ifdef HAS_Q4_K
    if (is(mask, type, Q4_K)) MULTIPLY_AS(blocks, x_block, rr, chunk, end, ragged, Q4_K);
#endif
#ifdef HAS_Q4_0
    if (is(mask, type, Q4_0)) MULTIPLY_AS(blocks, x_block, rr, chunk, end, ragged, Q4_0);
#endif
    if (is(mask, type, Q6_K)) MULTIPLY_AS(blocks, x_block, rr, chunk, end, ragged, Q6_K);
}

#undef LOAD_UNIT
#undef LOAD_AS
#undef LOAD_STEP
#undef MULTIPLY_AS
#undef MULTIPLY_STEP
#undef U0
#undef U1
#undef U2
#undef U3
