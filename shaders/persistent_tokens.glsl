// Several tokens in one dispatch of shaders/persistent.comp: the rows of a step, of one or several sequences.
//
// Rows behind those of the step repeat the last one, so that every word of `act` carries the epoch. Each row has the division
// of attention that it has alone, and reads keys and values of its sequence that are of this step as float16, as from the cache.

const uint READS_X = CEIL(WIDTH / 4u, THREADS);
#define TOGETHER_OF(READS) (MOST_READ < READS ? 1u : MOST_READ / READS < TOKENS ? MOST_READ / READS : TOKENS)
const uint TOGETHER_X = TOGETHER_OF(READS_X), TOGETHER_O = TOGETHER_OF(READS_O);
const uint STEPS_X = CEIL(TOKENS, TOGETHER_X), STEPS_O = CEIL(TOKENS, TOGETHER_O); // rows whose words are read together

// Of a row: position, positions of a part, parts; and a word of `deep`, the row that it repeats or is, and earlier ones of its
// sequence.
shared uvec4 infos[TOKENS];
shared uint tables[TOKENS]; // first word of the sequence's block table
shared float factors[TOKENS]; // of a norm
bool any_deep = false, any_flat = false, any_parts = false;

uint source_of(uint t) { return infos[t].w >> 8 & 0xffu; }
bool is_deep(uint t) { return (infos[t].w & 1u) != 0u; }

void find_tokens() {
    n_outputs = row_count(n_logits);
    if (tid < n_outputs) output_tokens[tid] = step_words[output_ids + tid];
    if (tid < TOKENS) {
        const uint row = min(tid, row_count(rows) - 1u), p = step_words[positions + row];
        const uint sequence = step_words[sequences + row], earlier = row - step_words[seq_starts + sequence];
        uvec4 info = uvec4(p, 0u, 0u, row << 8 | earlier << 16);
        if (SHARE > 1u && p >= DEEP) { // parts of the positions in the cache
            info.y = AT_ONCE * CEIL(p, DEEP_PARTS * AT_ONCE);
            info.z = CEIL(p, info.y);
            info.w |= 1u;
        } else {
            const uint n_parts = clamp((p + 1u) / (2u * POSITIONS), 1u, PARTS);
            info.y = POSITIONS * CEIL(p + 1u, n_parts * POSITIONS);
            info.z = CEIL(p + 1u, info.y);
        }
        infos[tid] = info;
        tables[tid] = sequence * table_width;
    }
    barrier();
    for (uint t = 0u; t < TOKENS; t++) {
        any_deep = any_deep || is_deep(t);
        any_flat = any_flat || !is_deep(t);
        any_parts = any_parts || !(PARTS == 1u || infos[t].z == 1u || is_deep(t));
    }
}

// Makes a row the current one.
void choose(uint t) {
    const uvec4 info = infos[t];
    token = t;
    position = info.x;
    per_part = info.y;
    n_used = info.z;
    deep = (info.w & 1u) != 0u;
    source = info.w >> 8 & 0xffu;
    first_new = position - (info.w >> 16);
    own_from = source * 2u * DIM;
    act_from = t * ACT_TOKEN;
    block_from = t * BLOCKS_TOKEN;
    table_from = tables[t];
}

// --- x of a product

const uint SPILLED_TOKEN = 3u * BLOCKS_D; // codes of both halves of each block, and scales

uint spilled_from(uint t) { return spilled_at / 4u + (wg * TOKENS + t) * SPILLED_TOKEN; }

void take_x_of(uint t, uint chunk, uint chunks, uint blocks, bool is_gated) {
    if (is_gated && !GATED_SHARED) {
        const uint n = CEIL(blocks, chunks), at = chunk * n + lane, b = spilled_from(t) + min(at, blocks - 1u);
        x_low = spilled[b];
        x_high = spilled[b + BLOCKS_D];
        x_scales = lane < n && at < blocks ? uintBitsToFloat(spilled[b + 2u * BLOCKS_D]) : vec4(0.0);
    } else {
        block_from = t * BLOCKS_TOKEN;
        take_narrow(chunk, chunks, blocks);
    }
}

// Finds the factors of a norm, one by each subgroup; they are known behind a barrier.
float norm_factor() {
    [[unroll]] for (uint first = 0u; first < TOKENS; first += WARPS) {
        const uint t = min(first + warp, TOKENS - 1u);
        float sum = 0.0;
        for (uint i = lane; i < WARPS; i += LANES) sum += squares[t * WARPS + i];
        const float factor = inversesqrt(subgroupAdd(sum) / float(WIDTH) + SHRINK * SHRINK * eps);
        if (lane == 0u && first + warp < TOKENS) factors[t] = factor;
    }
    return 0.0;
}

// Keeps x times a norm's weights, of all rows.
void take_normed(uint layer, uint region, uint norm) {
    vec4 weights[READS_X];
    [[unroll]] for (uint k = 0u; k < READS_X; k++) {
        weights[k] = norms[norms_at / 4u + norm * (WIDTH / 4u) + min(k * THREADS + tid, WIDTH / 4u - 1u)];
    }
    before_polls();
    act_from = 0u;
    [[unroll]] for (uint s = 0u; s < STEPS_X; s++) {
        if (region != 0u) {
            POLL(TOGETHER_X * READS_X, region + min(s * TOGETHER_X + k / READS_X, TOKENS - 1u) * ACT_TOKEN
                                           + min(k % READS_X * THREADS + tid, WIDTH / 4u - 1u))
        }
        [[unroll]] for (uint i = 0u; i < TOGETHER_X; i++) {
            const uint t = s * TOGETHER_X + i;
            if (t >= TOKENS) continue;
            block_from = t * BLOCKS_TOKEN;
            float sum = 0.0;
            [[unroll]] for (uint k = 0u; k < READS_X; k++) {
                const uint e = k * THREADS + tid;
                const bool real = e < WIDTH / 4u;
                vec4 v = vec4(0.0);
                if (real && region != 0u) v = halves_of(seen[i * READS_X + k]);
                if (real && region == 0u) {
                    const uint at = x_at + source_of(t) * WIDTH + 4u * e;
                    v = SHRINK * vec4(x[at], x[at + 1u], x[at + 2u], x[at + 3u]);
                }
                sum += dot(v, v);
                keep(real, e, v * weights[k]);
            }
            sum = subgroupAdd(sum);
            if (subgroupElect()) squares[t * WARPS + warp] = sum;
        }
    }
}

// Keeps the results of attention of all rows.
void take_all_attended(uint region) {
    if (any_parts) {
        [[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
            choose(t);
            take_attended(region);
        }
        return;
    }
    before_polls();
    act_from = 0u;
    [[unroll]] for (uint s = 0u; s < STEPS_O; s++) {
        POLL(TOGETHER_O * READS_O, region + min(s * TOGETHER_O + k / READS_O, TOKENS - 1u) * ACT_TOKEN
                                       + (DEEP_PARTS > 1u && is_deep(min(s * TOGETHER_O + k / READS_O, TOKENS - 1u)) ? ACT_M : ACT_O)
                                       + min(k % READS_O * THREADS + tid, QUERY / 4u - 1u))
        [[unroll]] for (uint i = 0u; i < TOGETHER_O; i++) {
            const uint t = s * TOGETHER_O + i;
            if (t >= TOKENS) continue;
            block_from = t * BLOCKS_TOKEN;
            [[unroll]] for (uint k = 0u; k < READS_O; k++) {
                const uint e = k * THREADS + tid;
                keep(e < QUERY / 4u, e, e < QUERY / 4u ? halves_of(seen[i * READS_O + k]) : vec4(0.0));
            }
        }
    }
}

// Keeps word `e` of the gated values of a token, whose blocks begin at `from`.
void keep_gated(uint from, uint e, uvec2 data) {
    if (e < FFN / 8u) {
        const uint word = 2u * e & 7u, at = (word >> 2) * MOST_X + from + e / 4u;
        codes[at][word & 3u] = data.x;
        codes[at][(word & 3u) + 1u] = data.y;
    } else {
        const uint half_ = e - FFN / 8u;
        const float size = uintBitsToFloat(data.x);
        scales[from + half_ / 2u][half_ & 1u] = size;
        scales[from + half_ / 2u][2u + (half_ & 1u)] = size * float(int(data.y));
    }
}

// Keeps the gated values of all rows, in this workgroup's part of `spilled` if the shared memory has no room.
void take_gated(uint region) {
    const uint n = FFN / 8u + FFN / 16u, total = TOKENS * n;
    before_polls();
    act_from = 0u;
    [[dont_unroll]] for (uint first = 0u; first < total; first += MOST_READ * THREADS) {
        POLL(MOST_READ, region + ACT_F + min(first + k * THREADS + tid, total - 1u) / n * ACT_TOKEN
                            + min(first + k * THREADS + tid, total - 1u) % n)
        [[unroll]] for (uint k = 0u; k < MOST_READ; k++) {
            const uint i = first + k * THREADS + tid, e = i % n, from = spilled_from(i / n);
            if (i >= total) continue;
            const uvec2 data = data_of(seen[k]);
            if (GATED_SHARED) {
                keep_gated(i / n * BLOCKS_TOKEN, e, data);
            } else if (e < FFN / 8u) {
                const uint word = 2u * e & 7u, at = 4u * (from + (word >> 2) * BLOCKS_D + e / 4u) + (word & 3u);
                spilled_words[at] = data.x;
                spilled_words[at + 1u] = data.y;
            } else {
                const uint half_ = e - FFN / 8u, at = 4u * (from + 2u * BLOCKS_D + half_ / 2u) + (half_ & 1u);
                const float size = uintBitsToFloat(data.x);
                spilled_words[at] = data.x;
                spilled_words[at + 2u] = floatBitsToUint(size * float(int(data.y)));
            }
        }
    }
    if (!GATED_SHARED) {
        controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
    }
}

// --- attention

vec4 waiting; // this invocation's part of the queries of a row

// Takes keys and values of all rows, and the queries of `n` heads from `first_head`, which take_heads puts in place.
void gather_heads(uint region, uint first_head, uint n, uint kv) {
    const uint fours = DIM / 4u, of_row = (2u + n) * fours, e = min(tid, TOKENS * of_row - 1u);
    const uint which = e % of_row / fours;
    const uint from = which < 2u ? QUERY / 4u + which * (KEY / 4u) + kv * fours : (first_head + which - 2u) * fours;
    before_polls();
    act_from = 0u;
    POLL(1u, region + e / of_row * ACT_TOKEN + ACT_Q + from + e % fours)
    waiting = halves_of(seen[0]);
    if (which < 2u) {
        [[unroll]] for (uint c = 0u; c < 4u; c++) heads[(2u * (e / of_row) + which) * DIM + 4u * (e % fours) + c] = waiting[c];
    }
    barrier();
    if (tid < TOKENS * (n_rot / 2u)) {
        const uint pair = tid % (n_rot / 2u), t = tid / (n_rot / 2u), base = 2u * t * DIM;
        TURN(base, pair, infos[t].x)
    }
}

// Puts the queries of the current row in place, with rotary positions. Behind it, the keys of all rows have theirs.
void take_heads(uint region, uint first_head, uint n, uint kv) {
    const uint fours = DIM / 4u, of_row = (2u + n) * fours, e = tid % of_row;
    if (tid / of_row == token && e >= 2u * fours) {
        const uint at = FIRST_QUERY * DIM + 4u * (e - 2u * fours);
        [[unroll]] for (uint c = 0u; c < 4u; c++) heads[at + c] = waiting[c];
    }
    barrier();
    if (tid < n * (n_rot / 2u)) {
        const uint pair = tid % (n_rot / 2u), base = (FIRST_QUERY + tid / (n_rot / 2u)) * DIM;
        TURN(base, pair, position)
    }
    barrier();
}

// Attention of a head: parts of rows are divided among the workgroups that have this head.
void attend_flat(uint region, uint head) {
    const uint kv = head / (HEADS / KV_HEADS), turn_ = wg / HEADS;
    uint number = 0u, first = TOKENS; // parts; the row of this workgroup's first one, whose keys are asked for ahead
    for (uint t = 0u; t < TOKENS; t++) {
        choose(t);
        for (uint part = 0u; !deep && first == TOKENS && part < min(n_used, PARTS); part++) {
            if (number++ % PARTS != turn_) continue;
            first = t;
            request(kv, part * per_part, false);
        }
    }
    gather_heads(region, head, 1u, kv);
    number = 0u;
    bool is_first = true;
    [[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
        choose(t);
        if (deep) continue;
        [[dont_unroll]] for (uint part = 0u; part < PARTS; part++) {
            if (part >= n_used) {
                if (part == turn_) skip_part(region, head, part);
            } else if (number++ % PARTS == turn_) {
                if (!is_first) request(kv, part * per_part, false);
                is_first = false;
                attend(region, head, part, true);
            }
        }
    }
}

void attend_all(uint region) {
    if (any_flat) {
        [[dont_unroll]] for (uint head = wg % HEADS; head < HEADS; head += GROUPS) attend_flat(region, head);
        [[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
            choose(t);
            if (!deep) refresh(region);
        }
    }
    if (!any_deep) return;
    [[dont_unroll]] for (uint team = wg % TEAMS; team < TEAMS; team += GROUPS) {
        gather_heads(region, team * SHARE, SHARE, team * SHARE / (HEADS / KV_HEADS));
        [[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
            choose(t);
            if (!deep) continue;
            if (wg / TEAMS < n_used) attend_together(region, team, wg / TEAMS);
            else skip_together(region, team, wg / TEAMS);
        }
    }
    ask_again();
    [[dont_unroll]] for (uint t = 0u; DEEP_PARTS > 1u && t < TOKENS; t++) {
        choose(t);
        if (deep) merge_parts(region);
    }
}

// --- results of products

void give_heads(uint region, float unused) {
    [[unroll]] for (uint first = 0u; first < TOKENS * ROWS_Q; first += THREADS) {
        const bool real = first + tid < TOKENS * ROWS_Q;
        const uint i = min(first + tid, TOKENS * ROWS_Q - 1u), t = i / ROWS_Q, row = i % ROWS_Q;
        act_from = t * ACT_TOKEN;
        partial_from = t * PARTIAL_TOKEN;
        const float v = real ? row_sum(row, CHUNKS_X, STRIDE_Q) * factors[t] : 0.0;
        bool given = real && wg * OF_Q + row < QUERY;
        if (row >= OF_Q) given = real && wg * OF_K + (row - OF_Q) % OF_K < KEY;
        uint to = wg * OF_Q + row;
        if (row >= OF_Q) to = QUERY + wg * OF_K + row - OF_Q;
        if (row >= OF_Q + OF_K) to = QUERY + KEY + wg * OF_K + row - OF_Q - OF_K;
        give_four(given, v, region + ACT_Q + to / 4u);
    }
}

const uint OWN = CEIL(TOKENS * OF_X, THREADS);
float residual[OWN]; // the values of this workgroup, of all rows, in float32

void begin_residual() {
    [[unroll]] for (uint k = 0u; k < OWN; k++) {
        const uint i = min(k * THREADS + tid, TOKENS * OF_X - 1u), row = wg * OF_X + i % OF_X;
        residual[k] = x[x_at + source_of(i / OF_X) * WIDTH + min(row, WIDTH - 1u)];
    }
}

void give_residual(uint at, uint chunks) {
    [[unroll]] for (uint k = 0u; k < OWN; k++) {
        const uint i = min(k * THREADS + tid, TOKENS * OF_X - 1u), t = i / OF_X, row = i % OF_X;
        const bool real = k * THREADS + tid < TOKENS * OF_X && wg * OF_X + row < WIDTH;
        act_from = t * ACT_TOKEN;
        partial_from = t * PARTIAL_TOKEN;
        if (real) residual[k] += row_sum(row, chunks, STRIDE_X);
        give_four(real, SHRINK * residual[k], at + (wg * OF_X + row) / 4u);
    }
}

void give_gated(uint region, float unused) {
    const uint of_row = OF_G / 4u;
    [[unroll]] for (uint first = 0u; first < TOKENS * of_row; first += THREADS) {
        const uint i = min(first + tid, TOKENS * of_row - 1u), t = i / of_row, four = i % of_row;
        const bool real = first + tid < TOKENS * of_row && wg * OF_G + 4u * four < FFN;
        act_from = t * ACT_TOKEN;
        partial_from = t * PARTIAL_TOKEN;
        vec4 v = vec4(0.0);
        [[unroll]] for (uint c = 0u; c < 4u; c++) {
            if (!real) continue;
            const float gate = row_sum(4u * four + c, CHUNKS_X, STRIDE_G) * factors[t];
            v[c] = gate / (1.0 + exp(-gate)) * row_sum(OF_G + 4u * four + c, CHUNKS_X, STRIDE_G) * factors[t];
        }
        const float size = scale_of(v);
        int sum;
        const uint q = quantize(v, size, sum), other = subgroupShuffleXor(q, 1), e = wg * of_row + four;
        if (!real) continue;
        if ((four & 1u) == 0u) put(region + ACT_F + e / 2u, uvec2(q, other));
        if ((four & 3u) == 0u) put(region + ACT_F + FFN / 8u + e / 4u, uvec2(floatBitsToUint(size), uint(sum)));
    }
}

// --- logits

// Gives the logits of the step of all slots that begins at row `first`, from the half `which` of `partial`.
void give_logits(uint first, uint which) {
    barrier();
    [[dont_unroll]] for (uint i = tid; i < n_outputs * OF_STEP; i += THREADS) {
        const uint j = i / OF_STEP, of_step = i % OF_STEP, r = first + of_step % AHEAD;
        const uint row = of_step / AHEAD * N_L + r, id = wg * OF_L + row;
        partial_from = j * PARTIAL_TOKEN + which * PARTIAL_STEP;
        const bool real = r < N_L && row < OF_L && id < VOCAB;
        if (real) y[y_at + j * VOCAB + id] = row_sum(of_step, CHUNKS_X, OF_STEP) * factors[output_tokens[j]];
    }
}

void compute_logits() {
    take_normed(LAYERS, LAYERS * ACT_LAYER, 2u * LAYERS);
    barrier();
    norm_factor();
    multiply_output();
}
