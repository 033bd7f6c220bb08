// Arguments of the attention kernels for many tokens.
#define CACHE_BINDING 2
#include "cache.glsl"

layout(std430, set = 0, binding = 1) readonly buffer Q { float q[]; };
layout(std430, set = 0, binding = 3) readonly buffer Sinks { float sinks[]; };
layout(std430, set = 0, binding = 4) readonly buffer Bias { float bias[]; }; // attention_general.glsl
layout(std430, set = 0, binding = 5) buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint rows, q_at, cache_at, sinks_at, bias_at, y_at;
    uint sequences, positions, seq_starts, table, table_width; // indices in the step block
    uint n_head_kv, heads_per_key;
    uint k_row_words, v_row_words, k_scale_words, v_scale_words, v_cache;
    uint k_dim, v_dim, v_head_dim, window; // v_head_dim: stride of heads in a quantized row
    float scale;
    uint n_parts, reach, lengths;
};
