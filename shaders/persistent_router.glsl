// Logits of experts: each workgroup sums ROUTED rows of the router, of ROUTERS in all. Included by shaders/persistent_experts.glsl and
// shaders/persistent_general.glsl, which request the rows (`router`) and declare the sums (`routed_sums`, and `routed` of subgroups).

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
    const bool mine = warp < ROUTED && wg * ROUTED + r < ROUTERS;
    if (mine && lane == 0u) put(region + ACT_L + wg * ROUTED + r, uvec2(floatBitsToUint(sum), 0u));
}
