// Additions for general attention, beyond causal attention over a cache.

// The row of a position in the cache, or of the step alone, where a sequence's keys start at position 0 in the order of
// their computation.
uint row_of(uint sequence, uint position, uint head_kv) {
    if (OF_STEP) return (step_words[seq_starts + sequence] + position) * n_head_kv + head_kv;
    return cache_row(sequence, position, head_kv);
}

const uint NOTHING_ADDED = 0u;
const uint OF_DISTANCE = 1u;
const uint OF_INDEXER = 2u;

// The bias of a score. For ALiBi and relative positions, a head's row is its slope, then values for the distances -reach
// to reach from query to key; the end values apply to larger distances. For an indexer, a token's row has `reach` values,
// one per position.
float added_to_score(uint head, uint token, uint key, uint query) {
    if (ADDED == NOTHING_ADDED) return 0.0;
    if (ADDED == OF_INDEXER) return bias[bias_at + token * reach + key];
    int distance = int(key) - int(query), nearest = clamp(distance, -int(reach), int(reach));
    uint row = bias_at + head * (2u * reach + 2u);
    return bias[row + 1u + uint(nearest + int(reach))] - bias[row] * abs(float(distance));
}
