// Verifies drafted tokens. A step has for each sequence the last token in its first row and drafted ones in the others; a
// drafted token is right if it was picked in the row before. The picked tokens up to the first one behind a wrong row continue
// the text: a step that follows begins with the last of them. One workgroup per sequence.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#define STEP_ACCESS
#include "common.glsl"
#include "registers.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint ROWS = 4u; // of a sequence
layout(std430, set = 0, binding = 1) readonly buffer Picked { uint picked[]; };
layout(std430, set = 0, binding = 2) writeonly buffer Taken { uint taken[]; };
layout(std430, set = 0, binding = 3) writeonly buffer Registers { uint registers[]; };
layout(push_constant) uniform Push {
    uint rows, picked_at, taken_at, registers_at;
    uint tokens, positions, text_length, n_picked, n_taken, past, past_counts; // indices in the step block
    uint most_past;
    uint slot_ids; // index in the step block
    uint n_slots; // with registers
};

shared uint fresh[ROWS], drafted[ROWS];
shared uint n_before, n_past;

void main() {
    const uint me = gl_LocalInvocationID.x, sequence = gl_WorkGroupID.x, row = sequence * ROWS + me;
    if (sequence * ROWS >= row_count(rows)) return;
    if (me < ROWS) {
        fresh[me] = picked[picked_at + row];
        drafted[me] = step_words[tokens + row];
    }
    if (me == 0u) {
        n_before = step_words[text_length + sequence];
        n_past = step_words[past_counts + sequence];
    }
    barrier();
    if (me >= ROWS) return;
    uint n_fresh = 1u;
    while (n_fresh < ROWS && fresh[n_fresh - 1u] == drafted[n_fresh]) n_fresh++;
    const uint last = n_before + n_fresh - 1u; // position of the latest token
    if (me < n_fresh) step_words[past + sequence * most_past + (n_past + me) % most_past] = fresh[me];
    step_words[positions + row] = last + me;
    const uint slot = step_words[slot_ids + sequence], to = registers_at + SLOT * slot;
    if (slot < n_slots && me < MOST_DRAFTS) registers[to + DRAFTS + me] = fresh[me];
    if (me != 0u) return;
    step_words[tokens + row] = fresh[n_fresh - 1u];
    step_words[past_counts + sequence] = n_past + n_fresh;
    step_words[text_length + sequence] = last + 1u;
    step_words[n_picked + sequence] = n_fresh;
    step_words[n_taken + sequence] = n_fresh;
    taken[taken_at + sequence] = n_fresh;
    if (slot >= n_slots) return;
    registers[to + TOKEN] = fresh[n_fresh - 1u];
    registers[to + POSITION] = last;
    registers[to + N_TAKEN] = n_fresh;
}
