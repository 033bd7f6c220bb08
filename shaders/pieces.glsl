// Parts of a row for one invocation: half a block, or a unit of a dense matrix. Zero beyond the row.
#if DENSE
#define PIECE BLOCK_COLUMNS
#else
#define PIECE 16u
#endif

void load_piece(Planes at, uint row, uint piece, out vec4 v[PIECE / 4u]) {
    const uint of_block = BLOCK_COLUMNS / PIECE, b = piece / of_block;
    const uint number = row * BLOCKS + b;
    if (b < BLOCKS) {
        Block block = load_block(at, number);
        // Constant indices keep the block in registers.
        if (piece % of_block == 0) [[unroll]] for (uint i = 0; i < PIECE / 4u; i++) v[i] = numbers(block, number, i);
        else [[unroll]] for (uint i = 0; i < PIECE / 4u; i++) v[i] = numbers(block, number, i + PIECE / 4u);
    } else {
        [[unroll]] for (uint i = 0; i < PIECE / 4u; i++) v[i] = vec4(0);
    }
}
