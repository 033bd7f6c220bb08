// Functions of formulas that GLSL lacks, or whose GLSL versions overflow.

float stable_tanh(float v) { return 1.0 - 2.0 / (exp(2.0 * v) + 1.0); }
float softplus(float v) { return max(v, 0.0) + log(1.0 + exp(-abs(v))); }

// Vulkan bounds the error of sin() only within [-pi, pi], by 2^-11.
float wide_sin(float v) {
    precise float n = roundEven(v * 0.31830988618379067);
    precise float r = fma(n, -1.5099580252808664e-07, fma(n, -0.0009675025939941406, fma(n, -3.140625, v)));
    precise float z = r * r;
    precise float series = fma(-2.505210838544172e-08, z, 2.7557319223985893e-06);
    series = fma(fma(fma(series, z, -0.0001984126984126984), z, 0.008333333333333333), z, -0.16666666666666666);
    precise float odd = n - 2.0 * roundEven(n * 0.5);
    return fma(r * z, series, r) * (1.0 - 2.0 * odd * odd);
}
