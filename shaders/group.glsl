// Sorts pairs of a token and an expert by expert, divided into tiles, so a product reads an expert's matrix once for all
// tokens of a tile (routes.glsl). Requires MATRICES, WIDTH, tiles_at, order_at and ID(pair), the expert of a pair.
//
// A single workgroup counts the pairs of each expert, computes their start, and stores each pair.

shared uint counts[MATRICES];
shared uint places[MATRICES];
const uint CHUNK = 16;  // matrices whose counts are summed first
shared uvec2 sums[(MATRICES + CHUNK - 1) / CHUNK];  // pairs and tiles

uvec2 pairs_and_tiles(uint m) { return uvec2(counts[m], (counts[m] + WIDTH - 1u) / WIDTH); }

void group_pairs(uint n_pairs) {
    const uint lane = gl_LocalInvocationID.x;
    for (uint m = lane; m < MATRICES; m += gl_WorkGroupSize.x) counts[m] = 0;
    barrier();
    for (uint pair = lane; pair < n_pairs; pair += gl_WorkGroupSize.x) atomicAdd(counts[ID(pair)], 1u);
    barrier();
    for (uint c = lane; c * CHUNK < MATRICES; c += gl_WorkGroupSize.x) {
        sums[c] = uvec2(0);
        for (uint m = c * CHUNK; m < min((c + 1u) * CHUNK, MATRICES); m++) sums[c] += pairs_and_tiles(m);
    }
    barrier();
    for (uint m = lane; m < MATRICES; m += gl_WorkGroupSize.x) {
        uvec2 before = uvec2(0);
        for (uint c = 0; c < m / CHUNK; c++) before += sums[c];
        for (uint i = m / CHUNK * CHUNK; i < m; i++) before += pairs_and_tiles(i);
        uint first = before.x, tile = before.y;
        places[m] = first;
        const uint end = first + counts[m];
        for (; first < end; first += WIDTH) {
            const uint at = tiles_at + 1u + 3u * tile++;
            tiles[at] = m;
            tiles[at + 1u] = first;
            tiles[at + 2u] = min(first + WIDTH, end);
        }
        if (m + 1u == MATRICES) tiles[tiles_at] = tile;
    }
    barrier();
    for (uint pair = lane; pair < n_pairs; pair += gl_WorkGroupSize.x)
        order[order_at + atomicAdd(places[ID(pair)], 1u)] = pair;
}
