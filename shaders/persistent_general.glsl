// The products of shaders/persistent.comp for models with any experts, whose matrices have several
// types. Shapes are specialization constants; weights and caches are found by address.
//
// A site is a product between two exchanges: queries with keys and values, attention's output, gate and up, down, and the
// output matrix. The subgroups of a workgroup are SLOTS of SPLIT subgroups. A slot has N rows, and each of its subgroups a share
// of a row's chunks, of LANES blocks each. A step is UNITS units of a subgroup: RR rows, of UNITS / RR chunks. Two steps are
// requested ahead, the first ones before what they are multiplied with is awaited.

#ifdef FEW_UNITS
const uint UNITS = 2u;
#else
const uint UNITS = 4u;
#endif

struct Unit { uvec4 low; uvec2 high; uint scale, super; };
struct Pointers { uint64_t low, high, scale, super; };

// Types of blocks, as the low bits of a matrix's address tell them; masks have a bit for each that a site needs.
const uint TYPE = 3u;

// What a step is requested from: `total` blocks of a matrix, or of the experts' matrices, of which each has rows of BLOCKS_E.
struct Source { uint64_t at; uint total, blocks, type; bool chosen; };

Unit a0, a1, a2, a3, b0, b1, b2, b3; // of two steps
float s0, s1, s2, s3;                // sums of rows
uint here;     // layer

uint64_t address(uint layer, uint i) { return packUint2x32(addresses[places_at / 2u + TABLE_ROW * layer + i]); }

void load_places(uint layer) {}
void move_on() {}
void ask_again() {}

float norm_number(uint at) { return norms[at / 4u][at & 3u]; }

// --- units

bool is(uint mask, uint type, uint wanted) {
    return (mask & 1u << wanted) != 0u && (mask == 1u << wanted || type == wanted);
}

Source source_of(uint64_t place, uint total, uint blocks) {
    return Source(place & ~uint64_t(TYPE), total, blocks, uint(place) & TYPE, false);
}

uint chosen_number(uint row, uint block);

// Pointers to this lane's block of a row's chunk.
Pointers aim(Source from, uint row, uint chunk, uint type) {
    const uint of_codes = 16u, of_high = type == Q6_K ? 8u : 0u;
    uint number = row * from.blocks + min(chunk * LANES + lane, from.blocks - 1u);
    if (from.chosen) number = chosen_number(row, chunk * LANES + lane);
    return Pointers(
        from.at + uint64_t(of_codes * number), from.at + uint64_t(of_codes * from.total + of_high * number),
        from.at + uint64_t((of_codes + of_high) * from.total + 2u * number),
        from.at + uint64_t((of_codes + of_high + 2u) * from.total + number / 8u * 4u)
    );
}

float product_as(Unit u, uint type) {
    return product(type, u.low, u.high, u.scale, u.super);
}

// --- steps

void take_block(uint b) {
    x_low = codes[b];
    x_high = codes[MOST_X + b];
    x_scales = scales[b];
}

void take_part(uint x_block, uint blocks, uint chunk) {
    const uint block = chunk * LANES + lane;
    take_block(x_block + min(block, blocks - 1u));
    if (blocks % LANES != 0u && block >= blocks) x_scales = vec4(0.0);
}

#define LOAD_AS load_as_a
#define LOAD_STEP load_step_a
#define MULTIPLY_AS multiply_as_a
#define MULTIPLY_STEP multiply_step_a
#define U0 a0
#define U1 a1
#define U2 a2
#define U3 a3
#include "persistent_general_step.glsl"
#define LOAD_AS load_as_b
#define LOAD_STEP load_step_b
#define MULTIPLY_AS multiply_as_b
#define MULTIPLY_STEP multiply_step_b
#define U0 b0
#define U1 b1
#define U2 b2
#define U3 b3
#include "persistent_general_step.glsl"

void load_step(uint q, Source from, uint mask, uint rr, uint row, uint chunk, uint end, bool ragged) {
    if (ragged && chunk >= end) return;
    if (q == 0u) load_step_a(from, mask, rr, row, chunk, end, ragged);
    else load_step_b(from, mask, rr, row, chunk, end, ragged);
}

void multiply_step(
    uint q, uint mask, uint64_t place, uint blocks, uint x_block, uint rr, uint chunk, uint end, bool ragged
) {
    if (q == 0u) multiply_step_a(uint(place) & TYPE, mask, blocks, x_block, rr, chunk, end, ragged);
    else multiply_step_b(uint(place) & TYPE, mask, blocks, x_block, rr, chunk, end, ragged);
}

void clear_sums() {
    s0 = s1 = s2 = s3 = 0.0;
}

// Stores the sums of `rr` rows, the first of which is `row` of a workgroup's `of`, at `first` in `partial`.
void keep_rows(uint rr, int row, uint of, uint first) {
    uint mask = LANES / 2u;
    if (rr == 4u) {
        const bool up = (lane & mask) != 0u;
        const float gone0 = up ? s0 : s2, gone1 = up ? s1 : s3;
        s0 = (up ? s2 : s0) + subgroupShuffleXor(gone0, mask);
        s1 = (up ? s3 : s1) + subgroupShuffleXor(gone1, mask);
        mask /= 2u;
    }
    if (rr >= 2u) {
        const bool up = (lane & mask) != 0u;
        const float gone = up ? s0 : s1;
        s0 = (up ? s1 : s0) + subgroupShuffleXor(gone, mask);
    }
    [[unroll]] for (uint h = 32u; h > 0u; h /= 2u) {
        if (h <= LANES / 2u / rr) s0 += subgroupShuffleXor(s0, h);
    }
    const int i = row + int(lane / (LANES / rr));
    if (lane % (LANES / rr) == 0u && i >= 0 && i < int(of)) partial[first + uint(i)] = s0;
}

// The first of `rr` rows of a matrix with `n` rows, of which this workgroup has `of`, and its number there.
uint row_of(uint local, uint of, uint n, uint rr) { return min(wg * of + local, n - rr); }
int local_of(uint row, uint of) { return int(row) - int(wg * of); }

#define BOTH_STEPS(STEPS, LOAD, MULTIPLY) \
    [[dont_unroll]] for (uint s = 0u; s < STEPS; s += 2u) { \
        MULTIPLY(0u, s); \
        if (s + 2u < STEPS) LOAD(0u, s + 2u); \
        if (s + 1u < STEPS) { \
            MULTIPLY(1u, s + 1u); \
            if (s + 3u < STEPS) LOAD(1u, s + 3u); \
        } \
    }
#define BEGIN(STEPS, LOAD) \
    LOAD(0u, 0u); \
    if (STEPS > 1u) LOAD(1u, 1u);

// --- queries, keys and values

const uint PER_Q = CEIL(CHUNKS_X, SPLIT_Q), SLOTS_Q = WARPS / SPLIT_Q, HALF_Q = SLOTS_Q / 2u;
const uint CS_Q = CEIL(PER_Q, UNITS / RR_Q), N_Q = RR_Q * CEIL(CEIL(OF_Q, SLOTS_Q), RR_Q), STEPS_Q = N_Q / RR_Q * CS_Q;
const uint CS_K = CEIL(PER_Q, UNITS / RR_K), N_K = RR_K * CEIL(CEIL(OF_K, HALF_Q), RR_K), STEPS_K = N_K / RR_K * CS_K;
const bool RAGGED_Q = SPLIT_Q * PER_Q != CHUNKS_X ? true : PER_Q % (UNITS / RR_Q) != 0u;
const bool RAGGED_K = SPLIT_Q * PER_Q != CHUNKS_X ? true : PER_Q % (UNITS / RR_K) != 0u;
uint64_t at_q, at_kv; // the latter of keys or values, as this subgroup's slot has them

void load_qkv(uint q, uint s) {
    const uint slot = warp / SPLIT_Q, first = warp % SPLIT_Q * PER_Q, end = min(first + PER_Q, CHUNKS_X);
    if (s < STEPS_Q) {
        const uint row = row_of(slot * N_Q + s / CS_Q * RR_Q, OF_Q, QUERY, RR_Q);
        load_step(q, source_of(at_q, QUERY * BLOCKS_X, BLOCKS_X), TYPES_Q, RR_Q, row, first + s % CS_Q * (UNITS / RR_Q), end, RAGGED_Q);
    } else {
        const uint t = s - STEPS_Q, row = row_of(slot % HALF_Q * N_K + t / CS_K * RR_K, OF_K, KEY, RR_K);
        load_step(q, source_of(at_kv, KEY * BLOCKS_X, BLOCKS_X), TYPES_K, RR_K, row, first + t % CS_K * (UNITS / RR_K), end, RAGGED_K);
    }
}

void multiply_qkv(uint q, uint s) {
    const uint slot = warp / SPLIT_Q, share = warp % SPLIT_Q, first = share * PER_Q, end = min(first + PER_Q, CHUNKS_X);
    if (s < STEPS_Q) {
        if (s % CS_Q == 0u) clear_sums();
        multiply_step(q, TYPES_Q, at_q, BLOCKS_X, 0u, RR_Q, first + s % CS_Q * (UNITS / RR_Q), end, RAGGED_Q);
        if (s % CS_Q != CS_Q - 1u) return;
        const uint row = row_of(slot * N_Q + s / CS_Q * RR_Q, OF_Q, QUERY, RR_Q);
        keep_rows(RR_Q, local_of(row, OF_Q), OF_Q, share * STRIDE_Q);
    } else {
        const uint t = s - STEPS_Q;
        if (t % CS_K == 0u) clear_sums();
        multiply_step(q, TYPES_K, at_kv, BLOCKS_X, 0u, RR_K, first + t % CS_K * (UNITS / RR_K), end, RAGGED_K);
        if (t % CS_K != CS_K - 1u) return;
        const uint row = row_of(slot % HALF_Q * N_K + t / CS_K * RR_K, OF_K, KEY, RR_K);
        const uint of_values = slot >= HALF_Q ? OF_K : 0u;
        keep_rows(RR_K, local_of(row, OF_K), slot < 2u * HALF_Q ? OF_K : 0u, share * STRIDE_Q + OF_Q + of_values);
    }
}

void begin_qkv(uint layer) {
    at_q = address(layer, 0u);
    at_kv = address(layer, warp / SPLIT_Q < HALF_Q ? 1u : 2u);
    BEGIN(STEPS_Q + STEPS_K, load_qkv)
}

void load_first() { begin_qkv(0u); }

// --- attention's output

const uint PER_O = CEIL(CHUNKS_O, SPLIT_O), SLOTS_O = WARPS / SPLIT_O;
const uint CS_O = CEIL(PER_O, UNITS / RR_O), N_O = RR_O * CEIL(CEIL(OF_X, SLOTS_O), RR_O), STEPS_O = N_O / RR_O * CS_O;
const bool RAGGED_O = SPLIT_O * PER_O != CHUNKS_O ? true : PER_O % (UNITS / RR_O) != 0u;
uint64_t at_o;

void load_o(uint q, uint s) {
    const uint first = warp % SPLIT_O * PER_O, end = min(first + PER_O, CHUNKS_O);
    const uint row = row_of(warp / SPLIT_O * N_O + s / CS_O * RR_O, OF_X, WIDTH, RR_O);
    load_step(q, source_of(at_o, WIDTH * BLOCKS_O, BLOCKS_O), TYPES_O, RR_O, row, first + s % CS_O * (UNITS / RR_O), end, RAGGED_O);
}

void multiply_o(uint q, uint s) {
    const uint share = warp % SPLIT_O, first = share * PER_O, end = min(first + PER_O, CHUNKS_O);
    if (s % CS_O == 0u) clear_sums();
    multiply_step(q, TYPES_O, at_o, BLOCKS_O, 0u, RR_O, first + s % CS_O * (UNITS / RR_O), end, RAGGED_O);
    if (s % CS_O != CS_O - 1u) return;
    const uint row = row_of(warp / SPLIT_O * N_O + s / CS_O * RR_O, OF_X, WIDTH, RR_O);
    keep_rows(RR_O, local_of(row, OF_X), OF_X, share * STRIDE_X);
}

void begin_o(uint layer) {
    at_o = address(layer, 3u);
    BEGIN(STEPS_O, load_o)
}

// --- the choice of experts

const uint ROUTERS = EXPERTS, ROUTED = LARGER(CEIL(ROUTERS, GROUPS), 1u), READS_R = CEIL(WIDTH / 4u, THREADS);
const uint COMPARERS = 4u * EXPERTS <= THREADS ? 4u : 2u * EXPERTS <= THREADS ? 2u : 1u; // invocations of an expert
shared float routed[WARPS * ROUTED]; // sums of subgroups
shared float logits[EXPERTS + 1u];
shared uint chosen[USED + 1u];
shared float shares[USED + 1u];

vec4 router[ROUTED * READS_R];
float routed_sums[ROUTED];

void begin_routing(uint layer) {
    const uint64_t at = address(layer, 8u);
    [[unroll]] for (uint r = 0u; r < ROUTED; r++) {
        routed_sums[r] = 0.0;
        const uint row = min(wg * ROUTED + r, ROUTERS - 1u);
        [[unroll]] for (uint k = 0u; k < READS_R; k++) {
            const uint e = min(k * THREADS + tid, WIDTH / 4u - 1u);
            router[r * READS_R + k] = FLOATS(at, row * (WIDTH / 4u) + e);
        }
    }
}

#include "persistent_router.glsl"

// Finds the experts with the highest logits, of equal ones those before, as shaders/route.comp does.
void take_routed(uint region) {
    before_polls();
    if (WITH_OTHERS || tid < CEIL(ROUTERS, LANES) * LANES) {
        POLL(1u, region + ACT_L + min(tid, ROUTERS - 1u))
        if (tid < EXPERTS) logits[tid] = uintBitsToFloat(data_of(seen[0]).x);
    }
    if (tid < USED) chosen[tid] = tid; // should a logit be no number
    barrier();
    const uint expert = min(tid / COMPARERS, EXPERTS - 1u);
    const float mine = logits[expert];
    uint better = 0u;
    for (uint k = 0u; k < CEIL(EXPERTS, COMPARERS); k++) {
        const uint i = k * COMPARERS + tid % COMPARERS;
        const float other = logits[min(i, EXPERTS)];
        better += uint(i < EXPERTS && (other > mine || (other == mine && i < expert)));
    }
    [[unroll]] for (uint step = 1u; step < COMPARERS; step *= 2u) better += subgroupShuffleXor(better, step);
    if (tid < COMPARERS * EXPERTS && tid % COMPARERS == 0u && better < USED) chosen[better] = expert;
    barrier();
}

// Computes the shares of the chosen experts by one subgroup.
void find_shares() {
    if (!WITH_OTHERS && warp != 0u) return;
    float top = -1e30, sum = 0.0;
    for (uint i = 0u; i < USED; i++) top = max(top, logits[chosen[i]]);
    for (uint i = 0u; i < USED; i++) sum += exp(logits[chosen[i]] - top);
    for (uint i = lane; i < CEIL(USED, LANES) * LANES; i += LANES) {
        if (i < USED && warp == 0u) shares[i] = exp(logits[chosen[i]] - top) / sum;
    }
}

// --- gate and up

const uint SLOTS_G = WARPS / SPLIT_G, HALF_G = SLOTS_G / 2u, PER_G = CEIL(CHUNKS_X, SPLIT_G), CS_G = CEIL(PER_G, UNITS / RR_G);
const uint N_GATED = RR_G * CEIL(CEIL(OF_G, HALF_G), RR_G), STEPS_G = N_GATED / RR_G * CS_G;

// The first row of a step among the gated values.
uint gated_row(uint s) { return row_of(warp / SPLIT_G % HALF_G * N_GATED + s / CS_G * RR_G, OF_G, FFN, RR_G); }

const bool RAGGED_G = SPLIT_G * PER_G != CHUNKS_X ? true : PER_G % (UNITS / RR_G) != 0u;
uint64_t at_gated;

void load_gated(uint q, uint s) {
    const uint first = warp % SPLIT_G * PER_G, end = min(first + PER_G, CHUNKS_X), chunk = first + s % CS_G * (UNITS / RR_G);
    const uint g = gated_row(s);
    const uint row = chosen[g / EXPERT_FFN] * EXPERT_FFN + g % EXPERT_FFN;
    load_step(q, source_of(at_gated, EXPERTS * EXPERT_FFN * BLOCKS_X, BLOCKS_X), TYPES_G, RR_G, row, chunk, end, RAGGED_G);
}

void multiply_gated(uint q, uint s) {
    const uint share = warp % SPLIT_G, first = share * PER_G, end = min(first + PER_G, CHUNKS_X), g = gated_row(s);
    if (s % CS_G == 0u) clear_sums();
    multiply_step(q, TYPES_G, at_gated, BLOCKS_X, 0u, RR_G, first + s % CS_G * (UNITS / RR_G), end, RAGGED_G);
    if (s % CS_G != CS_G - 1u) return;
    const uint slot = warp / SPLIT_G, up = slot >= HALF_G ? OF_G : 0u;
    keep_rows(RR_G, local_of(g, OF_G), slot < 2u * HALF_G ? OF_G : 0u, share * STRIDE_G + up);
}

void begin_gated(uint layer) {
    at_gated = address(layer, warp / SPLIT_G < HALF_G ? 4u : 5u);
    BEGIN(STEPS_G, load_gated)
}

// --- down

const uint SLOTS_D = WARPS / SPLIT_D, N_D = RR_D * CEIL(CEIL(OF_X, SLOTS_D), RR_D);
const uint CHUNKS_D = CEIL(BLOCKS_D, LANES), PER_D = CEIL(CHUNKS_D, SPLIT_D), CS_D = CEIL(PER_D, UNITS / RR_D);
const uint STEPS_D = N_D / RR_D * CS_D;
const bool RAGGED_D = SPLIT_D * PER_D != CHUNKS_D ? true : PER_D % (UNITS / RR_D) != 0u;
uint64_t at_down;

const uint BLOCKS_E = LARGER(EXPERT_FFN / 32u, 1u);

// The number of a block of the chosen experts' rows, which lie one behind the other.
uint chosen_number(uint row, uint block) {
    block = min(block, BLOCKS_D - 1u);
    return (chosen[block / BLOCKS_E] * WIDTH + row) * BLOCKS_E + block % BLOCKS_E;
}

uint row_of_down(uint batch) { return row_of(warp / SPLIT_D * N_D + batch * RR_D, OF_X, WIDTH, RR_D); }

void load_down(uint q, uint s) {
    const uint first = warp % SPLIT_D * PER_D, end = min(first + PER_D, CHUNKS_D);
    const uint chunk = first + s % CS_D * (UNITS / RR_D), row = row_of_down(s / CS_D);
    Source from = source_of(at_down, WIDTH * BLOCKS_D, BLOCKS_D);
    from = source_of(at_down, EXPERTS * WIDTH * BLOCKS_E, BLOCKS_E);
    from.chosen = true;
    load_step(q, from, TYPES_D, RR_D, row, chunk, end, RAGGED_D);
}

void multiply_down(uint q, uint s) {
    const uint share = warp % SPLIT_D, first = share * PER_D, end = min(first + PER_D, CHUNKS_D);
    if (s % CS_D == 0u) clear_sums();
    multiply_step(q, TYPES_D, at_down, BLOCKS_D, 0u, RR_D, first + s % CS_D * (UNITS / RR_D), end, RAGGED_D);
    if (s % CS_D == CS_D - 1u) keep_rows(RR_D, local_of(row_of_down(s / CS_D), OF_X), OF_X, share * STRIDE_X);
}

void begin_down(uint layer) {
    at_down = address(layer, 6u);
    BEGIN(STEPS_D, load_down)
}

// --- the output matrix

const bool RAGGED_L = CHUNKS_X % (UNITS / RR_L) != 0u;
const uint N_L = RR_L * CEIL(CEIL(OF_L, WARPS), RR_L), CS_L = CEIL(CHUNKS_X, UNITS / RR_L), STEPS_L = N_L / RR_L * CS_L;
uint64_t at_output;

void load_output(uint q, uint s) {
    const uint row = row_of(warp * N_L + s / CS_L * RR_L, OF_L, VOCAB, RR_L);
    load_step(q, source_of(at_output, VOCAB * BLOCKS_X, BLOCKS_X), TYPES_L, RR_L, row, s % CS_L * (UNITS / RR_L), CHUNKS_X, RAGGED_L);
}

void multiply_output(uint q, uint s) {
    if (s % CS_L == 0u) clear_sums();
    multiply_step(q, TYPES_L, at_output, BLOCKS_X, 0u, RR_L, s % CS_L * (UNITS / RR_L), CHUNKS_X, RAGGED_L);
    if (s % CS_L != CS_L - 1u) return;
    keep_rows(RR_L, local_of(row_of(warp * N_L + s / CS_L * RR_L, OF_L, VOCAB, RR_L), OF_L), OF_L, 0u);
}

void begin_output() {
    at_output = address(LAYERS, 0u);
    BEGIN(STEPS_L, load_output)
}

void multiply_output() { BOTH_STEPS(STEPS_L, load_output, multiply_output) }
