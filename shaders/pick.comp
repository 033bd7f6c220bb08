// Selects the next token from the best of all parts of a row. One workgroup per row. A result is the token, then ids, then
// logits; with RAW also the token's logit before adjustments.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "best.glsl"

#define STEP_ACCESS
#include "common.glsl"
#include "registers.glsl"
layout(constant_id = 2) const bool RAW = false;
layout(constant_id = 3) const uint DRAFTED = 0u; // rows of a sequence in steps with drafts, which verify.comp goes on from
layout(constant_id = 4) const uint NUMBERS = 0u; // random numbers of a sequence there
layout(constant_id = 5) const uint GOES_ON = 2u; // the next step: 0: there is none, 1: at the same position, 2: at the next one
layout(std430, set = 0, binding = 1) readonly buffer X { uvec2 x[]; };
layout(std430, set = 0, binding = 2) readonly buffer Logits { uint logits[]; };
layout(std430, set = 0, binding = 3) readonly buffer Saved { uvec2 saved[]; };
layout(std430, set = 0, binding = 4) writeonly buffer Y { uint y[]; };
layout(std430, set = 0, binding = 5) writeonly buffer Picked { uint picked[]; }; // in device memory
layout(std430, set = 0, binding = 6) writeonly buffer Registers { uint registers[]; };
layout(push_constant) uniform Push {
    uint rows, x_at, logits_at, saved_at, y_at, picked_at, registers_at;
    uint n_parts, width, n_saved;
    uint stride; // words per row of results
    uint tokens, positions, picks, numbers, past, past_counts, n_picked; // indices in the step block
    uint most_past;
    uint output_ids, sequences, slot_ids; // indices in the step block
    uint n_slots; // with registers
    uint draft; // index of the draft that the token of a sequence becomes, or of its first; else it is the latest token
};

const uint NO_DRAFT = 0xffffffffu;

#include "best_parts.glsl"

#define CHOSEN slots[2u * BEST].x
#define N_KEPT slots[2u * BEST].y

float logit(uint i) { return uintBitsToFloat(bits_of(slots[i].x)); }

// Sums of the weights of candidates up to this one, without and with the temperature.
vec2 sums(uint i) { return uintBitsToFloat(slots[BEST + i]); }

void add_up(vec2 weights) {
    uint me = gl_LocalInvocationID.x;
    if (me < BEST) slots[BEST + me] = floatBitsToUint(weights);
    barrier();
    for (uint apart = 1u; apart < BEST; apart *= 2u) {
        vec2 sum = me < BEST && me >= apart ? sums(me) + sums(me - apart) : vec2(0.0);
        barrier();
        if (me < BEST && me >= apart) slots[BEST + me] = floatBitsToUint(sum);
        barrier();
    }
}

// The index of the selected candidate; see Pick of core/pumice/backend.py.
uint pick(uint row) {
    const uint me = gl_LocalInvocationID.x, sequence = DRAFTED > 0u ? row / DRAFTED : row;
    const uint rule = picks + 4u * sequence, n = min(step_words[rule], BEST);
    const float top_p = uintBitsToFloat(step_words[rule + 1u]), min_p = uintBitsToFloat(step_words[rule + 2u]);
    const float temperature = uintBitsToFloat(step_words[rule + 3u]);
    const uint drawn = DRAFTED > 0u ? sequence * NUMBERS + (row % DRAFTED + step_words[n_picked + sequence]) % max(NUMBERS, 1u) : row;
    vec2 weights = vec2(0.0);
    if (me < n) {
        float below = logit(me) - logit(0);
        weights = vec2(exp(below), temperature > 0.0 ? exp(below / temperature) : me == 0u ? 1.0 : 0.0);
    }
    if (me == 0u) slots[2u * BEST] = uvec2(0u, 1u);
    add_up(weights);
    bool kept = me == 0u || (me < n && sums(me - 1u).x < top_p * sums(n - 1u).x && weights.x >= min_p);
    if (kept) atomicMax(N_KEPT, me + 1u);
    barrier();
    // A random number that rounds to 1 selects the last candidate.
    float target = min(uintBitsToFloat(step_words[numbers + drawn]), 0.9999999) * sums(N_KEPT - 1u).y;
    if (me < N_KEPT && sums(me).y <= target) atomicMax(CHOSEN, me + 1u);
    barrier();
    return CHOSEN;
}

// The logit before adjustments.
uint raw_logit(uint row, uint token) {
    uint bits = logits[logits_at + row * width + token];
    for (uint i = 0u; i < n_saved; i++) {
        const uvec2 known = saved[saved_at / 2u + row * n_saved + i];
        if (known.x == token) bits = known.y;
    }
    return bits;
}

void main() {
    uint row = gl_WorkGroupID.x, me = gl_LocalInvocationID.x;
    if (row >= row_count(rows)) return;
    merge_parts(row);
    uint to = y_at + row * stride;
    if (me < BEST) {
        y[to + 1u + me] = slots[me].y;
        y[to + 1u + BEST + me] = bits_of(slots[me].x);
    }
    uint token = slots[pick(row)].y;
    if (me != 0u) return;
    y[to] = token;
    if (RAW) y[to + 1u + 2u * BEST] = raw_logit(row, token);
    picked[picked_at + row] = token;
    if (DRAFTED > 0u) return;
    const uint n_tokens = step_words[0], n_outputs = step_words[1], n_seqs = step_words[2];
    const uint i = step_words[output_ids + row], slot = step_words[slot_ids + step_words[sequences + i]];
    if (slot < n_slots && draft != NO_DRAFT) {
        const uint each = max(n_outputs / n_seqs, 1u);
        registers[registers_at + SLOT * slot + DRAFTS + min(draft + row % each, MOST_DRAFTS - 1u)] = token;
    } else if (slot < n_slots) {
        registers[registers_at + SLOT * slot + TOKEN] = token;
        registers[registers_at + SLOT * slot + POSITION] = step_words[positions + i] + 1u;
    }
    if (GOES_ON == 0u || n_tokens != n_outputs) return; // no step follows one of several tokens of a sequence
    step_words[tokens + row] = token;
    if (GOES_ON == 1u) return;
    step_words[positions + row]++;
    step_words[past + row * most_past + step_words[past_counts + row]++ % most_past] = token;
}
