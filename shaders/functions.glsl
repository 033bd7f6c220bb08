// Functions of formulas that GLSL lacks, or whose GLSL versions overflow.

float stable_tanh(float v) { return 1.0 - 2.0 / (exp(2.0 * v) + 1.0); }
float softplus(float v) { return max(v, 0.0) + log(1.0 + exp(-abs(v))); }
