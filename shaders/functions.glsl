// Functions of one number that neither overflow nor lose digits.

float safe_tanh(float v) { return 1.0 - 2.0 / (exp(2.0 * v) + 1.0); }
float sigmoid(float v) { return 1.0 / (1.0 + exp(-v)); }
float silu(float v) { return v / (1.0 + exp(-v)); }
float gelu(float v) { return 0.5 * v * (1.0 + safe_tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))); }
float softplus(float v) { return max(v, 0.0) + log(1.0 + exp(-abs(v))); }
