// All of attention for a lone token: a workgroup turns the queries of some heads and the key they read, stores that key
// and its value, attends to one part of the positions, one position an invocation, and the last one to end merges all.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "common.glsl"
#include "rope_angle.glsl"
#define CACHE_BINDING 8
#define CACHE_ACCESS
#include "cache.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint PART = 128u; // positions
layout(constant_id = 1) const uint HEADS = 4u;
layout(constant_id = 2) const uint K_OCTETS = 8u;
layout(constant_id = 3) const uint V_QUADS = 16u;
layout(constant_id = 4) const bool HAS_SINKS = false;
layout(std430, set = 0, binding = 1) readonly buffer Q { float q[]; };
layout(std430, set = 0, binding = 2) readonly buffer K { float k[]; };
layout(std430, set = 0, binding = 3) readonly buffer V { float v[]; };
layout(std430, set = 0, binding = 4) readonly buffer Turns { uvec2 turns[]; };
layout(std430, set = 0, binding = 5) readonly buffer Sinks { float sinks[]; };
layout(std430, set = 0, binding = 6) coherent buffer Partial { float partial[]; };
layout(std430, set = 0, binding = 7) coherent buffer Counters { uint counters[]; };
layout(std430, set = 0, binding = 9) buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, q_at, k_at, v_at, turns_at, sinks_at, partial_at, counters_at, cache_at, y_at;
    uint positions, table, block_size; // words of the step block
    uint n_head_kv, heads_per_key;
    uint k_row_words, v_row_words, k_scale_words, v_scale_words, v_cache;
    uint k_dim, v_dim, v_head_dim, window;
    float scale, softcap;
    uint n_parts;
    uint n_rot, second_distance; // pairs are this far apart; neighbours with 1
    float magnitude;
};
#define table_width 0u
#include "attention.glsl"

const uint SLICES = V_QUADS >= PART ? 1u : PART / V_QUADS;

shared vec4 queries[HEADS * K_OCTETS * 2u];
shared vec4 new_key[K_OCTETS * 2u];
shared vec4 new_value[V_QUADS];
shared float weights[HEADS * PART];
shared float parts[HEADS * PART / 4u];
shared vec4 sums[HEADS * PART];
shared bool last;

uint me, position;

// What one value of a head becomes: a and b are its pair, and second says which of them it is.
void pair_of(uint i, out uint pair, out uint a, out uint b, out bool second) {
    pair = second_distance == 1u ? i / 2u : i % second_distance;
    a = second_distance == 1u ? 2u * pair : pair;
    b = a + second_distance;
    second = i == b;
}

float turned(float first, float second, uint pair, bool is_second) {
    vec2 cs = magnitude * turn(position, turns[turns_at / 2u + pair]);
    return is_second ? first * cs.y + second * cs.x : first * cs.x - second * cs.y;
}

float query(uint from, uint i) {
    if (i >= n_rot) return q[from + i];
    uint pair, a, b;
    bool second;
    pair_of(i, pair, a, b, second);
    return turned(q[from + a], q[from + b], pair, second);
}

float key(uint from, uint i) {
    if (i >= n_rot) return k[from + i];
    uint pair, a, b;
    bool second;
    pair_of(i, pair, a, b, second);
    return turned(k[from + a], k[from + b], pair, second);
}

// Words of a row of the cache, from the values in shared memory, which become what the cache will give back.
#define VALUE(i) (is_key ? new_key[(i) / 4u][(i) % 4u] : new_value[(i) / 4u][(i) % 4u])

float half_of(float x) { return unpackHalf2x16(packHalf2x16(vec2(x, 0.0))).x; }

void set_value(bool is_key, uint i, float x) {
    if (is_key) new_key[i / 4u][i % 4u] = x;
    else new_value[i / 4u][i % 4u] = x;
}

void store(bool is_key, bool write, uint to, uint dim, uint head_kv, uint scale_words) {
#if defined(CACHE_F32)
    for (uint i = me; write && i < dim; i += PART) cache1[to + i] = floatBitsToUint(VALUE(i));
#elif defined(CACHE_F16)
    for (uint i = me; write && 2u * i < dim; i += PART) {
        cache1[to + i] = packHalf2x16(vec2(VALUE(2u * i), 2u * i + 1u < dim ? VALUE(2u * i + 1u) : 0.0));
    }
#else
    for (uint unit = me; unit < dim / 32u; unit += PART) {
        uint block = head_kv * dim / 32u + unit;
        float extreme = 0.0;
        for (uint j = 0; j < 32u; j++) {
            float x = VALUE(unit * 32u + j);
            if (abs(x) > abs(extreme)) extreme = x;
        }
#if defined(CACHE_Q8_0)
        float scale = abs(extreme) / 127.0, inverse = scale == 0.0 ? 0.0 : 1.0 / scale, kept = half_of(scale);
        for (uint j = 0; j < 8u; j++) {
            uint w = 0u;
            for (uint n = 0; n < 4u; n++) {
                uint i = unit * 32u + 4u * j + n;
                float x = VALUE(i) * inverse, code = sign(x) * floor(abs(x) + 0.5);
                w |= (uint(int(code)) & 255u) << (8u * n);
                set_value(is_key, i, code * kept);
            }
            if (write) cache1[to + scale_words + block * 8u + j] = w;
        }
#else
        float scale = extreme / -8.0, inverse = scale == 0.0 ? 0.0 : 1.0 / scale, kept = half_of(scale);
        for (uint j = 0; j < 4u; j++) {
            uint w = 0u;
            for (uint n = 0; n < 8u; n++) {
                uint i = unit * 32u + 8u * j + n, code = min(15u, uint(VALUE(i) * inverse + 8.5));
                w |= code << (4u * n);
                set_value(is_key, i, (float(code) - 8.0) * kept);
            }
            if (write) cache1[to + scale_words + block * 4u + j] = w;
        }
#endif
        if (write) cache1[to + block] = floatBitsToUint(kept);
    }
#endif
}

float rounded(float x) {
#ifdef CACHE_F16
    return half_of(x);
#else
    return x;
#endif
}

void main() {
    me = gl_LocalInvocationID.x;
    position = step_words[positions];
    uint groups = (heads_per_key + HEADS - 1u) / HEADS;
    uint head_kv = gl_WorkGroupID.y / groups, group = gl_WorkGroupID.y % groups;
    uint n_heads = min(HEADS, heads_per_key - group * HEADS), first_head = head_kv * heads_per_key + group * HEADS;
    uint oldest = window != 0u && position >= window ? position - window + 1u : 0u;
    uint start = (oldest / PART + gl_WorkGroupID.x) * PART;
    if (start > position) return;
    uint n_used = position / PART - oldest / PART + 1u;

    for (uint i = me; i < HEADS * K_OCTETS * 8u; i += PART) {
        uint h = i / (K_OCTETS * 8u), column = i % (K_OCTETS * 8u);
        bool real = h < n_heads && column < k_dim;
        queries[i / 4u][i % 4u] = real ? query(q_at + (first_head + h) * k_dim, column) : 0.0;
    }
    bool newest = start + PART > position;
    if (newest) {
        for (uint i = me; i < K_OCTETS * 8u; i += PART) {
            new_key[i / 4u][i % 4u] = i < k_dim ? rounded(key(k_at + head_kv * k_dim, i)) : 0.0;
        }
        for (uint i = me; i < V_QUADS * 4u; i += PART) {
            new_value[i / 4u][i % 4u] = i < v_dim ? rounded(v[v_at + head_kv * v_dim + i]) : 0.0;
        }
    }
    barrier();
    if (newest) {
        uint row = cache_row(0u, position, head_kv);
        store(true, group == 0u, cache_at + row * k_row_words, k_dim, head_kv, k_scale_words);
        store(false, group == 0u, cache_at + v_cache + row * v_row_words, v_dim, head_kv, v_scale_words);
    }
#ifdef CACHE_QUANTIZED
    barrier();
#endif

    uint key_position = start + me;
    bool visible = key_position >= oldest && key_position <= position;
    float scores[HEADS];
    for (uint h = 0; h < HEADS; h++) scores[h] = 0.0;
    if (visible) {
        uint row = cache_at + cache_row(0u, key_position, head_kv) * k_row_words;
        for (uint j = 0; j < K_OCTETS; j++) {
            vec4 a, b;
            if (key_position == position) {
                a = new_key[2u * j];
                b = new_key[2u * j + 1u];
            } else {
                key_octet(row, head_kv, j, a, b);
            }
            for (uint h = 0; h < HEADS; h++) {
                scores[h] += dot(a, queries[(h * K_OCTETS + j) * 2u]) + dot(b, queries[(h * K_OCTETS + j) * 2u + 1u]);
            }
        }
    }
    for (uint h = 0; h < HEADS; h++) {
        scores[h] = visible ? capped(scores[h]) : LOWEST;
        float top = subgroupMax(scores[h]);
        if (subgroupElect()) parts[h * (PART / 4u) + gl_SubgroupID] = top;
    }
    barrier();
    float tops[HEADS];
    for (uint h = 0; h < HEADS; h++) {
        tops[h] = parts[h * (PART / 4u)];
        for (uint i = 1; i < gl_NumSubgroups; i++) tops[h] = max(tops[h], parts[h * (PART / 4u) + i]);
        weights[h * PART + me] = visible ? exp(scores[h] - tops[h]) : 0.0;
    }
    barrier();
    for (uint h = 0; h < HEADS; h++) {
        float total = subgroupAdd(weights[h * PART + me]);
        if (subgroupElect()) parts[h * (PART / 4u) + gl_SubgroupID] = total;
    }

    // Values: an invocation has four columns of every SLICES-th position.
    const uint width = min(V_QUADS, PART);
    const uint part_words = V_QUADS * 4u + 4u;
    uint n_keys = min(PART, position + 1u - start), first_key = oldest > start ? oldest - start : 0u;
    for (uint first_quad = 0; first_quad < V_QUADS; first_quad += PART) {
        uint quad = first_quad + me % width, slice = me / width;
        vec4 sum[HEADS];
        for (uint h = 0; h < HEADS; h++) sum[h] = vec4(0.0);
        if (quad < V_QUADS && slice < SLICES) {
            for (uint i = first_key + slice; i < n_keys; i += SLICES) {
                uint row = cache_at + v_cache + cache_row(0u, start + i, head_kv) * v_row_words;
                vec4 value = start + i == position ? new_value[quad] : value_quad(row, head_kv, quad);
                for (uint h = 0; h < HEADS; h++) sum[h] += weights[h * PART + i] * value;
            }
        }
        barrier();
        for (uint h = 0; h < HEADS; h++) sums[h * PART + me] = sum[h];
        barrier();
        for (uint i = me; i < n_heads * width; i += PART) {
            uint h = i / width, at = i % width, head = first_head + h;
            if (first_quad + at >= V_QUADS) continue;
            vec4 total = vec4(0.0);
            for (uint s = 0; s < SLICES; s++) total += sums[h * PART + s * width + at];
            float sum_of_weights = 0.0;
            for (uint s = 0; s < gl_NumSubgroups; s++) sum_of_weights += parts[h * (PART / 4u) + s];
            uint to = partial_at + (head * n_parts + gl_WorkGroupID.x) * part_words;
            float factor = 1.0;
            if (n_used == 1u) {
                float sink = HAS_SINKS ? sinks[sinks_at + head] : LOWEST, highest = max(tops[h], sink);
                factor = exp(tops[h] - highest);
                factor /= sum_of_weights * factor + (HAS_SINKS ? exp(sink - highest) : 0.0);
            }
            for (uint c = 0; c < 4u; c++) {
                uint column = (first_quad + at) * 4u + c;
                if (n_used > 1u) partial[to + column] = total[c];
                else if (column < v_dim) y[y_at + head * v_dim + column] = total[c] * factor;
            }
            if (n_used > 1u && first_quad + at == 0u) {
                partial[to + V_QUADS * 4u] = tops[h];
                partial[to + V_QUADS * 4u + 1u] = sum_of_weights;
            }
        }
    }
    if (n_used == 1u) return;

    memoryBarrierBuffer();
    barrier();
    if (me == 0u) last = atomicAdd(counters[counters_at + gl_WorkGroupID.y], 1u) + 1u == n_used;
    barrier();
    if (!last) return;
    memoryBarrierBuffer();
    if (me == 0u) counters[counters_at + gl_WorkGroupID.y] = 0u; // for the next time
    for (uint i = me; i < n_heads * v_dim; i += PART) {
        uint head = first_head + i / v_dim, column = i % v_dim;
        uint from = partial_at + head * n_parts * part_words, state = from + V_QUADS * 4u;
        float sink = HAS_SINKS ? sinks[sinks_at + head] : LOWEST, top = sink;
        for (uint p = 0; p < n_used; p++) top = max(top, partial[state + p * part_words]);
        float total = HAS_SINKS ? exp(sink - top) : 0.0, sum = 0.0;
        for (uint p = 0; p < n_used; p++) {
            float w = exp(partial[state + p * part_words] - top);
            total += w * partial[state + p * part_words + 1u];
            sum += w * partial[from + p * part_words + column];
        }
        y[y_at + head * v_dim + column] = sum / total;
    }
}
