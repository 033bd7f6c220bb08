// Needs cooperative matrices: a device without them must refuse it with an error.
#version 450
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
layout(local_size_x = 32) in;
layout(set = 0, binding = 0) buffer Source { uvec4 source[]; };

void main() {
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a;
    coopMatLoad(a, source, 0, 2, gl_CooperativeMatrixLayoutRowMajor);
    coopMatStore(a, source, 32, 2, gl_CooperativeMatrixLayoutRowMajor);
}
