// The tokens of attention_decode.comp: queries, and the keys and values to be stored in the cache.

uint stored; // row of the step's keys and values that is stored
#define VALUE(i) \
    (is_key ? new_keys[stored * K_QUADS + (i) / 4u][(i) % 4u] : new_values[stored * V_QUADS + (i) / 4u][(i) % 4u])

void set_value(bool is_key, uint row, uint i, float x) {
    if (is_key) new_keys[row * K_QUADS + i / 4u][i % 4u] = x;
    else new_values[row * V_QUADS + i / 4u][i % 4u] = x;
}

#ifdef CACHE_QUANTIZED
vec4 block_quad(bool is_key, uint i) { return is_key ? new_keys[stored * K_QUADS + i] : new_values[stored * V_QUADS + i]; }
#include "cache_encode.glsl"

// Encodes the key and the value in shared memory to words of their cache rows, an invocation the word of a quad or none, and
// replaces them by what the cache will return.
void store(bool write, uint key_row, uint value_row, uint head_kv) {
    const uint ALL = K_QUADS + V_QUADS;
    vec4 returned[(ALL + THREADS - 1u) / THREADS];
    [[unroll]] for (uint t = 0u; t * THREADS < ALL; t++) {
        const uint i = min(me + t * THREADS, ALL - 1u);
        const bool is_key = i < K_QUADS;
        const uint quad = is_key ? i : i - K_QUADS, first = quad / 8u * 8u, w = quad % 8u;
        const Scaling s = scaling_of(is_key, first);
        const vec2 scale = kept(s);
        if (write && me + t * THREADS < ALL) {
            const uint row = is_key ? key_row : value_row, block = head_kv * (is_key ? k_dim : v_dim) / 32u + quad / 8u;
            const uint codes = row + (is_key ? k_scale_words : v_scale_words) + block * CACHE_BITS;
            if (w < CACHE_BITS) cache1[codes + w] = code_word(is_key, first, s, w);
            if (w < CACHE_SCALES) cache1[row + block * CACHE_SCALES + w] = floatBitsToUint(scale[w]);
        }
        const vec4 x = block_quad(is_key, quad);
        [[unroll]] for (uint c = 0u; c < 4u; c++) returned[t][c] = float(code_of(s, x[c]));
        returned[t] = from_codes(returned[t], scale.x, scale.y);
    }
    barrier();
    [[unroll]] for (uint t = 0u; t * THREADS < ALL; t++) {
        const uint i = me + t * THREADS;
        if (i < K_QUADS) new_keys[stored * K_QUADS + i] = returned[t];
        else if (i < ALL) new_values[stored * V_QUADS + i - K_QUADS] = returned[t];
    }
}
#else
// Stores a key or a value in shared memory.
void store(bool is_key, uint to, uint dim) {
    uint padded = (dim + 7u) / 8u * 8u; // padded with zeros, since they are read, too
#if defined(CACHE_F32)
    for (uint i = me; i < padded; i += THREADS) cache1[to + i] = floatBitsToUint(VALUE(i));
#else
    for (uint i = me; 2u * i < padded; i += THREADS) {
#ifdef CACHE_F16
        cache1[to + i] = packHalf2x16(vec2(VALUE(2u * i), VALUE(2u * i + 1u)));
#else
        cache1[to + i] = pack_bf16(VALUE(2u * i), VALUE(2u * i + 1u));
#endif
    }
#endif
}
#endif

// Rounds explicitly, since a driver may optimize packing and unpacking away.
float rounded(float x) {
#ifdef CACHE_F16
    uint bits = floatBitsToUint(x);
    return uintBitsToFloat((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu);
#elif defined(CACHE_BF16)
    return uintBitsToFloat(rounded_to_bf16(x) & 0xFFFF0000u);
#else
    return x;
#endif
}

// A rotated pair of values of a query, or from index HEADS on of a key, or two values without rotation.
struct Pair {
    uint head, a, b;
    vec2 values, factors; // factors: of the norm
    uvec2 turns;
};

Pair load_pair(uint i, uint n_heads, uint first_head, uint head_kv) {
    Pair pair = Pair(i / PAIRS, 2u * (i % PAIRS), 2u * (i % PAIRS) + 1u, vec2(0.0), vec2(1.0), uvec2(0u));
    if (pair.a < n_rot) {
        if (second_distance != 1u) pair.a = i % PAIRS;
        pair.b = pair.a + second_distance;
        pair.turns = turns[turns_at / 2u + i % PAIRS];
    }
    const bool is_key = pair.head >= HEADS;
    const uint row = pair.head - HEADS;
    uint from = is_key ? k_at + ((first_row + row) * n_head_kv + head_kv) * k_dim : q_at + (token * n_head + first_head + pair.head) * k_dim;
    bool real = is_key ? row <= n_before : pair.head < n_heads;
    if (real && pair.a < k_dim) pair.values.x = is_key ? k[from + pair.a] : q[from + pair.a];
    if (real && pair.b < k_dim) pair.values.y = is_key ? k[from + pair.b] : q[from + pair.b];
    if (NORMED && pair.a < k_dim) pair.factors.x = is_key ? k_norm[k_norm_at + pair.a] : q_norm[q_norm_at + pair.a];
    if (NORMED && pair.b < k_dim) pair.factors.y = is_key ? k_norm[k_norm_at + pair.b] : q_norm[q_norm_at + pair.b];
    return pair;
}

void put_pair(Pair pair) {
    const uint row = pair.head - HEADS; // of a key
    const uint at = pair.head < HEADS ? position : position - n_before + row;
    vec2 cs = magnitude * turn(at, pair.turns), u = pair.values;
    if (NORMED && pair.head < HEADS + ROWS) {
        float square = 0.0;
        for (uint i = 0; i < PAIRS / SUBGROUP_SIZE; i++) square += squares[pair.head * (PAIRS / SUBGROUP_SIZE) + i];
        u *= inversesqrt(square / float(k_dim) + EPS) * pair.factors;
    }
    if (pair.a < n_rot) u = vec2(u.x * cs.x - u.y * cs.y, u.x * cs.y + u.y * cs.x);
    if (pair.head >= HEADS) {
        if (row > n_before) return;
        set_value(true, row, pair.a, rounded(u.x));
        set_value(true, row, pair.b, rounded(u.y));
    } else {
        uint to = pair.head * K_OCTETS * 8u;
        queries[(to + pair.a) / 4u][pair.a % 4u] = u.x;
        queries[(to + pair.b) / 4u][pair.b % 4u] = u.y;
    }
}
