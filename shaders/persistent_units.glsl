#ifdef llama_1b_q4_0
// 30 units a layer, 8 ahead. Made by tools/straight_line.py.
uvec4 w0 = uvec4(0u); uint s0 = 0u; uvec2 h0 = uvec2(0u); uint e0 = 0u;
uvec4 w1 = uvec4(0u); uint s1 = 0u; uvec2 h1 = uvec2(0u); uint e1 = 0u;
uvec4 w2 = uvec4(0u); uint s2 = 0u; uvec2 h2 = uvec2(0u); uint e2 = 0u;
uvec4 w3 = uvec4(0u); uint s3 = 0u; uvec2 h3 = uvec2(0u); uint e3 = 0u;
uvec4 w4 = uvec4(0u); uint s4 = 0u; uvec2 h4 = uvec2(0u); uint e4 = 0u;
uvec4 w5 = uvec4(0u); uint s5 = 0u; uvec2 h5 = uvec2(0u); uint e5 = 0u;
uvec4 w6 = uvec4(0u); uint s6 = 0u; uvec2 h6 = uvec2(0u); uint e6 = 0u;
uvec4 w7 = uvec4(0u); uint s7 = 0u; uvec2 h7 = uvec2(0u); uint e7 = 0u;
uvec4 w8 = uvec4(0u); uint s8 = 0u;
uvec4 w9 = uvec4(0u); uint s9 = 0u;
uvec4 w10 = uvec4(0u); uint s10 = 0u;
uvec4 w11 = uvec4(0u); uint s11 = 0u;
uvec4 w12 = uvec4(0u); uint s12 = 0u;
uvec4 w13 = uvec4(0u); uint s13 = 0u;
uvec4 w14 = uvec4(0u); uint s14 = 0u;
uvec4 w15 = uvec4(0u); uint s15 = 0u;
uvec4 w16 = uvec4(0u); uint s16 = 0u;
uvec4 w17 = uvec4(0u); uint s17 = 0u;
uvec4 w18 = uvec4(0u); uint s18 = 0u;
uvec4 w19 = uvec4(0u); uint s19 = 0u;
uvec4 w20 = uvec4(0u); uint s20 = 0u;
uvec4 w21 = uvec4(0u); uint s21 = 0u;
uvec4 w22 = uvec4(0u); uint s22 = 0u;
uvec4 w23 = uvec4(0u); uint s23 = 0u;
uvec4 w24 = uvec4(0u); uint s24 = 0u;
uvec4 w25 = uvec4(0u); uint s25 = 0u;
uvec4 w26 = uvec4(0u); uint s26 = 0u;
uvec4 w27 = uvec4(0u); uint s27 = 0u;
uvec4 w28 = uvec4(0u); uint s28 = 0u;
uvec4 w29 = uvec4(0u); uint s29 = 0u;
uint here_q, there_q, q_block;
uint here_k, there_k, k_block;
uint here_v, there_v, v_block;
uint here_o, there_o, o_block;
uint here_gate, there_gate, gate_block;
uint here_up, there_up, up_block;
uint here_down, there_down, down_block;
uint output_place;
void load_places(uint layer) {
    there_q = places[places_at + 8u * layer + 0u];
    there_k = places[places_at + 8u * layer + 1u];
    there_v = places[places_at + 8u * layer + 2u];
    there_o = places[places_at + 8u * layer + 3u];
    there_gate = places[places_at + 8u * layer + 4u];
    there_up = places[places_at + 8u * layer + 5u];
    there_down = places[places_at + 8u * layer + 6u];
}
void move_on() {
    here_q = there_q;
    here_k = there_k;
    here_v = there_v;
    here_o = there_o;
    here_gate = there_gate;
    here_up = there_up;
    here_down = there_down;
}
void load_first() {
    output_place = places[places_at + 8u * LAYERS];
    q_block = (min(wg * 16u + min(min(warp / 2u, 7u) * 2u + 0u, 15u), 2047u) * 64u + warp % 2u * LANES + lane);
    k_block = (min(wg * 4u + min(min(warp / 2u, 7u) * 1u + 0u, 3u), 511u) * 64u + warp % 2u * LANES + lane);
    v_block = (min(wg * 4u + min(min(warp / 2u, 7u) * 1u + 0u, 3u), 511u) * 64u + warp % 2u * LANES + lane);
    o_block = (min(wg * 16u + min(min(warp / 2u, 7u) * 2u + 0u, 15u), 2047u) * 64u + warp % 2u * LANES + lane);
    gate_block = (min(wg * 64u + min(min(warp / 2u, 7u) * 8u + 0u, 63u), 8191u) * 64u + warp % 2u * LANES + lane);
    up_block = (min(wg * 64u + min(min(warp / 2u, 7u) * 8u + 0u, 63u), 8191u) * 64u + warp % 2u * LANES + lane);
    down_block = (min(wg * 16u + min(min(warp / 8u, 1u) * 8u + 0u, 15u), 2047u) * 256u + warp % 8u * LANES + lane);
    w0 = a4[(here_q & PLACE) + (q_block + 0u * 64u)]; s0 = uint(a_halves[2u * (4u * ((here_q & PLACE) + 131072u)) + (q_block + 0u * 64u)]);
    w1 = a4[(here_q & PLACE) + (q_block + 1u * 64u)]; s1 = uint(a_halves[2u * (4u * ((here_q & PLACE) + 131072u)) + (q_block + 1u * 64u)]);
    w2 = a4[(here_k & PLACE) + (min(wg * 4u + min(min(warp / 2u, 7u) * 1u + 0u, 3u), 511u) * 64u + warp % 2u * LANES + lane)]; s2 = uint(a_halves[2u * (4u * ((here_k & PLACE) + 32768u)) + (min(wg * 4u + min(min(warp / 2u, 7u) * 1u + 0u, 3u), 511u) * 64u + warp % 2u * LANES + lane)]);
    w3 = a4[(here_v & PLACE) + (min(wg * 4u + min(min(warp / 2u, 7u) * 1u + 0u, 3u), 511u) * 64u + warp % 2u * LANES + lane)]; s3 = uint(a_halves[2u * (4u * ((here_v & PLACE) + 32768u)) + (min(wg * 4u + min(min(warp / 2u, 7u) * 1u + 0u, 3u), 511u) * 64u + warp % 2u * LANES + lane)]);
    w4 = a4[(here_o & PLACE) + (o_block + 0u * 64u)]; s4 = uint(a_halves[2u * (4u * ((here_o & PLACE) + 131072u)) + (o_block + 0u * 64u)]);
    w5 = a4[(here_o & PLACE) + (o_block + 1u * 64u)]; s5 = uint(a_halves[2u * (4u * ((here_o & PLACE) + 131072u)) + (o_block + 1u * 64u)]);
    w6 = a4[(here_gate & PLACE) + (gate_block + 0u * 64u)]; s6 = uint(a_halves[2u * (4u * ((here_gate & PLACE) + 524288u)) + (gate_block + 0u * 64u)]);
    w7 = a4[(here_gate & PLACE) + (gate_block + 1u * 64u)]; s7 = uint(a_halves[2u * (4u * ((here_gate & PLACE) + 524288u)) + (gate_block + 1u * 64u)]);
}
void multiply_q(bool last) {
{
float t0 = product(w0, uvec2(0u), s0, 0u, false); w8 = a4[(here_gate & PLACE) + (gate_block + 2u * 64u)]; s8 = uint(a_halves[2u * (4u * ((here_gate & PLACE) + 524288u)) + (gate_block + 2u * 64u)]);
float t1 = product(w1, uvec2(0u), s1, 0u, false); w9 = a4[(here_gate & PLACE) + (gate_block + 3u * 64u)]; s9 = uint(a_halves[2u * (4u * ((here_gate & PLACE) + 524288u)) + (gate_block + 3u * 64u)]);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 16); }
t0 += subgroupShuffleXor(t0, 8);
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 16u, row = slot * 2u + 0u + i;
if (lane % 16u == 0u && i < 2u && row < 16u && slot < 8u)
    partial[warp % 2u * STRIDE_Q + 0u + row] = t0;
}
}
void multiply_k(bool last) {
{
float t0 = product(w2, uvec2(0u), s2, 0u, false); w10 = a4[(here_gate & PLACE) + (gate_block + 4u * 64u)]; s10 = uint(a_halves[2u * (4u * ((here_gate & PLACE) + 524288u)) + (gate_block + 4u * 64u)]);
t0 += subgroupShuffleXor(t0, 16);
t0 += subgroupShuffleXor(t0, 8);
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 32u, row = slot * 1u + 0u + i;
if (lane % 32u == 0u && i < 1u && row < 4u && slot < 8u)
    partial[warp % 2u * STRIDE_Q + OF_Q + row] = t0;
}
}
void multiply_v(bool last) {
{
float t0 = product(w3, uvec2(0u), s3, 0u, false); w11 = a4[(here_gate & PLACE) + (gate_block + 5u * 64u)]; s11 = uint(a_halves[2u * (4u * ((here_gate & PLACE) + 524288u)) + (gate_block + 5u * 64u)]);
t0 += subgroupShuffleXor(t0, 16);
t0 += subgroupShuffleXor(t0, 8);
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 32u, row = slot * 1u + 0u + i;
if (lane % 32u == 0u && i < 1u && row < 4u && slot < 8u)
    partial[warp % 2u * STRIDE_Q + OF_Q + OF_K + row] = t0;
}
}
void multiply_o(bool last) {
{
float t0 = product(w4, uvec2(0u), s4, 0u, false); w12 = a4[(here_gate & PLACE) + (gate_block + 6u * 64u)]; s12 = uint(a_halves[2u * (4u * ((here_gate & PLACE) + 524288u)) + (gate_block + 6u * 64u)]);
float t1 = product(w5, uvec2(0u), s5, 0u, false); w13 = a4[(here_gate & PLACE) + (gate_block + 7u * 64u)]; s13 = uint(a_halves[2u * (4u * ((here_gate & PLACE) + 524288u)) + (gate_block + 7u * 64u)]);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 16); }
t0 += subgroupShuffleXor(t0, 8);
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 16u, row = slot * 2u + 0u + i;
if (lane % 16u == 0u && i < 2u && row < 16u && slot < 8u)
    partial[warp % 2u * STRIDE_X + 0u + row] = t0;
}
}
void multiply_gate(bool last) {
{
float t0 = product(w6, uvec2(0u), s6, 0u, false); w14 = a4[(here_up & PLACE) + (up_block + 0u * 64u)]; s14 = uint(a_halves[2u * (4u * ((here_up & PLACE) + 524288u)) + (up_block + 0u * 64u)]);
float t1 = product(w7, uvec2(0u), s7, 0u, false); w15 = a4[(here_up & PLACE) + (up_block + 1u * 64u)]; s15 = uint(a_halves[2u * (4u * ((here_up & PLACE) + 524288u)) + (up_block + 1u * 64u)]);
float t2 = product(w8, uvec2(0u), s8, 0u, false); w16 = a4[(here_up & PLACE) + (up_block + 2u * 64u)]; s16 = uint(a_halves[2u * (4u * ((here_up & PLACE) + 524288u)) + (up_block + 2u * 64u)]);
float t3 = product(w9, uvec2(0u), s9, 0u, false); w17 = a4[(here_up & PLACE) + (up_block + 3u * 64u)]; s17 = uint(a_halves[2u * (4u * ((here_up & PLACE) + 524288u)) + (up_block + 3u * 64u)]);
float t4 = product(w10, uvec2(0u), s10, 0u, false); w18 = a4[(here_up & PLACE) + (up_block + 4u * 64u)]; s18 = uint(a_halves[2u * (4u * ((here_up & PLACE) + 524288u)) + (up_block + 4u * 64u)]);
float t5 = product(w11, uvec2(0u), s11, 0u, false); w19 = a4[(here_up & PLACE) + (up_block + 5u * 64u)]; s19 = uint(a_halves[2u * (4u * ((here_up & PLACE) + 524288u)) + (up_block + 5u * 64u)]);
float t6 = product(w12, uvec2(0u), s12, 0u, false); w20 = a4[(here_up & PLACE) + (up_block + 6u * 64u)]; s20 = uint(a_halves[2u * (4u * ((here_up & PLACE) + 524288u)) + (up_block + 6u * 64u)]);
float t7 = product(w13, uvec2(0u), s13, 0u, false); w21 = a4[(here_up & PLACE) + (up_block + 7u * 64u)]; s21 = uint(a_halves[2u * (4u * ((here_up & PLACE) + 524288u)) + (up_block + 7u * 64u)]);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t4 : t0, gone = up ? t0 : t4;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t5 : t1, gone = up ? t1 : t5;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t6 : t2, gone = up ? t2 : t6;
t2 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t7 : t3, gone = up ? t3 : t7;
t3 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 8); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 8); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 4); }
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 4u, row = slot * 8u + 0u + i;
if (lane % 4u == 0u && i < 8u && row < 64u && slot < 8u)
    partial[warp % 2u * STRIDE_G + 0u + row] = t0;
}
}
void multiply_up(bool last) {
{
float t0 = product(w14, uvec2(0u), s14, 0u, false); w22 = a4[(here_down & PLACE) + (down_block + 0u * 256u)]; s22 = uint(a_halves[2u * (4u * ((here_down & PLACE) + 524288u)) + (down_block + 0u * 256u)]);
float t1 = product(w15, uvec2(0u), s15, 0u, false); w23 = a4[(here_down & PLACE) + (down_block + 1u * 256u)]; s23 = uint(a_halves[2u * (4u * ((here_down & PLACE) + 524288u)) + (down_block + 1u * 256u)]);
float t2 = product(w16, uvec2(0u), s16, 0u, false); w24 = a4[(here_down & PLACE) + (down_block + 2u * 256u)]; s24 = uint(a_halves[2u * (4u * ((here_down & PLACE) + 524288u)) + (down_block + 2u * 256u)]);
float t3 = product(w17, uvec2(0u), s17, 0u, false); w25 = a4[(here_down & PLACE) + (down_block + 3u * 256u)]; s25 = uint(a_halves[2u * (4u * ((here_down & PLACE) + 524288u)) + (down_block + 3u * 256u)]);
float t4 = product(w18, uvec2(0u), s18, 0u, false); w26 = a4[(here_down & PLACE) + (down_block + 4u * 256u)]; s26 = uint(a_halves[2u * (4u * ((here_down & PLACE) + 524288u)) + (down_block + 4u * 256u)]);
float t5 = product(w19, uvec2(0u), s19, 0u, false); w27 = a4[(here_down & PLACE) + (down_block + 5u * 256u)]; s27 = uint(a_halves[2u * (4u * ((here_down & PLACE) + 524288u)) + (down_block + 5u * 256u)]);
float t6 = product(w20, uvec2(0u), s20, 0u, false); w28 = a4[(here_down & PLACE) + (down_block + 6u * 256u)]; s28 = uint(a_halves[2u * (4u * ((here_down & PLACE) + 524288u)) + (down_block + 6u * 256u)]);
float t7 = product(w21, uvec2(0u), s21, 0u, false); w29 = a4[(here_down & PLACE) + (down_block + 7u * 256u)]; s29 = uint(a_halves[2u * (4u * ((here_down & PLACE) + 524288u)) + (down_block + 7u * 256u)]);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t4 : t0, gone = up ? t0 : t4;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t5 : t1, gone = up ? t1 : t5;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t6 : t2, gone = up ? t2 : t6;
t2 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t7 : t3, gone = up ? t3 : t7;
t3 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 8); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 8); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 4); }
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 4u, row = slot * 8u + 0u + i;
if (lane % 4u == 0u && i < 8u && row < 64u && slot < 8u)
    partial[warp % 2u * STRIDE_G + OF_G + row] = t0;
}
}
void multiply_down(bool last) {
{
float t0 = product(w22, uvec2(0u), s22, 0u, false); if (last) { w0 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 0u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s0 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 0u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h0 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 0u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e0 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 0u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u]; } else { w0 = a4[(there_q & PLACE) + (q_block + 0u * 64u)]; s0 = uint(a_halves[2u * (4u * ((there_q & PLACE) + 131072u)) + (q_block + 0u * 64u)]); }
float t1 = product(w23, uvec2(0u), s23, 0u, false); if (last) { w1 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 1u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s1 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 1u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h1 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 1u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e1 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 1u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u]; } else { w1 = a4[(there_q & PLACE) + (q_block + 1u * 64u)]; s1 = uint(a_halves[2u * (4u * ((there_q & PLACE) + 131072u)) + (q_block + 1u * 64u)]); }
float t2 = product(w24, uvec2(0u), s24, 0u, false); if (last) { w2 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 2u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s2 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 2u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h2 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 2u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e2 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 2u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u]; } else { w2 = a4[(there_k & PLACE) + (min(wg * 4u + min(min(warp / 2u, 7u) * 1u + 0u, 3u), 511u) * 64u + warp % 2u * LANES + lane)]; s2 = uint(a_halves[2u * (4u * ((there_k & PLACE) + 32768u)) + (min(wg * 4u + min(min(warp / 2u, 7u) * 1u + 0u, 3u), 511u) * 64u + warp % 2u * LANES + lane)]); }
float t3 = product(w25, uvec2(0u), s25, 0u, false); if (last) { w3 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 3u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s3 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 3u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h3 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 3u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e3 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 3u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u]; } else { w3 = a4[(there_v & PLACE) + (min(wg * 4u + min(min(warp / 2u, 7u) * 1u + 0u, 3u), 511u) * 64u + warp % 2u * LANES + lane)]; s3 = uint(a_halves[2u * (4u * ((there_v & PLACE) + 32768u)) + (min(wg * 4u + min(min(warp / 2u, 7u) * 1u + 0u, 3u), 511u) * 64u + warp % 2u * LANES + lane)]); }
float t4 = product(w26, uvec2(0u), s26, 0u, false); if (last) { w4 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 4u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s4 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 4u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h4 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 4u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e4 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 4u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u]; } else { w4 = a4[(there_o & PLACE) + (o_block + 0u * 64u)]; s4 = uint(a_halves[2u * (4u * ((there_o & PLACE) + 131072u)) + (o_block + 0u * 64u)]); }
float t5 = product(w27, uvec2(0u), s27, 0u, false); if (last) { w5 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 5u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s5 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 5u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h5 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 5u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e5 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 5u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u]; } else { w5 = a4[(there_o & PLACE) + (o_block + 1u * 64u)]; s5 = uint(a_halves[2u * (4u * ((there_o & PLACE) + 131072u)) + (o_block + 1u * 64u)]); }
float t6 = product(w28, uvec2(0u), s28, 0u, false); if (last) { w6 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 6u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s6 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 6u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h6 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 6u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e6 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 6u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u]; } else { w6 = a4[(there_gate & PLACE) + (gate_block + 0u * 64u)]; s6 = uint(a_halves[2u * (4u * ((there_gate & PLACE) + 524288u)) + (gate_block + 0u * 64u)]); }
float t7 = product(w29, uvec2(0u), s29, 0u, false); if (last) { w7 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 7u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s7 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 7u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h7 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 7u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e7 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 7u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u]; } else { w7 = a4[(there_gate & PLACE) + (gate_block + 1u * 64u)]; s7 = uint(a_halves[2u * (4u * ((there_gate & PLACE) + 524288u)) + (gate_block + 1u * 64u)]); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t4 : t0, gone = up ? t0 : t4;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t5 : t1, gone = up ? t1 : t5;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t6 : t2, gone = up ? t2 : t6;
t2 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t7 : t3, gone = up ? t3 : t7;
t3 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 8); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 8); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 4); }
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 8u, i = lane / 4u, row = slot * 8u + 0u + i;
if (lane % 4u == 0u && i < 8u && row < 16u && slot < 2u)
    partial[warp % 8u * STRIDE_X + 0u + row] = t0;
}
}
void multiply_output() {
for (uint r = 0u; r < 126u; r += 8u) {
{
float t0 = product(w0, h0, s0, e0, true); w0 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 8u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s0 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 8u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h0 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 8u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e0 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 8u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u];
float t1 = product(w1, h1, s1, e1, true); w1 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 9u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s1 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 9u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h1 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 9u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e1 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 9u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u];
float t2 = product(w2, h2, s2, e2, true); w2 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 10u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s2 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 10u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h2 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 10u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e2 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 10u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u];
float t3 = product(w3, h3, s3, e3, true); w3 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 11u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s3 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 11u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h3 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 11u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e3 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 11u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u];
float t4 = product(w4, h4, s4, e4, true); w4 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 12u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s4 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 12u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h4 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 12u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e4 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 12u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u];
float t5 = product(w5, h5, s5, e5, true); w5 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 13u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s5 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 13u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h5 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 13u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e5 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 13u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u];
float t6 = product(w6, h6, s6, e6, true); w6 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 14u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s6 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 14u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h6 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 14u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e6 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 14u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u];
float t7 = product(w7, h7, s7, e7, true); w7 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 15u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s7 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 15u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h7 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 15u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e7 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 15u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u];
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t4 : t0, gone = up ? t0 : t4;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t5 : t1, gone = up ? t1 : t5;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t6 : t2, gone = up ? t2 : t6;
t2 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t7 : t3, gone = up ? t3 : t7;
t3 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 8); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 8); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 4); }
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 4u, row = slot * 126u + r + 0u + i;
if (lane % 4u == 0u && r + 0u + i < 126u && row < 1002u && slot < 8u)
    partial[warp % 2u * STRIDE_L + 0u + row] = t0;
}
}
}
#endif
