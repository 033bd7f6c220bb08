// A chain of element-wise operations; specialization constants define the operations and operands.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "functions.glsl"

const uint INPUTS = 5u, STEPS = 8u; // limits of a pipeline
layout(local_size_x = 256) in;
layout(constant_id = 0) const uint N_INPUTS = 1u;
layout(constant_id = 1) const uint N_STEPS = 1u;
layout(constant_id = 2) const uint WIDTH = 1u; // values per row of the result

// Step s: an operation (CASES) on two of the earlier values, with its constants.
#define STEP(s) \
    layout(constant_id = 3 + 5 * s) const uint OP_##s = 0u; \
    layout(constant_id = 4 + 5 * s) const uint A_##s = 0u; \
    layout(constant_id = 5 + 5 * s) const uint B_##s = 0u; \
    layout(constant_id = 6 + 5 * s) const float P_##s = 0.0; \
    layout(constant_id = 7 + 5 * s) const float Q_##s = 0.0;
STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)

// Strides of input i along a row of the result, [n, N_B, N], as in binary.comp.
#define INPUT(i) \
    layout(std430, set = 0, binding = 1 + i) readonly buffer X_##i { float x_##i[]; }; \
    layout(constant_id = 43 + 6 * i) const uint N_B_##i = 1u; \
    layout(constant_id = 44 + 6 * i) const uint N_##i = 1u; \
    layout(constant_id = 45 + 6 * i) const uint BY_ROW_##i = 0u; \
    layout(constant_id = 46 + 6 * i) const uint BY_A_##i = 0u; \
    layout(constant_id = 47 + 6 * i) const uint BY_B_##i = 0u; \
    layout(constant_id = 48 + 6 * i) const uint BY_VALUE_##i = 0u;
INPUT(0) INPUT(1) INPUT(2) INPUT(3) INPUT(4)
layout(std430, set = 0, binding = 6) buffer Y { float y[]; };
layout(push_constant) uniform Push { uint rows, x_at[5], y_at; };

float apply(uint operation, float a, float b, float p, float q) {
    switch (operation) {
        CASES
    }
    return 0.0;
}

void main() {
    uint at = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (at >= row_count(rows) * WIDTH) return;
    uint row = at / WIDTH, rest = at % WIDTH;
    float values[INPUTS + STEPS];
#define LOAD(i) \
    if (i < N_INPUTS) { \
        uint ab = rest / N_##i; \
        values[i] = x_##i[x_at[i] + row * BY_ROW_##i + ab / N_B_##i * BY_A_##i + ab % N_B_##i * BY_B_##i \
            + rest % N_##i * BY_VALUE_##i]; \
    }
    LOAD(0) LOAD(1) LOAD(2) LOAD(3) LOAD(4)
#define DO(s) if (s < N_STEPS) values[INPUTS + s] = apply(OP_##s, values[A_##s], values[B_##s], P_##s, Q_##s);
    DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
    y[y_at + at] = values[INPUTS + N_STEPS - 1u];
}
