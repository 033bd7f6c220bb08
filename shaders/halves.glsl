// Activations in float16 for matrix units. In each four columns the second and the third are swapped (half_weights.glsl);
// values beyond float16 saturate.
//
// Rows follow each other; or, if fragments of matrix units are read directly from memory, tiles of UNIT rows and columns
// do: first the `tiles` tiles of the same columns. With LANE_ORDER as UNIT a tile has 16 rows and 128 columns, in the order
// in which the lanes of a subgroup read them, 16 bytes each (matmul_lanes.comp); without tiles rows follow each other, with
// the columns of a lane together.

#define LANE_ORDER 0

uvec2 half_quad(vec4 value) {
    const vec4 v = clamp(value, -65504.0, 65504.0);
    return uvec2(packHalf2x16(v.xz), packHalf2x16(v.yw));
}

// The index of four columns of a row; tiles 0: in rows of n_quads.
uint half_place(uint row, uint quad, uint n_quads, uint tiles, uint unit) {
    if (tiles == 0) {
        if (unit == LANE_ORDER) quad = quad / 32 * 32 + quad % 8 / 2 * 8 + quad / 8 % 4 * 2 + quad % 2;
        return row * n_quads + quad;
    }
    if (unit == LANE_ORDER) {
        const uint lane = row % 8 * 4 + quad / 8 % 4, piece = row / 8 % 2 * 4 + quad % 8 / 2;
        return (((quad / 32 * tiles + row / 16) * 8 + piece) * 32 + lane) * 2 + quad % 2;
    }
    const uint width = unit / 4;
    return ((quad / width * tiles + row / unit) * unit + row % unit) * width + quad % width;
}
