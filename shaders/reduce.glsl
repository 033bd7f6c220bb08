// Sums and maxima over a workgroup with subgroups of any size from 4.
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

shared float reduce_parts[256];

float workgroup_add(float v) {
    v = subgroupAdd(v);
    if (subgroupElect()) reduce_parts[gl_SubgroupID] = v;
    barrier();
    float total = 0.0;
    for (uint i = 0; i < gl_NumSubgroups; i++) total += reduce_parts[i];
    barrier();
    return total;
}

float workgroup_max(float v) {
    v = subgroupMax(v);
    if (subgroupElect()) reduce_parts[gl_SubgroupID] = v;
    barrier();
    float top = reduce_parts[0];
    for (uint i = 1; i < gl_NumSubgroups; i++) top = max(top, reduce_parts[i]);
    barrier();
    return top;
}

// The lowest index with the largest value.
float workgroup_argmax(float v, inout uint index) {
    float top = workgroup_max(v);
    uint mine = v == top ? index : 0xffffffffu;
    mine = subgroupMin(mine);
    if (subgroupElect()) reduce_parts[gl_SubgroupID] = uintBitsToFloat(mine);
    barrier();
    index = floatBitsToUint(reduce_parts[0]);
    for (uint i = 1; i < gl_NumSubgroups; i++) index = min(index, floatBitsToUint(reduce_parts[i]));
    barrier();
    return top;
}
