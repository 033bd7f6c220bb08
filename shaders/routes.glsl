// The rows of x and the matrix of a workgroup, which is number TILE_INDEX (default: y) of those along x. One matrix for all
// rows; with BY_HEAD one per head, workgroup z; with BY_ID one per expert, with tiles of its pairs of a token and an expert
// (group.comp).
// Requires FLAGS (plugins/pumice_vulkan/flags.py), common.glsl, rows, and the bindings TILES and TILES + 1 with tiles_at,
// order_at and n_used.

#ifndef TILE_INDEX
#define TILE_INDEX gl_WorkGroupID.y
#endif

layout(set = 0, binding = TILES) readonly buffer Tiles { uint tiles[]; };
layout(set = 0, binding = TILES + 1) readonly buffer Order { uint order[]; };

uint matrix = 0;
uint n0, n_x;  // first vector of the tile, and end of all vectors

// True if a workgroup with `width` vectors has work.
bool find_vectors(uint width) {
    if ((FLAGS & BY_ID) != 0) {
        if (TILE_INDEX >= tiles[tiles_at]) return false;
        const uint at = tiles_at + 1u + 3u * TILE_INDEX;
        matrix = tiles[at];
        n0 = tiles[at + 1u];
        n_x = tiles[at + 2u];
        return true;
    }
    if ((FLAGS & BY_HEAD) != 0) matrix = gl_WorkGroupID.z;
    n0 = TILE_INDEX * width;
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
