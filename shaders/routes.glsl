// Which rows of x a workgroup multiplies with which matrix. There is one matrix for all rows; or with BY_HEAD one for each
// head, workgroup z; or with BY_ID one for each expert, and tiles of its pairs of a token and an expert (group.comp).
// Needs FLAGS (plugins/pumice_vulkan/flags.py), common.glsl, rows, and the bindings TILES and TILES + 1 with tiles_at, order_at and n_used.

layout(set = 0, binding = TILES) readonly buffer Tiles { uint tiles[]; };
layout(set = 0, binding = TILES + 1) readonly buffer Order { uint order[]; };

uint matrix = 0;
uint n0, n_x;  // the first of the tile's vectors, and the end of those there are

// Whether there is anything to do for a workgroup with so many vectors.
bool find_vectors(uint width) {
    if ((FLAGS & BY_ID) != 0) {
        if (gl_WorkGroupID.y >= tiles[tiles_at]) return false;
        const uint at = tiles_at + 1u + 3u * gl_WorkGroupID.y;
        matrix = tiles[at];
        n0 = tiles[at + 1u];
        n_x = tiles[at + 2u];
        return true;
    }
    if ((FLAGS & BY_HEAD) != 0) matrix = gl_WorkGroupID.z;
    n0 = gl_WorkGroupID.y * width;
    n_x = row_count(rows);
    return n0 < n_x;
}

// The rows of a vector in x and y.
uint y_row(uint n) {
    return (FLAGS & BY_ID) != 0 ? order[order_at + n] : (FLAGS & BY_HEAD) != 0 ? n * n_used + matrix : n;
}
uint x_row(uint n) {
    return (FLAGS & BY_ID) != 0 && (FLAGS & OWN_X) == 0 ? y_row(n) / n_used : y_row(n);
}
