// Verifies drafted tokens, and drafts the next ones: the continuation of the longest match of the text's last tokens, or of
// the latest of equal ones. A step has for each sequence the last token in its first row and drafted ones in the others; a
// drafted token is right if it was picked in the row before. The picked tokens up to the first one behind a wrong row continue
// the text. One workgroup per sequence.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#define STEP_ACCESS
#include "common.glsl"
#include "registers.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint ROWS = 4u; // of a sequence
layout(constant_id = 1) const bool LOOKS_UP = true; // otherwise the next tokens are drafted elsewhere
layout(std430, set = 0, binding = 1) readonly buffer Picked { uint picked[]; };
layout(std430, set = 0, binding = 2) buffer Text { uint text[]; };
layout(std430, set = 0, binding = 3) writeonly buffer Taken { uint taken[]; };
layout(std430, set = 0, binding = 4) writeonly buffer Registers { uint registers[]; };
layout(push_constant) uniform Push {
    uint rows, picked_at, text_at, taken_at, registers_at;
    uint follows; // 1: there are picked tokens
    uint most_text; // words per text
    uint tokens, positions, text_length, n_picked, n_taken, past, past_counts; // indices in the step block
    uint most_past;
    uint slot_ids; // index in the step block
    uint n_slots; // with registers
};

const uint LONGEST = 32u; // compared tokens of a match
const uint SHORTEST = 2u;
const uint AT_ONCE = LONGEST - SHORTEST; // tokens that are read together, since a read takes long

shared uint fresh[ROWS], drafted[ROWS], latest[LONGEST]; // latest: the text's last tokens, the last one first
shared uint n_before, n_past, best;

uint sequence, begin; // begin: of its text
uint n_fresh = 0u;

uint token_at(uint i) { return i < n_before ? text[begin + i] : fresh[i - n_before]; }

uint length_of_match(uint end) {
    const uint most = min(LONGEST, end);
    if (most < SHORTEST) return 0u;
    const uint second = token_at(end - 2u);
    if (token_at(end - 1u) != latest[0] || second != latest[1]) return 0u;
    for (uint n = SHORTEST; n < most; n += AT_ONCE) {
        uint earlier[AT_ONCE];
        [[unroll]] for (uint i = 0u; i < AT_ONCE; i++) earlier[i] = token_at(end - 1u - min(n + i, most - 1u));
        [[unroll]] for (uint i = 0u; i < AT_ONCE; i++) {
            if (n + i >= most || earlier[i] != latest[n + i]) return n + i;
        }
    }
    return most;
}

// Takes the picked tokens up to the first one behind a wrong row.
void take() {
    const uint me = gl_LocalInvocationID.x;
    if (me < ROWS && follows != 0u) {
        fresh[me] = picked[picked_at + sequence * ROWS + me];
        drafted[me] = step_words[tokens + sequence * ROWS + me];
    }
    if (me == 0u) {
        n_before = step_words[text_length + sequence];
        n_past = step_words[past_counts + sequence];
        best = 0u;
    }
    barrier();
    if (follows == 0u) return;
    do n_fresh++;
    while (n_fresh < ROWS && fresh[n_fresh - 1u] == drafted[n_fresh]);
    if (me < n_fresh) {
        text[begin + n_before + me] = fresh[me];
        step_words[past + sequence * most_past + (n_past + me) % most_past] = fresh[me];
    }
    if (me == 0u) {
        step_words[past_counts + sequence] = n_past + n_fresh;
        step_words[text_length + sequence] = n_before + n_fresh;
        step_words[n_picked + sequence] = n_fresh + (LOOKS_UP ? step_words[n_picked + sequence] : 0u);
        step_words[n_taken + sequence] = n_fresh;
        taken[taken_at + sequence] = n_fresh;
    }
    const uint slot = step_words[slot_ids + sequence], to = registers_at + SLOT * slot;
    if (slot >= n_slots) return;
    if (me < min(ROWS, MOST_DRAFTS)) registers[to + DRAFTS + me] = fresh[me];
    if (me == 0u) {
        registers[to + TOKEN] = fresh[n_fresh - 1u];
        registers[to + POSITION] = n_before + n_fresh - 1u;
        registers[to + N_TAKEN] = n_fresh;
    }
}

void main() {
    const uint me = gl_LocalInvocationID.x;
    sequence = gl_WorkGroupID.x;
    if (sequence * ROWS >= row_count(rows)) return;
    begin = text_at + sequence * most_text;
    take();
    const uint n_text = n_before + n_fresh;
    if (me < min(LONGEST, n_text)) latest[me] = token_at(n_text - 1u - me);
    barrier();
    for (uint end = SHORTEST + me; LOOKS_UP && end < n_text; end += 256u) {
        const uint n = length_of_match(end);
        if (n >= SHORTEST) atomicMax(best, n << 26 | end);
    }
    barrier();
    if (me >= ROWS) return;
    const uint next = best == 0u ? n_text - 1u : best & 0x3ffffffu, period = n_text - next, row = sequence * ROWS + me;
    step_words[tokens + row] = me == 0u ? token_at(n_text - 1u) : token_at(next + (me - 1u) % period);
    step_words[positions + row] = n_text - 1u + me;
}
