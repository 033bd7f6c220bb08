// A token as one loop over stages: what a product needs is awaited, the product computed (persistent_rolled.glsl), and its results
// given to others. So each part of the code is there once, whatever the number of products of a layer. Included by
// shaders/persistent.comp.

const uint QUERIES = 0u, RESULT = 1u, GATED = 2u, DOWN = 3u; // stages of a layer; the last stage of all computes the logits

void compute_stages() {
    [[dont_unroll]] for (uint stage = 0u; stage <= 4u * LAYERS; stage++) {
        const uint layer = stage / 4u, kind = stage % 4u, region = layer * ACT_LAYER;
        const bool is_output = layer == LAYERS;
        here = layer;
        if (kind == QUERIES && !is_output) {
            if (WINDOWS) find_positions(address(layer, 12u) != 0ul);
            find_cells(layer);
            head_norms = norms_at + (2u * LAYERS + 1u) * WIDTH + 2u * layer * DIM;
            if (EARLY && has_part()) request(wg % HEADS / (HEADS / KV_HEADS), wg / HEADS * per_part, true);
        }
        if (kind == RESULT) take_attended(region);
        else if (kind == DOWN) take_gated(region);
        else take_normed(layer, region + (kind == GATED ? ACT_R : 0u), 2u * layer + kind / 2u);
        barrier();
        multiply_stage(layer, is_output ? OF_L_ROWS : kind == QUERIES ? OF_Q_ROWS : OF_K_ROWS + kind);
        const float factor = norm_factor();
        barrier();
        if (is_output) {
            store_logits(factor);
        } else if (kind == QUERIES) {
            give_heads(region, factor);
            attend_own(region);
            begin_stage(layer, OF_O_ROWS);
        } else if (kind == GATED) {
            give_gated(region, factor);
        } else {
            add_biases(kind == DOWN);
            give_residual(region + (kind == RESULT ? ACT_R : ACT_LAYER), kind == RESULT ? SPLIT_O : SPLIT_D);
        }
    }
}
