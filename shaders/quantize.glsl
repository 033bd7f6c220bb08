// Activations in int8: blocks of 32 with a float32 scale, and the sums of both halves of 16 as two int16. Eight adjacent
// lanes form a block, each with four columns.

struct Quantized { uint codes; float scale; uint sums; };

Quantized quantize(vec4 v) {
    vec4 a = abs(v);
    float top = max(max(a.x, a.y), max(a.z, a.w));
    [[unroll]] for (uint mask = 1; mask < 8; mask *= 2) top = max(top, subgroupShuffleXor(top, mask));
    Quantized q;
    q.scale = top / 127.0;
    ivec4 c = ivec4(roundEven(v * (top > 0.0 ? 127.0 / top : 0.0)));
    q.codes = uint(c.x & 255) | uint(c.y & 255) << 8 | uint(c.z & 255) << 16 | uint(c.w) << 24;
    int sum = c.x + c.y + c.z + c.w;
    sum += subgroupShuffleXor(sum, 1);
    sum += subgroupShuffleXor(sum, 2);
    q.sums = uint(sum & 0xFFFF) | uint(subgroupShuffleXor(sum, 4)) << 16;  // valid in the first four lanes
    return q;
}
