// The specialization constants of shaders/persistent.comp for models with any experts (persistent/general.py).
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 512u;
layout(constant_id = 1) const uint LANES = 32u; // subgroup size
layout(constant_id = 2) const uint GROUPS = 128u;
layout(constant_id = 3) const uint LAYERS = 16u;
layout(constant_id = 4) const uint WIDTH = 2048u;
layout(constant_id = 5) const uint HEADS = 32u;
layout(constant_id = 6) const uint KV_HEADS = 8u;
layout(constant_id = 7) const uint DIM = 64u;
layout(constant_id = 8) const uint FFN = 8192u; // gated values of a layer
layout(constant_id = 9) const uint VOCAB = 128256u;
layout(constant_id = 10) const uint EACH = 2u; // positions of an invocation at a time, in attention
layout(constant_id = 11) const bool EARLY = true; // ask for keys before the products of queries
layout(constant_id = 12) const uint block_size = 32u;
layout(constant_id = 13) const uint SHARE = 1u; // heads of a workgroup in attention to many positions; 1: none
layout(constant_id = 14) const uint DEEP = 512u; // positions that are many
layout(constant_id = 15) const uint DEEP_EACH = 2u; // positions of an invocation at a time there
layout(constant_id = 16) const bool WITH_OTHERS = false; // all subgroups enter loops, which software devices need
layout(constant_id = 17) const bool BIASES = false;      // of queries, keys and values
layout(constant_id = 18) const bool WITH_HEAD_NORMS = false;
layout(constant_id = 19) const uint EXPERTS = 8u;        // of a layer
layout(constant_id = 20) const uint USED = 0u;           // experts of a token
layout(constant_id = 21) const uint EXPERT_FFN = 0u;     // width of an expert
layout(constant_id = 22) const uint TYPES_Q = 8u; // masks of types of matrices: of queries, keys and values, attention's output,
layout(constant_id = 23) const uint TYPES_K = 8u; // gate and up, down, and the output
layout(constant_id = 24) const uint TYPES_O = 8u;
layout(constant_id = 25) const uint TYPES_G = 8u;
layout(constant_id = 26) const uint TYPES_D = 8u;
layout(constant_id = 27) const uint TYPES_L = 8u;
layout(constant_id = 28) const uint SPLIT_Q = 1u; // subgroups of a row
layout(constant_id = 29) const uint SPLIT_O = 1u;
layout(constant_id = 30) const uint SPLIT_G = 1u;
layout(constant_id = 31) const uint SPLIT_D = 1u;
layout(constant_id = 32) const uint RR_Q = 4u; // rows of a step
layout(constant_id = 33) const uint RR_K = 4u;
layout(constant_id = 34) const uint RR_O = 4u;
layout(constant_id = 35) const uint RR_G = 4u;
layout(constant_id = 36) const uint RR_D = 4u;
layout(constant_id = 37) const uint RR_L = 4u;
layout(constant_id = 38) const bool GELU = false; // activation of gated values; false: SiLU
