// Activations in float16 for matrix units. In each four columns the second and the third are swapped (half_weights.glsl);
// values beyond float16 saturate.
//
// Rows follow each other; or, if fragments of matrix units are read directly from memory, tiles of UNIT rows and columns
// do: first the `tiles` tiles of the same columns.

uvec2 half_quad(vec4 value) {
    const vec4 v = clamp(value, -65504.0, 65504.0);
    return uvec2(packHalf2x16(v.xz), packHalf2x16(v.yw));
}

// The index of four columns of a row; tiles 0: in rows of n_quads.
uint half_place(uint row, uint quad, uint n_quads, uint tiles, uint unit) {
    if (tiles == 0) return row * n_quads + quad;
    const uint width = unit / 4;
    return ((quad / width * tiles + row / unit) * unit + row % unit) * width + quad % width;
}
