// The choice of experts in shaders/persistent.comp. Each workgroup sums ROUTED rows of the router; all choose alike.
//
// The matrices of gate, up and down are stacks of the experts' own. The gated values of the chosen experts, and the blocks of a row
// of down, lie one behind the other; the gated values carry the experts' shares.

const uint OF_EXPERT = FFN / USED, BLOCKS_E = OF_EXPERT / 32u; // gated values of an expert; blocks
const uint ROUTED = CEIL(EXPERTS, GROUPS), READS_R = CEIL(WIDTH / 4u, THREADS);
const uint COMPARERS = 4u * EXPERTS <= THREADS ? 4u : 2u * EXPERTS <= THREADS ? 2u : 1u; // invocations of an expert

shared float routed[WARPS * ROUTED]; // sums of subgroups
shared float logits[EXPERTS];
shared uint chosen[USED];
shared float shares[USED];

vec4 router[ROUTED * READS_R];
float routed_sums[ROUTED];

// Requests the router's rows.
void begin_routing(uint layer) {
    const uvec2 at = addresses[places_at / 2u + TABLE_ROW * layer + 8u];
    [[unroll]] for (uint r = 0u; r < ROUTED; r++) {
        routed_sums[r] = 0.0;
        [[unroll]] for (uint k = 0u; k < READS_R; k++) {
            const uint row = min(wg * ROUTED + r, EXPERTS - 1u), e = min(k * THREADS + tid, WIDTH / 4u - 1u);
            router[r * READS_R + k] = FLOATS(at, row * (WIDTH / 4u) + e);
        }
    }
}

void route(uint k, vec4 v) {
    [[unroll]] for (uint r = 0u; r < ROUTED; r++) routed_sums[r] += dot(router[r * READS_R + k], v);
}

void sum_routed() {
    [[unroll]] for (uint r = 0u; r < ROUTED; r++) {
        const float sum = subgroupAdd(routed_sums[r]);
        if (lane == 0u) routed[r * WARPS + warp] = sum;
    }
}

// Gives the logits of this workgroup's experts, one a subgroup.
void give_routed(uint region, float factor) {
    const uint r = min(warp, ROUTED - 1u);
    float sum = 0.0;
    for (uint i = lane; i < WARPS; i += LANES) sum += routed[r * WARPS + i];
    sum = subgroupAdd(sum) * factor;
    const bool mine = warp < ROUTED && wg * ROUTED + r < EXPERTS;
    if (mine && lane == 0u) put(region + ACT_L + wg * ROUTED + r, uvec2(floatBitsToUint(sum), 0u));
}

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
    [[unroll]] for (uint k = 0u; k < CEIL(EXPERTS, COMPARERS); k++) {
        const uint i = k * COMPARERS + tid % COMPARERS;
        const float other = logits[min(i, EXPERTS - 1u)];
        better += uint(i < EXPERTS && (other > mine || (other == mine && i < expert)));
    }
    [[unroll]] for (uint step = 1u; step < COMPARERS; step *= 2u) better += subgroupShuffleXor(better, step);
    if (tid < COMPARERS * EXPERTS && tid % COMPARERS == 0u && better < USED) chosen[better] = expert;
    barrier();
}

// Computes the shares of the chosen experts, by one subgroup.
void find_shares() {
    if (!WITH_OTHERS && warp != 0u) return;
    const float top = logits[chosen[0]];
    float sum = 0.0;
    for (uint i = 0u; i < USED; i++) sum += exp(logits[chosen[i]] - top);
    for (uint i = lane; i < CEIL(USED, LANES) * LANES; i += LANES) {
        if (i < USED && warp == 0u) shares[i] = exp(logits[chosen[i]] - top) / sum;
    }
}

// The row of a stack that gives a gated value.
uint chosen_row(uint gated) { return chosen[gated / OF_EXPERT] * OF_EXPERT + gated % OF_EXPERT; }
