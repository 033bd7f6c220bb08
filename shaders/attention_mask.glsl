// The positions that a query attends to: from oldest_seen to newest_seen. The mask is a specialization constant.
const uint CAUSAL = 0u;     // its own and earlier positions, the latest `window`
const uint CHUNK = 1u;      // its own and earlier positions, from the last multiple of `window`
const uint BOTH_SIDES = 2u; // its whole sequence, or distances up to window / 2
const uint MEMORY = 3u;     // all keys stored by another graph; `lengths` has their number
const uint WHOLE_CHUNK = 4u; // all positions between two multiples of `window`

uint oldest_seen(uint position) {
    if (mask == MEMORY) return 0u;
    if (mask == CHUNK || mask == WHOLE_CHUNK) return position - position % window;
    if (mask == BOTH_SIDES) return window == 0u ? 0u : position - min(position, window / 2u);
    return window != 0u && position >= window ? position - window + 1u : 0u;
}

uint newest_seen(uint position, uint sequence) {
    if (mask == MEMORY) return max(step_words[lengths + sequence], 1u) - 1u;
    if (mask != BOTH_SIDES && mask != WHOLE_CHUNK) return position;
    uint last = step_words[positions + step_words[seq_starts + sequence + 1u] - 1u];
    if (mask == WHOLE_CHUNK) return min(last, position - position % window + window - 1u);
    return window == 0u ? last : min(last, position + window / 2u);
}
