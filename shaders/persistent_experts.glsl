// The products of shaders/persistent.comp for models with experts, whose weights are found by address or offset.
//
// A subgroup's rows of queries, keys and values, and those of attention's output, are asked for ahead as a whole. Rows of
// gate and up can only be asked for when the experts are chosen, rows of down as soon as those are multiplied. A row of down
// is that of all chosen experts, one behind the other; the gated values carry the experts' shares.

const uint OF_EXPERT = FFN / USED, BLOCKS_E = OF_EXPERT / 32u; // gated values of an expert; blocks
const uint N_KV = CEIL(2u * OF_K, SLOTS_X);
const uint ROWS_D = CEIL(OF_X, WARPS), UNITS_D = BLOCKS_D / LANES; // of a subgroup; of a row
const uint ROUTED = CEIL(EXPERTS, GROUPS), READS_R = CEIL(WIDTH / 4u, THREADS);
const uint COMPARERS = 4u; // invocations of an expert

struct Unit { uvec4 low; uvec2 high; uint scale, super; };
struct Pointers { uint64_t low, high, scale, super; };

shared float routed[WARPS * ROUTED]; // sums of subgroups
shared float logits[EXPERTS];
shared uint chosen[USED];
shared float shares[USED];

Unit ahead[AHEAD], down[ROWS_D * UNITS_D];
bool six_v = false, six_down = false;
uint here, there; // layers

uint64_t address(uint layer, uint i) { return packUint2x32(addresses[places_at / 2u + TABLE_ROW * layer + i]); }

void load_places(uint layer) { there = layer; }
void move_on() { here = there; }
void ask_again() {}

Pointers aim(uint64_t at, uint total, uint number, bool six) {
    const uint64_t codes = at + 16ul * uint64_t(total), scales = codes + (six ? 8ul * uint64_t(total) : 0ul);
    const uint64_t n = uint64_t(number);
    return Pointers(at + 16ul * n, codes + 8ul * n, scales + 2ul * n, scales + 2ul * uint64_t(total) + n / 8ul * 4ul);
}

// Requests a unit `I` blocks behind pointers, a multiple of 8.
#define LOAD(UNIT, FROM, I, SIX_BITS) \
    UNIT.low = CODES(FROM.low, (I)); \
    UNIT.scale = SCALES(FROM.scale, (I)); \
    if (SIX_BITS || MATRIX != Q4_0) UNIT.super = SUPERS(FROM.super, (I) / 8u); \
    if (SIX_BITS) UNIT.high = BITS(FROM.high, (I));

float product_of(Unit unit, bool six) {
    return product(six ? Q6_K : MATRIX, unit.low, unit.high, unit.scale, unit.super);
}

// Stores the sums of `count` units, of which `n` are rows of this subgroup from `first` on.
void keep_sums(uint count, uint n, uint first, uint of, uint chunks, uint slots, uint first_row, uint stride) {
    sum_lanes(count);
    const uint chunk = warp % chunks, slot = warp / chunks, i = lane / (LANES / count), row = slot * n + first + i;
    const bool mine = lane % (LANES / count) == 0u && first + i < n && row < of && slot < slots;
    if (mine) partial[chunk * stride + first_row + row] = sums[0];
}

// Multiplies `N` units of four bits, of which `UNIT` is the one at first + i, and stores their sums as keep_sums does. It is
// no function, since compilers unroll loops whose bounds are constants of the text.
#define MULTIPLY(UNIT, N, OF, CHUNKS, SLOTS, FIRST_ROW, STRIDE) \
    EACH_UNIT for (uint first = 0u; first < N; first += 8u) { \
        EACH_UNIT for (uint i = 0u; i < 8u; i++) { \
            sums[i] = 0.0; \
            if (first + i < N) sums[i] = product_of(UNIT, false); \
        } \
        keep_sums(batch_of(N - first), N, first, OF, CHUNKS, SLOTS, FIRST_ROW, STRIDE); \
    }

// --- queries, keys and values

uint row_kv(uint i) { return min(min(warp / CHUNKS_X, SLOTS_X - 1u) * N_KV + i, 2u * OF_K - 1u); }

void load_qkv(uint layer) {
    const uint slot = min(warp / CHUNKS_X, SLOTS_X - 1u), block = warp % CHUNKS_X * LANES + lane;
    const uint64_t at_k = address(layer, 1u), at_v = address(layer, 2u);
    const Pointers q = aim(address(layer, 0u), QUERY * BLOCKS_X, (wg * OF_Q + slot * N_Q) * BLOCKS_X + block, false);
    EACH_UNIT for (uint i = 0u; i < N_Q; i++) {
        LOAD(ahead[i], q, i * BLOCKS_X, false)
    }
    six_v = MIXED && (at_v & 15ul) != 0ul;
    EACH_UNIT for (uint i = 0u; i < N_KV; i++) {
        const uint row = row_kv(i);
        const bool value = row >= OF_K;
        const uint number = (wg * OF_K + (value ? row - OF_K : row)) * BLOCKS_X + block;
        if (MIXED && value && six_v) {
            const Pointers from = aim(at_v & ~15ul, KEY * BLOCKS_X, number, true);
            LOAD(ahead[N_Q + i], from, 0u, true)
        } else {
            const Pointers from = aim(value ? at_v : at_k, KEY * BLOCKS_X, number, false);
            LOAD(ahead[N_Q + i], from, 0u, false)
        }
    }
}

void load_first() { load_qkv(0u); }

void multiply_q(bool last) { MULTIPLY(ahead[first + i], N_Q, OF_Q, CHUNKS_X, SLOTS_X, 0u, STRIDE_Q) }

void multiply_k(bool last) {
    EACH_UNIT for (uint first = 0u; first < N_KV; first += 8u) {
        EACH_UNIT for (uint i = 0u; i < 8u; i++) {
            sums[i] = 0.0;
            if (first + i >= N_KV) continue;
            if (MIXED && six_v && row_kv(first + i) >= OF_K) sums[i] = product_of(ahead[N_Q + first + i], true);
            else sums[i] = product_of(ahead[N_Q + first + i], false);
        }
        keep_sums(batch_of(N_KV - first), N_KV, first, 2u * OF_K, CHUNKS_X, SLOTS_X, OF_Q, STRIDE_Q);
    }
}

void multiply_v(bool last) {}

// --- attention's output

void load_o(uint layer) {
    const uint slot = min(warp / CHUNKS_O, SLOTS_O - 1u), block = warp % CHUNKS_O * LANES + lane;
    const Pointers from = aim(address(layer, 3u), WIDTH * BLOCKS_O, (wg * OF_X + slot * N_O) * BLOCKS_O + block, false);
    EACH_UNIT for (uint i = 0u; i < N_O; i++) {
        LOAD(ahead[i], from, i * BLOCKS_O, false)
    }
}

void multiply_o(bool last) { MULTIPLY(ahead[first + i], N_O, OF_X, CHUNKS_O, SLOTS_O, 0u, STRIDE_X) }

// --- the choice of experts

vec4 router[ROUTED * READS_R];
float routed_sums[ROUTED];

void begin_routing(uint layer) {
    const uint64_t at = address(layer, 8u);
    [[unroll]] for (uint r = 0u; r < ROUTED; r++) {
        routed_sums[r] = 0.0;
        [[unroll]] for (uint k = 0u; k < READS_R; k++) {
            const uint row = min(wg * ROUTED + r, EXPERTS - 1u), e = min(k * THREADS + tid, WIDTH / 4u - 1u);
            router[r * READS_R + k] = FLOATS(at, row * (WIDTH / 4u) + e);
        }
    }
}

#define ROUTERS EXPERTS
#include "persistent_router.glsl"

// Finds the experts with the highest logits, of equal ones those before, as shaders/route.comp does.
void take_routed(uint region) {
    before_polls();
    if (WITH_OTHERS || tid < CEIL(EXPERTS, LANES) * LANES) {
        POLL(1u, region + ACT_L + min(tid, EXPERTS - 1u))
        if (tid < EXPERTS) logits[tid] = uintBitsToFloat(data_of(seen[0]).x);
    }
    if (tid < USED) chosen[tid] = tid; // should a logit be no number
    barrier();
    const uint expert = min(tid / COMPARERS, EXPERTS - 1u);
    const float mine = logits[expert];
    uint better = 0u;
    [[unroll]] for (uint k = 0u; k < EXPERTS / COMPARERS; k++) {
        const uint i = k * COMPARERS + tid % COMPARERS;
        better += uint(logits[i] > mine || (logits[i] == mine && i < expert));
    }
    [[unroll]] for (uint step = 1u; step < COMPARERS; step *= 2u) better += subgroupShuffleXor(better, step);
    if (tid < COMPARERS * EXPERTS && tid % COMPARERS == 0u && better < USED) chosen[better] = expert;
    barrier();
}

// --- the experts

void find_shares() {
    if (tid >= USED) return;
    const float top = logits[chosen[0]];
    float sum = 0.0;
    [[unroll]] for (uint i = 0u; i < USED; i++) sum += exp(logits[chosen[i]] - top);
    shares[tid] = exp(logits[chosen[tid]] - top) / sum;
}

void load_down(uint layer) {
    const uint64_t at = address(layer, 6u);
    six_down = MIXED && (at & 15ul) != 0ul;
    EACH_UNIT for (uint i = 0u; i < ROWS_D * UNITS_D; i++) {
        const uint row = wg * OF_X + min(warp * ROWS_D + i / UNITS_D, OF_X - 1u), block = i % UNITS_D * LANES + lane;
        const uint number = (chosen[block / BLOCKS_E] * WIDTH + row) * BLOCKS_E + block % BLOCKS_E;
        if (MIXED && six_down) {
            const Pointers from = aim(at & ~15ul, EXPERTS * WIDTH * BLOCKS_E, number, true);
            LOAD(down[i], from, 0u, true)
        } else {
            const Pointers from = aim(at, EXPERTS * WIDTH * BLOCKS_E, number, false);
            LOAD(down[i], from, 0u, false)
        }
    }
}

// Gate and up of this workgroup's rows, those of a subgroup of one expert.
void multiply_experts(uint layer) {
    const uint slot = min(warp / CHUNKS_X, SLOTS_X - 1u), block = warp % CHUNKS_X * LANES + lane;
    const uint first_row = wg * OF_G + slot * N_G, expert = chosen[first_row / OF_EXPERT];
    const uint number = (expert * OF_EXPERT + first_row % OF_EXPERT) * BLOCKS_X + block;
    const Pointers gate = aim(address(layer, 4u), EXPERTS * OF_EXPERT * BLOCKS_X, number, false);
    const Pointers up = aim(address(layer, 5u), EXPERTS * OF_EXPERT * BLOCKS_X, number, false);
    Unit units[2u * N_G];
    EACH_UNIT for (uint i = 0u; i < N_G; i++) {
        LOAD(units[i], gate, i * BLOCKS_X, false)
    }
    EACH_UNIT for (uint i = 0u; i < N_G; i++) {
        LOAD(units[N_G + i], up, i * BLOCKS_X, false)
    }
    find_shares();
    EACH_UNIT for (uint which = 0u; which < 2u; which++) {
        MULTIPLY(units[which * N_G + first + i], N_G, OF_G, CHUNKS_X, SLOTS_X, which * OF_G, STRIDE_G)
    }
    load_down(layer);
}

void load_output(uint i, uint row_of_slot) {
    const uint slot = min(warp / CHUNKS_X, SLOTS_X - 1u), block = warp % CHUNKS_X * LANES + lane;
    const uint row = min(wg * OF_L + min(slot * N_L + row_of_slot, OF_L - 1u), VOCAB - 1u);
    const Pointers from = aim(address(LAYERS, 0u), VOCAB * BLOCKS_X, row * BLOCKS_X + block, OUTPUT == Q6_K);
    LOAD(ahead[i], from, 0u, OUTPUT == Q6_K)
}

void multiply_down(bool last) {
    EACH_UNIT for (uint r = 0u; r < ROWS_D; r++) {
        float sum = 0.0;
        EACH_UNIT for (uint c = 0u; c < UNITS_D; c++) {
            take_x(c);
            if (MIXED && six_down) sum += product_of(down[r * UNITS_D + c], true);
            else sum += product_of(down[r * UNITS_D + c], false);
        }
        sum = subgroupAdd(sum);
        if (lane == 0u && warp * ROWS_D + r < OF_X) partial[warp * ROWS_D + r] = sum;
    }
    if (last) {
        EACH_UNIT for (uint i = 0u; i < AHEAD; i++) load_output(i, min(i, N_L - 1u));
    } else {
        load_qkv(here + 1u);
    }
}

void multiply_output() {
    [[dont_unroll]] for (uint r = 0u; r < N_L; r += AHEAD) {
        EACH_UNIT for (uint i = 0u; i < 8u; i++) {
            sums[i] = product_of(ahead[i], OUTPUT == Q6_K);
            load_output(i, min(r + AHEAD + i, N_L - 1u));
        }
        sum_lanes(8u);
        const uint i = r + lane / (LANES / 8u), slot = warp / CHUNKS_X, row = slot * N_L + i;
        const bool mine = lane % (LANES / 8u) == 0u && i < N_L && row < OF_L && slot < SLOTS_X;
        if (mine) partial[warp % CHUNKS_X * STRIDE_L + row] = sums[0];
    }
}
