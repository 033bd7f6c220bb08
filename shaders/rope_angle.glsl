// Exact angles at any position: turns per position are a 64-bit fraction, whose product with the position wraps around.

// (cos, sin) of position * turns; Taylor polynomials on up to an eighth of a turn.
vec2 turn(uint position, uvec2 turns) {
    uint high, low;
    umulExtended(position, turns.y, high, low);
    uint angle = position * turns.x + high;
    uint quarter = (angle + 0x20000000u) >> 30;
    float v = float(int(angle - (quarter << 30))) * 1.4629180792671596e-9; // 2 pi / 2^32
    float v2 = v * v;
    float s = v * (1.0 + v2 * (-1.6666667e-1 + v2 * (8.3333333e-3 + v2 * (-1.9841270e-4 + v2 * 2.7557319e-6))));
    float c = 1.0 + v2 * (-0.5 + v2 * (4.1666667e-2 + v2 * (-1.3888889e-3 + v2 * 2.4801587e-5)));
    vec2 swapped = (quarter & 1u) != 0u ? vec2(-s, c) : vec2(c, s);
    return (quarter & 2u) != 0u ? -swapped : swapped;
}
