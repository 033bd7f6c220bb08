// target[i] = source[i] + source[(i + step) % n]: every workgroup reads what others wrote.
#version 450
layout(local_size_x = 64) in;
layout(set = 0, binding = 0) readonly buffer Source { uint source[]; };
layout(set = 0, binding = 1) writeonly buffer Target { uint target[]; };
layout(push_constant) uniform Push { uint n; uint step; };

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < n) target[i] = source[i] + source[(i + step) % n];
}
