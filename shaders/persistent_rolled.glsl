// The products of dense layers of any shape as one loop for all matrices: what a driver compiles holds the code of a step once for
// each of the two sets of units, whatever the shape, and no address that it could compute ahead of the loop for many steps.
// Included by shaders/persistent_general.glsl.
//
// A step is UNITS rows of one chunk. The steps of a stage, the products between two exchanges, are computed in their order while
// those two ahead are requested; behind the last one of a stage come the first ones of the next, unless attention lies between.

const uint ALL_TYPES = TYPES_Q | TYPES_K | TYPES_O | TYPES_G | TYPES_D | TYPES_L;
const uint OF_Q_ROWS = 0u, OF_K_ROWS = 1u, OF_O_ROWS = 2u, OF_G_ROWS = 3u, OF_D_ROWS = 4u, OF_L_ROWS = 5u; // matrices

// The steps of this subgroup that are left of a matrix.
struct Walk {
    uint64_t at;          // of the matrix, with its type
    uint matrix;
    uint blocks, n_rows;  // of a row; of the matrix
    uint row;             // the first of the next step, which counts from those of this workgroup
    uint of;              // rows of this workgroup
    uint first, per, end; // chunks of this subgroup: the first, how many, and the end of the row
    uint chunk;           // of the next step
    uint batches;         // of UNITS rows
};

const uint PER_QK = CEIL(CHUNKS_X, SPLIT_Q), SLOTS_QK = WARPS / SPLIT_Q, HALF_QK = SLOTS_QK / 2u;
const uint PER_O = CEIL(CHUNKS_O, SPLIT_O), SLOTS_O = WARPS / SPLIT_O;
const uint PER_G = CEIL(CHUNKS_X, SPLIT_G), SLOTS_G = WARPS / SPLIT_G, HALF_G = SLOTS_G / 2u;
const uint BLOCKS_DENSE = LARGER(FFN / 32u, 1u), CHUNKS_DENSE = CEIL(BLOCKS_DENSE, LANES);
const uint PER_D = CEIL(CHUNKS_DENSE, SPLIT_D), SLOTS_D = WARPS / SPLIT_D;
const uint BATCHES_Q = CEIL(CEIL(OF_Q, SLOTS_QK), UNITS), BATCHES_K = CEIL(CEIL(OF_K, HALF_QK), UNITS);
const uint BATCHES_O = CEIL(CEIL(OF_X, SLOTS_O), UNITS), BATCHES_G = CEIL(CEIL(OF_G, HALF_G), UNITS);
const uint BATCHES_D = CEIL(CEIL(OF_X, SLOTS_D), UNITS), BATCHES_L = CEIL(CEIL(OF_L, WARPS), UNITS);
const uint HAS_SHARED = 0u;
#define N_FFN FFN
#define OF_GATED OF_G

Walk asked, now;
uint asked_layer;

// The walk through a matrix: `split` subgroups of each of `slots` slots.
Walk walk(
    uint64_t at, uint matrix, uint blocks, uint n_rows, uint of, uint slot, uint share, uint per, uint batches
) {
    const uint first = share * per;
    const uint end = min(first + per, CEIL(blocks, LANES));
    return Walk(at, matrix, blocks, n_rows, slot * batches * UNITS, of, first, per, end, first, batches);
}

Walk walk_of(uint layer, uint matrix) {
    if (matrix <= OF_K_ROWS) {
        const uint slot = warp / SPLIT_Q, share = warp % SPLIT_Q;
        if (matrix == OF_Q_ROWS) return walk(address(layer, 0u), matrix, BLOCKS_X, QUERY, OF_Q, slot, share, PER_QK, BATCHES_Q);
        const uint64_t at = address(layer, slot < HALF_QK ? 1u : 2u);
        return walk(at, matrix, BLOCKS_X, KEY, OF_K, slot % HALF_QK, share, PER_QK, BATCHES_K);
    }
    if (matrix == OF_O_ROWS) {
        return walk(address(layer, 3u), matrix, BLOCKS_O, WIDTH, OF_X, warp / SPLIT_O, warp % SPLIT_O, PER_O, BATCHES_O);
    }
    if (matrix == OF_G_ROWS) {
        const uint slot = warp / SPLIT_G;
        const uint64_t at = address(layer, slot < HALF_G ? 4u : 5u);
        return walk(at, matrix, BLOCKS_X, FFN, OF_G, slot % HALF_G, warp % SPLIT_G, PER_G, BATCHES_G);
    }
    if (matrix == OF_D_ROWS) {
        return walk(address(layer, 6u), matrix, BLOCKS_DENSE, WIDTH, OF_X, warp / SPLIT_D, warp % SPLIT_D, PER_D, BATCHES_D);
    }
    return walk(address(layer, 0u), matrix, BLOCKS_X, VOCAB, OF_L, warp, 0u, CHUNKS_X, BATCHES_L);
}

// Moves a walk to its next step; returns true behind the last chunk of some rows.
bool step_on(inout Walk w) {
    if (++w.chunk < w.first + w.per) return false;
    w.chunk = w.first;
    w.row += UNITS;
    w.batches--;
    return true;
}

// Requests the next step into set `q`. A stage begins with set 0, whatever the number of the last one's steps.
void ask(uint q) {
    if (asked.batches == 0u) {
        const uint last = asked.matrix;
        if (last == OF_K_ROWS || last == OF_L_ROWS || (q != 0u && last != OF_Q_ROWS)) return;
        if (last == OF_D_ROWS) asked_layer++;
        const bool is_output = asked_layer == LAYERS;
        asked = walk_of(asked_layer, is_output ? OF_L_ROWS : last == OF_D_ROWS ? OF_Q_ROWS : last + 1u);
    }
    const uint row = row_of(asked.row, asked.of, asked.n_rows, UNITS);
    load_step(q, source_of(asked.at, asked.n_rows * asked.blocks, asked.blocks), ALL_TYPES, UNITS, row, asked.chunk, asked.end, false);
    step_on(asked);
}

void begin_stage(uint layer, uint matrix) {
    asked_layer = layer;
    asked = walk_of(layer, matrix);
    ask(0u);
    ask(1u);
}

// The first of this subgroup's sums of a matrix in `partial`; `of`: how many rows are kept there.
uint place_of_sums(out uint of) {
    of = now.of;
    const uint share = now.first / now.per;
    if (now.matrix == OF_Q_ROWS) return share * STRIDE_Q;
    if (now.matrix == OF_K_ROWS) {
        const uint slot = warp / SPLIT_Q;
        if (slot >= 2u * HALF_QK) of = 0u;
        return share * STRIDE_Q + OF_Q + (slot >= HALF_QK ? OF_K : 0u);
    }
    if (now.matrix == OF_G_ROWS) {
        const uint slot = warp / SPLIT_G;
        if (slot >= 2u * HALF_G) of = 0u;
        return share * STRIDE_G + (slot >= HALF_G ? OF_G : 0u);
    }
    return share * STRIDE_X;
}

void multiply_next(uint q) {
    if (now.batches == 0u) now = walk_of(here, OF_K_ROWS); // behind the queries
    if (now.chunk == now.first) clear_sums();
    if (now.chunk < now.end) multiply_step(q, ALL_TYPES, now.at, now.blocks, 0u, UNITS, now.chunk, now.end, false);
    const uint row = row_of(now.row, now.of, now.n_rows, UNITS);
    if (!step_on(now)) return;
    uint of;
    const uint first = place_of_sums(of);
    keep_rows(UNITS, local_of(row, now.of), of, first);
}

// Computes the products of a stage, whose first matrix is `matrix`.
void multiply_stage(uint layer, uint matrix) {
    now = walk_of(layer, matrix);
    const uint steps = now.batches * now.per + (matrix == OF_Q_ROWS ? BATCHES_K * PER_QK : 0u);
    [[dont_unroll]] for (uint s = 0u; s < steps; s += 2u) {
        multiply_next(0u);
        ask(0u);
        if (s + 1u < steps) multiply_next(1u);
        ask(1u);
    }
}

void load_first() { begin_stage(0u, OF_Q_ROWS); }
