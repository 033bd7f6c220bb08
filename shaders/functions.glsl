// Operations element by element, without overflow or loss of digits. Each function named after one is a variant: unary_NAME
// of unary.comp, with the operation's constants p and q where it has any; binary_NAME of binary.comp.

float unary_sigmoid(float v, float p, float q) { return 1.0 / (1.0 + exp(-v)); }
float unary_silu(float v, float p, float q) { return v / (1.0 + exp(-v)); }
float unary_tanh(float v, float p, float q) { return 1.0 - 2.0 / (exp(2.0 * v) + 1.0); }
float unary_gelu(float v, float p, float q) {
    return 0.5 * v * (1.0 + unary_tanh(0.7978845608028654 * (v + 0.044715 * v * v * v), 0.0, 0.0));
}
float unary_relu(float v, float p, float q) { return max(v, 0.0); }
float unary_softplus(float v, float p, float q) { return max(v, 0.0) + log(1.0 + exp(-abs(v))); }
float unary_scale(float v, float p, float q) { return v * p + q; }
float unary_clamp(float v, float p, float q) { return clamp(v, p, q); }

float binary_add(float a, float b) { return a + b; }
float binary_mul(float a, float b) { return a * b; }
float binary_div(float a, float b) { return a / b; }
float binary_silu_mul(float a, float b) { return unary_silu(a, 0.0, 0.0) * b; }
float binary_gelu_mul(float a, float b) { return unary_gelu(a, 0.0, 0.0) * b; }
