// Copies words from one buffer to another, for drivers whose memory has no transfer commands.
#version 450
layout(local_size_x = 256) in;
layout(set = 0, binding = 0) readonly buffer Source { uint source[]; };
layout(set = 0, binding = 1) writeonly buffer Target { uint target[]; };
layout(push_constant) uniform Push { uint n_words; uint source_offset; uint target_offset; };

void main() {
    uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = gl_GlobalInvocationID.x; i < n_words; i += stride) target[target_offset + i] = source[source_offset + i];
}
