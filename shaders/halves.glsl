// Activations in float16, as matrix units take them. Of each four columns the second and the third change places
// (half_weights.glsl); what float16 cannot hold becomes its largest number.
//
// Rows lie one behind the other, or where a fragment of matrix units is read straight from memory in tiles of UNIT rows
// and columns, one after the other: first those of the same columns, of which there are `tiles`.

uvec2 half_quad(vec4 value) {
    const vec4 v = clamp(value, -65504.0, 65504.0);
    return uvec2(packHalf2x16(v.xz), packHalf2x16(v.yw));
}

// Where four columns of a row lie; tiles 0: in rows of n_quads.
uint half_place(uint row, uint quad, uint n_quads, uint tiles, uint unit) {
    if (tiles == 0) return row * n_quads + quad;
    const uint width = unit / 4;
    return ((quad / width * tiles + row / unit) * unit + row % unit) * width + quad % width;
}
