// Fills a step from the registers of its slots: the host writes -1 for the latest token, -2 - i for draft i, and -1 for the output
// row of the latest token.
#version 450
#extension GL_GOOGLE_include_directive : require
#define STEP_ACCESS
#include "common.glsl"
#include "registers.glsl"

layout(local_size_x = 128) in;
layout(constant_id = 0) const bool RELATIVE = false; // positions count from those of the slots
layout(std430, set = 0, binding = 1) readonly buffer Registers { uint registers[]; };
layout(push_constant) uniform Push {
    uint rows, registers_at;
    uint n_tokens, n_outputs, tokens, positions, output_ids, seq_starts, sequences, slot_ids; // indices in the step block
};

uint slot_of(uint sequence) { return registers_at + SLOT * step_words[slot_ids + sequence]; }

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i >= min(row_count(rows), step_words[n_tokens])) return;
    const uint from = slot_of(step_words[sequences + i]);
    const int token = int(step_words[tokens + i]);
    if (token < 0) step_words[tokens + i] = registers[token == -1 ? from + TOKEN : from + DRAFTS + uint(-2 - token)];
    if (RELATIVE) step_words[positions + i] += registers[from + POSITION];
    if (i < step_words[n_outputs] && int(step_words[output_ids + i]) < 0) {
        step_words[output_ids + i] = step_words[seq_starts + i] + registers[slot_of(i) + N_TAKEN] - 1u;
    }
}
