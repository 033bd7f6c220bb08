// Verifies drafted tokens, and drafts the next ones: the continuation of the longest match of the text's last tokens, or of
// the latest of equal ones. A step has for each sequence the last token in its first row and drafted ones in the others; a
// drafted token is right if it was picked in the row before. The picked tokens up to the first one behind a wrong row continue
// the text. One workgroup per sequence.
#version 450
#extension GL_GOOGLE_include_directive : require
#define STEP_ACCESS
#include "common.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint ROWS = 4u; // of a sequence
layout(constant_id = 1) const bool DRAFTS = true; // otherwise the next tokens are drafted elsewhere
layout(std430, set = 0, binding = 1) readonly buffer Picked { uint picked[]; };
layout(std430, set = 0, binding = 2) buffer Text { uint text[]; };
layout(std430, set = 0, binding = 3) writeonly buffer Taken { uint taken[]; };
layout(push_constant) uniform Push {
    uint rows, picked_at, text_at, taken_at;
    uint stride; // words per row of picked tokens; 0: there are none yet
    uint most_text; // words per text
    uint tokens, positions, text_length, n_picked, past, past_counts; // indices in the step block
    uint most_past;
    uint most_taken; // sequences with a number of taken tokens, behind which are the rows of their latest ones
};

const uint LONGEST = 32u; // compared tokens of a match
const uint SHORTEST = 2u;

shared uint fresh[ROWS];
shared uint n_fresh, n_before, best;

uint sequence, begin; // begin: of its text

uint token_at(uint i) { return i < n_before ? text[begin + i] : fresh[i - n_before]; }

uint length_of_match(uint end, uint n_text) {
    uint n = 0u;
    while (n < min(LONGEST, end) && token_at(end - 1u - n) == token_at(n_text - 1u - n)) n++;
    return n;
}

void take() {
    n_before = step_words[text_length + sequence];
    n_fresh = 0u;
    best = 0u;
    if (stride == 0u) return;
    do {
        fresh[n_fresh] = picked[picked_at + (sequence * ROWS + n_fresh) * stride];
        n_fresh++;
    } while (n_fresh < ROWS && fresh[n_fresh - 1u] == step_words[tokens + sequence * ROWS + n_fresh]);
    for (uint i = 0u; i < n_fresh; i++) {
        text[begin + n_before + i] = fresh[i];
        step_words[past + sequence * most_past + step_words[past_counts + sequence]++ % most_past] = fresh[i];
    }
    step_words[text_length + sequence] = n_before + n_fresh;
    step_words[n_picked + sequence] = n_fresh + (DRAFTS ? step_words[n_picked + sequence] : 0u);
    taken[taken_at + sequence] = n_fresh;
    taken[taken_at + most_taken + sequence] = sequence * ROWS + n_fresh - 1u;
}

void main() {
    const uint me = gl_LocalInvocationID.x;
    sequence = gl_WorkGroupID.x;
    if (sequence * ROWS >= row_count(rows)) return;
    begin = text_at + sequence * most_text;
    if (me == 0u) take();
    barrier();
    const uint n_text = n_before + n_fresh;
    for (uint end = SHORTEST + me; DRAFTS && end < n_text; end += 256u) {
        const uint n = length_of_match(end, n_text);
        if (n >= SHORTEST) atomicMax(best, n << 26 | end);
    }
    barrier();
    if (me >= ROWS) return;
    const uint next = best == 0u ? n_text - 1u : best & 0x3ffffffu, period = n_text - next, row = sequence * ROWS + me;
    step_words[tokens + row] = me == 0u ? token_at(n_text - 1u) : token_at(next + (me - 1u) % period);
    step_words[positions + row] = n_text - 1u + me;
}
