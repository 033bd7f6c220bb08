// Rows of activations in float16, as cooperative matrices take them, in the order of half_weights.glsl; what float16
// cannot hold becomes its largest number.
#version 450
layout(local_size_x = 128) in;
layout(set = 0, binding = 0) readonly buffer Step { uint step_words[]; };
layout(set = 0, binding = 1) readonly buffer X { vec4 x[]; };
layout(set = 0, binding = 2) writeonly buffer Y { uvec2 y[]; };
layout(push_constant) uniform Push { uint rows; uint x_at, y_at; uint n_quarters; };

void main() {
    const uint i = gl_GlobalInvocationID.x, row = gl_GlobalInvocationID.y;
    if (i >= n_quarters) return;
    vec4 v = clamp(x[x_at / 4u + row * n_quarters + i], -65504.0, 65504.0);
    y[y_at / 2u + row * n_quarters + i] = uvec2(packHalf2x16(v.xz), packHalf2x16(v.yw));
}
