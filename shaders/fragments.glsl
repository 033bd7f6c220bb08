// Fragments of matrix units whose division among lanes is known (NVIDIA's units; probe.py tests a device for it).
//
// Lane 4g + q has eight elements of each 16 x 16 fragment. Of a left one: columns 2q, 2q + 1, 2q + 8 and 2q + 9 of row g, then
// of row g + 8. Of a right one: these rows of column g, then of column g + 8. Of sums the elements of a left one; BY_ROWS
// tells if they have its order, else columns 2q and 2q + 1 of both rows come first.
//
// With EMULATED a workgroup of 32 invocations is a subgroup, for devices without such units.

uint column_of(uint lane, uint slot) { return slot / 2u * 8u + lane % 4u * 2u + slot % 2u; }
uint element_of(uint upper, uint slot) {
    return BY_ROWS ? upper * 4u + slot : slot / 2u * 4u + upper * 2u + slot % 2u;
}
uint upper_of(uint element) { return BY_ROWS ? element / 4u : element / 2u % 2u; }

#ifdef EMULATED
#define LANE gl_LocalInvocationIndex
#define SUBGROUP 0u
struct Fragment { float elements[8]; };
#define ACCUMULATOR Fragment
#define LEFT Fragment
#define RIGHT Fragment
#define AT(fragment, e) fragment.elements[e]
#define ACCUMULATOR_OF(value) Fragment(float[](value, value, value, value, value, value, value, value))
#define MULTIPLY(a, b, c) multiplied(a, b, c)
#define SHUFFLE_XOR(value, distance) exchanged(value, distance)
#define ALL(condition) all_true(condition)

shared float lefts[256], rights[256], exchange[32];


float exchanged(float value, uint distance) {
    barrier();
    exchange[LANE] = value;
    barrier();
    return exchange[LANE ^ distance];
}

bool all_true(bool condition) {
    float least = condition ? 1.0 : 0.0;
    for (uint distance = 1u; distance < 32u; distance *= 2u) least = min(least, exchanged(least, distance));
    return least != 0.0;
}

Fragment multiplied(Fragment a, Fragment b, Fragment c) {
    const uint g = LANE / 4u;
    barrier();
    for (uint e = 0u; e < 8u; e++) {
        lefts[(g + e / 4u * 8u) * 16u + column_of(LANE, e % 4u)] = a.elements[e];
        rights[column_of(LANE, e % 4u) * 16u + g + e / 4u * 8u] = b.elements[e];
    }
    barrier();
    for (uint e = 0u; e < 8u; e++) {
        float sum = 0.0;
        for (uint k = 0u; k < 16u; k++)
            sum += lefts[(g + e / 4u * 8u) * 16u + k] * rights[k * 16u + column_of(LANE, e % 4u)];
        c.elements[element_of(e / 4u, e % 4u)] += sum;
    }
    return c;
}
#else
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require
#define LANE gl_SubgroupInvocationID
#define SUBGROUP gl_SubgroupID
#define ACCUMULATOR coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>
#define AT(fragment, e) fragment[e]
#define ACCUMULATOR_OF(value) ACCUMULATOR(value)
#define MULTIPLY(a, b, c) coopMatMulAdd(a, b, c)
#define SHUFFLE_XOR(value, distance) subgroupShuffleXor(value, distance)
#define ALL(condition) subgroupAll(condition)
#endif
