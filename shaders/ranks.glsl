// The order of logits and their ids, the highest first, ties by the lower id.

const uvec2 NOTHING = uvec2(0u, 0xffffffffu);

bool is_nan(uint bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }

// Keys sort like the values of these bits, with NaN above all; -0 equals 0.
uint key_of(uint bits) {
    if (is_nan(bits)) return 0xffffffffu;
    if (bits == 0x80000000u) bits = 0u;
    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}

uint bits_of(uint key) {
    return (key & 0x80000000u) != 0u ? key & 0x7fffffffu : ~key;
}

bool before(uvec2 a, uvec2 b) {
    return a.x > b.x || (a.x == b.x && a.y < b.y);
}
