// The positions of attention_decode.comp on matrix units whose division of fragments among lanes is known (fragments.glsl).
//
// A subgroup attends to 16 positions at a time. Sums over a head do not depend on the order of its values: lane 4g + q has
// values 8q to 8q + 7 of each 32 of the query of head g, and of the keys of positions g and g + 8, one load of 16 bytes. Of
// the values' fragments, column g has value 8g + 2f of each 64 and column g + 8 the next one, where f counts four fragments;
// a load has them for one of the lane's positions. Rows 8 to 15 of left fragments are empty. The next keys and values are
// requested when the registers of the last are free. K_OCTETS is a multiple of 4, V_OCTETS and block_size of 8 and 16.

const float LOG2E = 1.4426950408889634;
const uint K_STEPS = K_OCTETS / 4u, V_STEPS = V_OCTETS / 8u;

uint seen_from; // first position that the token sees
uint block, next_block; // cache blocks of the positions being loaded and of the next ones
uvec4 keys[K_STEPS * 2u], values[V_STEPS * 4u]; // being loaded
LEFT query[K_STEPS * 2u];
ACCUMULATOR results[V_STEPS * 4u];
float top = LOWEST, total = 0.0; // of head g; logarithms are binary

uint block_at(uint at) { return step_words[table + sequence * table_width + min(at / block_size, table_width - 1u)]; }

void find_blocks(uint first) { block = block_at(first + SUBGROUP * FRAGMENT); }

void request_keys(uint first, uint head_kv) {
    [[unroll]] for (uint upper = 0; upper < 2u; upper++) {
        const uint row = (cache_at + cell_row(block, first + upper * 8u + LANE / 4u, head_kv) * k_row_words) / 4u;
        [[unroll]] for (uint j = 0; j < K_STEPS; j++) keys[j * 2u + upper] = cache4[row + j * 4u + LANE % 4u];
    }
}

void request_values(uint first, uint head_kv) {
    [[unroll]] for (uint s = 0; s < 4u; s++) {
        const uint cell = cell_row(block, first + column_of(LANE, s), head_kv);
        const uint row = (cache_at + v_cache + cell * v_row_words) / 4u;
        [[unroll]] for (uint w = 0; w < V_STEPS; w++) values[w * 4u + s] = cache4[row + w * 8u + LANE / 4u];
    }
}

// Requests the keys and values of a part's first positions.
void request(uint start, uint end, uint head_kv) {
    const uint first = start + SUBGROUP * FRAGMENT;
    if (first >= end) return;
    request_keys(first, head_kv);
    request_values(first, head_kv);
    next_block = block_at(first + CHUNK);
}

uvec4 octet_of(vec4 a, vec4 b) {
    return uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
}

// Replaces what was loaded by the token's own key and value, and by zeros behind them.
void end_positions(uint first) {
    [[unroll]] for (uint i = 0; i < K_STEPS * 2u; i++) {
        const uint octet = i / 2u * 4u + LANE % 4u;
        if (first + i % 2u * 8u + LANE / 4u == position) keys[i] = octet_of(new_keys[octet * 2u], new_keys[octet * 2u + 1u]);
    }
    [[unroll]] for (uint i = 0; i < V_STEPS * 4u; i++) {
        const uint octet = i / 4u * 8u + LANE / 4u, at = first + column_of(LANE, i % 4u);
        if (at == position) values[i] = octet_of(new_values[octet * 2u], new_values[octet * 2u + 1u]);
        if (at > position) values[i] = uvec4(0u);
    }
}

void load_queries() {
    [[unroll]] for (uint j = 0; j < K_STEPS * 2u; j++) {
        const uint head = LANE / 4u;
        const vec4 quad = head < HEADS ? queries[head * K_QUADS + j / 2u * 8u + LANE % 4u * 2u + j % 2u] : vec4(0.0);
        [[unroll]] for (uint e = 0; e < 8u; e++) AT(query[j], e) = float16_t(e < 4u ? quad[e % 4u] : 0.0);
    }
}

ACCUMULATOR multiply_queries() {
    ACCUMULATOR scores = ACCUMULATOR_OF(0.0);
    [[unroll]] for (uint j = 0; j < K_STEPS; j++) {
        [[unroll]] for (uint odd = 0; odd < 2u; odd++) {
            RIGHT key;
            [[unroll]] for (uint e = 0; e < 8u; e++)
                AT(key, e) = unpackFloat2x16(keys[j * 2u + e / 4u][odd * 2u + e / 2u % 2u])[e % 2u];
            scores = MULTIPLY(query[j * 2u + odd], key, scores);
        }
    }
    return scores;
}

// Returns weights of scores relative to the highest one, and rescales the results if there is a new one.
LEFT weigh(ACCUMULATOR scores, uint first, uint end) {
    float score[4], highest = LOWEST;
    [[unroll]] for (uint s = 0; s < 4u; s++) {
        const uint at = first + column_of(LANE, s);
        score[s] = at >= seen_from && at < end ? capped(AT(scores, element_of(0u, s))) * LOG2E : LOWEST;
        highest = max(highest, score[s]);
    }
    highest = max(highest, SHUFFLE_XOR(highest, 1u));
    highest = max(highest, SHUFFLE_XOR(highest, 2u));
    const float fresh = max(top, highest), from = fresh == LOWEST ? 0.0 : fresh, factor = exp2(top - from);
    const bool same = top == fresh;
    top = fresh;
    total *= factor;
    LEFT weights;
    [[unroll]] for (uint e = 0; e < 8u; e++) {
        const float weight = e < 4u ? exp2(score[e % 4u] - from) : 0.0;
        total += weight;
        AT(weights, e) = float16_t(weight);
    }
    if (!ALL(same))
        [[unroll]] for (uint i = 0; i < V_STEPS * 4u; i++)
            [[unroll]] for (uint e = 0; e < 8u; e++)
                if (upper_of(e) == 0u) AT(results[i], e) *= factor;
    return weights;
}

void add_values(LEFT weights) {
    [[unroll]] for (uint i = 0; i < V_STEPS * 4u; i++) {
        RIGHT value;
        [[unroll]] for (uint e = 0; e < 8u; e++)
            AT(value, e) = unpackFloat2x16(values[i / 4u * 4u + e % 4u][i % 4u])[e / 4u];
        results[i] = MULTIPLY(weights, value, results[i]);
    }
}

// Attends to the positions of a part, and leaves the sums of each subgroup in shared memory.
void attend(uint start, uint end, uint head_kv) {
    load_queries();
    [[unroll]] for (uint i = 0; i < V_STEPS * 4u; i++) results[i] = ACCUMULATOR_OF(0.0);
    for (uint first = start + SUBGROUP * FRAGMENT; first < end; first += CHUNK) {
        const bool more = first + CHUNK < end;
        block = next_block;
        if (more) next_block = block_at(first + 2u * CHUNK);
        if (first + FRAGMENT > position) end_positions(first);
        ACCUMULATOR scores = multiply_queries();
        if (more) request_keys(first + CHUNK, head_kv);
        const LEFT weights = weigh(scores, first, end);
        add_values(weights);
        if (more) request_values(first + CHUNK, head_kv);
    }
    float sum = total;
    sum += SHUFFLE_XOR(sum, 1u);
    sum += SHUFFLE_XOR(sum, 2u);
    const uint head = LANE / 4u, to = SUBGROUP * HEADS + head;
    if (head >= HEADS) return;
    if (LANE % 4u == 0u) states[to] = vec2(top / LOG2E, sum);
    [[unroll]] for (uint i = 0; i < V_STEPS * 4u; i++) {  // values 16q to 16q + 15 of each 64
        const uint w = i / 4u, quad = i % 4u;
        vec4 value;
        [[unroll]] for (uint c = 0; c < 4u; c++) {
            const uint f = quad % 2u * 2u + c / 2u, s = quad / 2u + c % 2u * 2u;
            value[c] = AT(results[w * 4u + f], element_of(0u, s));
        }
        sums[to * V_QUADS + w * 16u + LANE % 4u * 4u + quad] = value;
    }
}
