// Writes the elements of each lane's part of a fragment of sums, whose order fragments.glsl must know.
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
layout(local_size_x = 32) in;
layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint x_at, y_at; };

void main() {
    coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums;
    coopMatLoad(sums, x, x_at, 16, gl_CooperativeMatrixLayoutRowMajor);
    if (sums.length() != 8) return;
    [[unroll]] for (uint e = 0; e < 8u; e++) y[y_at + gl_SubgroupInvocationID * 8u + e] = sums[e];
}
