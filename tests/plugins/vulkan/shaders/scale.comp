// target[i] = source[i] * factor + offset, for i < n; the workgroup's size and the factor are constants.
#version 450
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint factor = 1;
layout(set = 0, binding = 0) readonly buffer Source { uint source[]; };
layout(set = 0, binding = 1) writeonly buffer Target { uint target[]; };
layout(push_constant) uniform Push { uint n; uint offset; };

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < n) target[i] = source[i] * factor + offset;
}
