#ifdef llama_1b_q4_0
// 30 units a layer, 4 ahead. Made by tools/straight_line.py.
uvec4 w0 = uvec4(0u); uint s0 = 0u; uvec2 h0 = uvec2(0u); uint e0 = 0u;
uvec4 w1 = uvec4(0u); uint s1 = 0u; uvec2 h1 = uvec2(0u); uint e1 = 0u;
uvec4 w2 = uvec4(0u); uint s2 = 0u; uvec2 h2 = uvec2(0u); uint e2 = 0u;
uvec4 w3 = uvec4(0u); uint s3 = 0u; uvec2 h3 = uvec2(0u); uint e3 = 0u;
uvec4 w4 = uvec4(0u); uint s4 = 0u;
uvec4 w5 = uvec4(0u); uint s5 = 0u;
uvec4 w6 = uvec4(0u); uint s6 = 0u;
uvec4 w7 = uvec4(0u); uint s7 = 0u;
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
    there_q = places[places_at + TABLE_ROW * layer + 0u];
    there_k = places[places_at + TABLE_ROW * layer + 1u];
    there_v = places[places_at + TABLE_ROW * layer + 2u];
    there_o = places[places_at + TABLE_ROW * layer + 3u];
    there_gate = places[places_at + TABLE_ROW * layer + 4u];
    there_up = places[places_at + TABLE_ROW * layer + 5u];
    there_down = places[places_at + TABLE_ROW * layer + 6u];
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
    output_place = places[places_at + TABLE_ROW * LAYERS];
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
}
void ask_again() {
    o_block += position >> 30u;
    gate_block += position >> 30u;
    w4 = a4[(here_o & PLACE) + (o_block + 0u * 64u)]; s4 = uint(a_halves[2u * (4u * ((here_o & PLACE) + 131072u)) + (o_block + 0u * 64u)]);
    w5 = a4[(here_o & PLACE) + (o_block + 1u * 64u)]; s5 = uint(a_halves[2u * (4u * ((here_o & PLACE) + 131072u)) + (o_block + 1u * 64u)]);
    w6 = a4[(here_gate & PLACE) + (gate_block + 0u * 64u)]; s6 = uint(a_halves[2u * (4u * ((here_gate & PLACE) + 524288u)) + (gate_block + 0u * 64u)]);
    w7 = a4[(here_gate & PLACE) + (gate_block + 1u * 64u)]; s7 = uint(a_halves[2u * (4u * ((here_gate & PLACE) + 524288u)) + (gate_block + 1u * 64u)]);
}
void multiply_q(bool last) {
}
void multiply_k(bool last) {
}
void multiply_v(bool last) {
{
[[dont_unroll]] for (uint pair = 0u; pair < TOKENS; pair += 2u) {
take_x_of(min(pair + 0u, TOKENS - 1u), warp % 2u, false);
float p00 = product(w0, uvec2(0u), s0, 0u, false);
float p01 = product(w1, uvec2(0u), s1, 0u, false);
float p02 = product(w2, uvec2(0u), s2, 0u, false);
float p03 = product(w3, uvec2(0u), s3, 0u, false);
take_x_of(min(pair + 1u, TOKENS - 1u), warp % 2u, false);
float p10 = product(w0, uvec2(0u), s0, 0u, false);
float p11 = product(w1, uvec2(0u), s1, 0u, false);
float p12 = product(w2, uvec2(0u), s2, 0u, false);
float p13 = product(w3, uvec2(0u), s3, 0u, false);
{
const uint t = min(pair + 0u, TOKENS - 1u);
float t0 = p00;
float t1 = p01;
float t2 = p02;
float t3 = p03;
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 8u;
if (lane % 8u == 0u) {
const bool is_query = i < 2u;
const uint row = is_query ? slot * 2u + i : slot;
const uint of = is_query ? 16u : 4u;
const uint first = is_query ? 0u : i == 2u ? OF_Q : OF_Q + OF_K;
if (slot < 8u && row < of) partial[t * PARTIAL_TOKEN + warp % 2u * STRIDE_Q + first + row] = t0;
}
}
{
const uint t = min(pair + 1u, TOKENS - 1u);
float t0 = p10;
float t1 = p11;
float t2 = p12;
float t3 = p13;
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 8u;
if (lane % 8u == 0u) {
const bool is_query = i < 2u;
const uint row = is_query ? slot * 2u + i : slot;
const uint of = is_query ? 16u : 4u;
const uint first = is_query ? 0u : i == 2u ? OF_Q : OF_Q + OF_K;
if (slot < 8u && row < of) partial[t * PARTIAL_TOKEN + warp % 2u * STRIDE_Q + first + row] = t0;
}
}
}
w4 = a4[(here_o & PLACE) + (o_block + 0u * 64u)]; s4 = uint(a_halves[2u * (4u * ((here_o & PLACE) + 131072u)) + (o_block + 0u * 64u)]);
w5 = a4[(here_o & PLACE) + (o_block + 1u * 64u)]; s5 = uint(a_halves[2u * (4u * ((here_o & PLACE) + 131072u)) + (o_block + 1u * 64u)]);
w6 = a4[(here_gate & PLACE) + (gate_block + 0u * 64u)]; s6 = uint(a_halves[2u * (4u * ((here_gate & PLACE) + 524288u)) + (gate_block + 0u * 64u)]);
w7 = a4[(here_gate & PLACE) + (gate_block + 1u * 64u)]; s7 = uint(a_halves[2u * (4u * ((here_gate & PLACE) + 524288u)) + (gate_block + 1u * 64u)]);
}
}
void multiply_o(bool last) {
{
[[dont_unroll]] for (uint pair = 0u; pair < TOKENS; pair += 2u) {
take_x_of(min(pair + 0u, TOKENS - 1u), warp % 2u, false);
float p00 = product(w4, uvec2(0u), s4, 0u, false);
float p01 = product(w5, uvec2(0u), s5, 0u, false);
take_x_of(min(pair + 1u, TOKENS - 1u), warp % 2u, false);
float p10 = product(w4, uvec2(0u), s4, 0u, false);
float p11 = product(w5, uvec2(0u), s5, 0u, false);
{
const uint t = min(pair + 0u, TOKENS - 1u);
float t0 = p00;
float t1 = p01;
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 16); }
t0 += subgroupShuffleXor(t0, 8);
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 16u;
if (lane % 16u == 0u) {
if (i < 2u && slot * 2u + 0u + i < 16u && slot < 8u)
partial[t * PARTIAL_TOKEN + warp % 2u * STRIDE_X + 0u + slot * 2u + 0u + i] = t0;
}
}
{
const uint t = min(pair + 1u, TOKENS - 1u);
float t0 = p10;
float t1 = p11;
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 16); }
t0 += subgroupShuffleXor(t0, 8);
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 16u;
if (lane % 16u == 0u) {
if (i < 2u && slot * 2u + 0u + i < 16u && slot < 8u)
partial[t * PARTIAL_TOKEN + warp % 2u * STRIDE_X + 0u + slot * 2u + 0u + i] = t0;
}
}
}
w8 = a4[(here_gate & PLACE) + (gate_block + 2u * 64u)]; s8 = uint(a_halves[2u * (4u * ((here_gate & PLACE) + 524288u)) + (gate_block + 2u * 64u)]);
w9 = a4[(here_gate & PLACE) + (gate_block + 3u * 64u)]; s9 = uint(a_halves[2u * (4u * ((here_gate & PLACE) + 524288u)) + (gate_block + 3u * 64u)]);
}
}
void multiply_gate(bool last) {
{
[[dont_unroll]] for (uint pair = 0u; pair < TOKENS; pair += 2u) {
take_x_of(min(pair + 0u, TOKENS - 1u), warp % 2u, false);
float p00 = product(w6, uvec2(0u), s6, 0u, false);
float p01 = product(w7, uvec2(0u), s7, 0u, false);
float p02 = product(w8, uvec2(0u), s8, 0u, false);
float p03 = product(w9, uvec2(0u), s9, 0u, false);
take_x_of(min(pair + 1u, TOKENS - 1u), warp % 2u, false);
float p10 = product(w6, uvec2(0u), s6, 0u, false);
float p11 = product(w7, uvec2(0u), s7, 0u, false);
float p12 = product(w8, uvec2(0u), s8, 0u, false);
float p13 = product(w9, uvec2(0u), s9, 0u, false);
{
const uint t = min(pair + 0u, TOKENS - 1u);
float t0 = p00;
float t1 = p01;
float t2 = p02;
float t3 = p03;
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 8u;
if (lane % 8u == 0u) {
if (i < 4u && slot * 8u + 0u + i < 64u && slot < 8u)
partial[t * PARTIAL_TOKEN + warp % 2u * STRIDE_G + 0u + slot * 8u + 0u + i] = t0;
}
}
{
const uint t = min(pair + 1u, TOKENS - 1u);
float t0 = p10;
float t1 = p11;
float t2 = p12;
float t3 = p13;
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 8u;
if (lane % 8u == 0u) {
if (i < 4u && slot * 8u + 0u + i < 64u && slot < 8u)
partial[t * PARTIAL_TOKEN + warp % 2u * STRIDE_G + 0u + slot * 8u + 0u + i] = t0;
}
}
}
w10 = a4[(here_gate & PLACE) + (gate_block + 4u * 64u)]; s10 = uint(a_halves[2u * (4u * ((here_gate & PLACE) + 524288u)) + (gate_block + 4u * 64u)]);
w11 = a4[(here_gate & PLACE) + (gate_block + 5u * 64u)]; s11 = uint(a_halves[2u * (4u * ((here_gate & PLACE) + 524288u)) + (gate_block + 5u * 64u)]);
w12 = a4[(here_gate & PLACE) + (gate_block + 6u * 64u)]; s12 = uint(a_halves[2u * (4u * ((here_gate & PLACE) + 524288u)) + (gate_block + 6u * 64u)]);
w13 = a4[(here_gate & PLACE) + (gate_block + 7u * 64u)]; s13 = uint(a_halves[2u * (4u * ((here_gate & PLACE) + 524288u)) + (gate_block + 7u * 64u)]);
}
{
[[dont_unroll]] for (uint pair = 0u; pair < TOKENS; pair += 2u) {
take_x_of(min(pair + 0u, TOKENS - 1u), warp % 2u, false);
float p00 = product(w10, uvec2(0u), s10, 0u, false);
float p01 = product(w11, uvec2(0u), s11, 0u, false);
float p02 = product(w12, uvec2(0u), s12, 0u, false);
float p03 = product(w13, uvec2(0u), s13, 0u, false);
take_x_of(min(pair + 1u, TOKENS - 1u), warp % 2u, false);
float p10 = product(w10, uvec2(0u), s10, 0u, false);
float p11 = product(w11, uvec2(0u), s11, 0u, false);
float p12 = product(w12, uvec2(0u), s12, 0u, false);
float p13 = product(w13, uvec2(0u), s13, 0u, false);
{
const uint t = min(pair + 0u, TOKENS - 1u);
float t0 = p00;
float t1 = p01;
float t2 = p02;
float t3 = p03;
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 8u;
if (lane % 8u == 0u) {
if (i < 4u && slot * 8u + 4u + i < 64u && slot < 8u)
partial[t * PARTIAL_TOKEN + warp % 2u * STRIDE_G + 0u + slot * 8u + 4u + i] = t0;
}
}
{
const uint t = min(pair + 1u, TOKENS - 1u);
float t0 = p10;
float t1 = p11;
float t2 = p12;
float t3 = p13;
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 8u;
if (lane % 8u == 0u) {
if (i < 4u && slot * 8u + 4u + i < 64u && slot < 8u)
partial[t * PARTIAL_TOKEN + warp % 2u * STRIDE_G + 0u + slot * 8u + 4u + i] = t0;
}
}
}
w14 = a4[(here_up & PLACE) + (up_block + 0u * 64u)]; s14 = uint(a_halves[2u * (4u * ((here_up & PLACE) + 524288u)) + (up_block + 0u * 64u)]);
w15 = a4[(here_up & PLACE) + (up_block + 1u * 64u)]; s15 = uint(a_halves[2u * (4u * ((here_up & PLACE) + 524288u)) + (up_block + 1u * 64u)]);
w16 = a4[(here_up & PLACE) + (up_block + 2u * 64u)]; s16 = uint(a_halves[2u * (4u * ((here_up & PLACE) + 524288u)) + (up_block + 2u * 64u)]);
w17 = a4[(here_up & PLACE) + (up_block + 3u * 64u)]; s17 = uint(a_halves[2u * (4u * ((here_up & PLACE) + 524288u)) + (up_block + 3u * 64u)]);
}
}
void multiply_up(bool last) {
{
[[dont_unroll]] for (uint pair = 0u; pair < TOKENS; pair += 2u) {
take_x_of(min(pair + 0u, TOKENS - 1u), warp % 2u, false);
float p00 = product(w14, uvec2(0u), s14, 0u, false);
float p01 = product(w15, uvec2(0u), s15, 0u, false);
float p02 = product(w16, uvec2(0u), s16, 0u, false);
float p03 = product(w17, uvec2(0u), s17, 0u, false);
take_x_of(min(pair + 1u, TOKENS - 1u), warp % 2u, false);
float p10 = product(w14, uvec2(0u), s14, 0u, false);
float p11 = product(w15, uvec2(0u), s15, 0u, false);
float p12 = product(w16, uvec2(0u), s16, 0u, false);
float p13 = product(w17, uvec2(0u), s17, 0u, false);
{
const uint t = min(pair + 0u, TOKENS - 1u);
float t0 = p00;
float t1 = p01;
float t2 = p02;
float t3 = p03;
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 8u;
if (lane % 8u == 0u) {
if (i < 4u && slot * 8u + 0u + i < 64u && slot < 8u)
partial[t * PARTIAL_TOKEN + warp % 2u * STRIDE_G + OF_G + slot * 8u + 0u + i] = t0;
}
}
{
const uint t = min(pair + 1u, TOKENS - 1u);
float t0 = p10;
float t1 = p11;
float t2 = p12;
float t3 = p13;
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 8u;
if (lane % 8u == 0u) {
if (i < 4u && slot * 8u + 0u + i < 64u && slot < 8u)
partial[t * PARTIAL_TOKEN + warp % 2u * STRIDE_G + OF_G + slot * 8u + 0u + i] = t0;
}
}
}
w18 = a4[(here_up & PLACE) + (up_block + 4u * 64u)]; s18 = uint(a_halves[2u * (4u * ((here_up & PLACE) + 524288u)) + (up_block + 4u * 64u)]);
w19 = a4[(here_up & PLACE) + (up_block + 5u * 64u)]; s19 = uint(a_halves[2u * (4u * ((here_up & PLACE) + 524288u)) + (up_block + 5u * 64u)]);
w20 = a4[(here_up & PLACE) + (up_block + 6u * 64u)]; s20 = uint(a_halves[2u * (4u * ((here_up & PLACE) + 524288u)) + (up_block + 6u * 64u)]);
w21 = a4[(here_up & PLACE) + (up_block + 7u * 64u)]; s21 = uint(a_halves[2u * (4u * ((here_up & PLACE) + 524288u)) + (up_block + 7u * 64u)]);
}
{
[[dont_unroll]] for (uint pair = 0u; pair < TOKENS; pair += 2u) {
take_x_of(min(pair + 0u, TOKENS - 1u), warp % 2u, false);
float p00 = product(w18, uvec2(0u), s18, 0u, false);
float p01 = product(w19, uvec2(0u), s19, 0u, false);
float p02 = product(w20, uvec2(0u), s20, 0u, false);
float p03 = product(w21, uvec2(0u), s21, 0u, false);
take_x_of(min(pair + 1u, TOKENS - 1u), warp % 2u, false);
float p10 = product(w18, uvec2(0u), s18, 0u, false);
float p11 = product(w19, uvec2(0u), s19, 0u, false);
float p12 = product(w20, uvec2(0u), s20, 0u, false);
float p13 = product(w21, uvec2(0u), s21, 0u, false);
{
const uint t = min(pair + 0u, TOKENS - 1u);
float t0 = p00;
float t1 = p01;
float t2 = p02;
float t3 = p03;
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 8u;
if (lane % 8u == 0u) {
if (i < 4u && slot * 8u + 4u + i < 64u && slot < 8u)
partial[t * PARTIAL_TOKEN + warp % 2u * STRIDE_G + OF_G + slot * 8u + 4u + i] = t0;
}
}
{
const uint t = min(pair + 1u, TOKENS - 1u);
float t0 = p10;
float t1 = p11;
float t2 = p12;
float t3 = p13;
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 2u, i = lane / 8u;
if (lane % 8u == 0u) {
if (i < 4u && slot * 8u + 4u + i < 64u && slot < 8u)
partial[t * PARTIAL_TOKEN + warp % 2u * STRIDE_G + OF_G + slot * 8u + 4u + i] = t0;
}
}
}
w22 = a4[(here_down & PLACE) + (down_block + 0u * 256u)]; s22 = uint(a_halves[2u * (4u * ((here_down & PLACE) + 524288u)) + (down_block + 0u * 256u)]);
w23 = a4[(here_down & PLACE) + (down_block + 1u * 256u)]; s23 = uint(a_halves[2u * (4u * ((here_down & PLACE) + 524288u)) + (down_block + 1u * 256u)]);
w24 = a4[(here_down & PLACE) + (down_block + 2u * 256u)]; s24 = uint(a_halves[2u * (4u * ((here_down & PLACE) + 524288u)) + (down_block + 2u * 256u)]);
w25 = a4[(here_down & PLACE) + (down_block + 3u * 256u)]; s25 = uint(a_halves[2u * (4u * ((here_down & PLACE) + 524288u)) + (down_block + 3u * 256u)]);
}
}
void multiply_down(bool last) {
{
[[dont_unroll]] for (uint pair = 0u; pair < TOKENS; pair += 2u) {
take_x_of(min(pair + 0u, TOKENS - 1u), warp % 8u, true);
float p00 = product(w22, uvec2(0u), s22, 0u, false);
float p01 = product(w23, uvec2(0u), s23, 0u, false);
float p02 = product(w24, uvec2(0u), s24, 0u, false);
float p03 = product(w25, uvec2(0u), s25, 0u, false);
take_x_of(min(pair + 1u, TOKENS - 1u), warp % 8u, true);
float p10 = product(w22, uvec2(0u), s22, 0u, false);
float p11 = product(w23, uvec2(0u), s23, 0u, false);
float p12 = product(w24, uvec2(0u), s24, 0u, false);
float p13 = product(w25, uvec2(0u), s25, 0u, false);
{
const uint t = min(pair + 0u, TOKENS - 1u);
float t0 = p00;
float t1 = p01;
float t2 = p02;
float t3 = p03;
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 8u, i = lane / 8u;
if (lane % 8u == 0u) {
if (i < 4u && slot * 8u + 0u + i < 16u && slot < 2u)
partial[t * PARTIAL_TOKEN + warp % 8u * STRIDE_X + 0u + slot * 8u + 0u + i] = t0;
}
}
{
const uint t = min(pair + 1u, TOKENS - 1u);
float t0 = p10;
float t1 = p11;
float t2 = p12;
float t3 = p13;
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 8u, i = lane / 8u;
if (lane % 8u == 0u) {
if (i < 4u && slot * 8u + 0u + i < 16u && slot < 2u)
partial[t * PARTIAL_TOKEN + warp % 8u * STRIDE_X + 0u + slot * 8u + 0u + i] = t0;
}
}
}
w26 = a4[(here_down & PLACE) + (down_block + 4u * 256u)]; s26 = uint(a_halves[2u * (4u * ((here_down & PLACE) + 524288u)) + (down_block + 4u * 256u)]);
w27 = a4[(here_down & PLACE) + (down_block + 5u * 256u)]; s27 = uint(a_halves[2u * (4u * ((here_down & PLACE) + 524288u)) + (down_block + 5u * 256u)]);
w28 = a4[(here_down & PLACE) + (down_block + 6u * 256u)]; s28 = uint(a_halves[2u * (4u * ((here_down & PLACE) + 524288u)) + (down_block + 6u * 256u)]);
w29 = a4[(here_down & PLACE) + (down_block + 7u * 256u)]; s29 = uint(a_halves[2u * (4u * ((here_down & PLACE) + 524288u)) + (down_block + 7u * 256u)]);
}
{
[[dont_unroll]] for (uint pair = 0u; pair < TOKENS; pair += 2u) {
take_x_of(min(pair + 0u, TOKENS - 1u), warp % 8u, true);
float p00 = product(w26, uvec2(0u), s26, 0u, false);
float p01 = product(w27, uvec2(0u), s27, 0u, false);
float p02 = product(w28, uvec2(0u), s28, 0u, false);
float p03 = product(w29, uvec2(0u), s29, 0u, false);
take_x_of(min(pair + 1u, TOKENS - 1u), warp % 8u, true);
float p10 = product(w26, uvec2(0u), s26, 0u, false);
float p11 = product(w27, uvec2(0u), s27, 0u, false);
float p12 = product(w28, uvec2(0u), s28, 0u, false);
float p13 = product(w29, uvec2(0u), s29, 0u, false);
{
const uint t = min(pair + 0u, TOKENS - 1u);
float t0 = p00;
float t1 = p01;
float t2 = p02;
float t3 = p03;
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 8u, i = lane / 8u;
if (lane % 8u == 0u) {
if (i < 4u && slot * 8u + 4u + i < 16u && slot < 2u)
partial[t * PARTIAL_TOKEN + warp % 8u * STRIDE_X + 0u + slot * 8u + 4u + i] = t0;
}
}
{
const uint t = min(pair + 1u, TOKENS - 1u);
float t0 = p10;
float t1 = p11;
float t2 = p12;
float t3 = p13;
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 8u, i = lane / 8u;
if (lane % 8u == 0u) {
if (i < 4u && slot * 8u + 4u + i < 16u && slot < 2u)
partial[t * PARTIAL_TOKEN + warp % 8u * STRIDE_X + 0u + slot * 8u + 4u + i] = t0;
}
}
}
w0 = a4[(there_q & PLACE) + (q_block + 0u * 64u)]; s0 = uint(a_halves[2u * (4u * ((there_q & PLACE) + 131072u)) + (q_block + 0u * 64u)]);
w1 = a4[(there_q & PLACE) + (q_block + 1u * 64u)]; s1 = uint(a_halves[2u * (4u * ((there_q & PLACE) + 131072u)) + (q_block + 1u * 64u)]);
w2 = a4[(there_k & PLACE) + (min(wg * 4u + min(min(warp / 2u, 7u) * 1u + 0u, 3u), 511u) * 64u + warp % 2u * LANES + lane)]; s2 = uint(a_halves[2u * (4u * ((there_k & PLACE) + 32768u)) + (min(wg * 4u + min(min(warp / 2u, 7u) * 1u + 0u, 3u), 511u) * 64u + warp % 2u * LANES + lane)]);
w3 = a4[(there_v & PLACE) + (min(wg * 4u + min(min(warp / 2u, 7u) * 1u + 0u, 3u), 511u) * 64u + warp % 2u * LANES + lane)]; s3 = uint(a_halves[2u * (4u * ((there_v & PLACE) + 32768u)) + (min(wg * 4u + min(min(warp / 2u, 7u) * 1u + 0u, 3u), 511u) * 64u + warp % 2u * LANES + lane)]);
}
}
void multiply_output() {
w0 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 0u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s0 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 0u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h0 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 0u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e0 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 0u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u];
w1 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 1u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s1 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 1u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h1 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 1u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e1 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 1u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u];
w2 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 2u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s2 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 2u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h2 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 2u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e2 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 2u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u];
w3 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 3u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s3 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 3u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h3 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 3u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e3 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + 3u, 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u];
[[dont_unroll]] for (uint r = 0u; r < 126u; r += 4u) {
const uint which = r / 4u & 1u;
[[dont_unroll]] for (uint j = 0u; j < n_outputs; j++) {
take_x_of(output_tokens[j], warp % 2u, false);
float t0 = product(w0, h0, s0, e0, true);
float t1 = product(w1, h1, s1, e1, true);
float t2 = product(w2, h2, s2, e2, true);
float t3 = product(w3, h3, s3, e3, true);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint i = lane / 8u, slot = warp / 2u;
if (lane % 8u == 0u && slot < 8u)
    partial[j * PARTIAL_TOKEN + which * PARTIAL_STEP + warp % 2u * OF_STEP + slot * AHEAD + i] = t0;
}
w0 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 4u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s0 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 4u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h0 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 4u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e0 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 4u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u];
w1 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 5u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s1 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 5u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h1 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 5u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e1 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 5u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u];
w2 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 6u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s2 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 6u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h2 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 6u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e2 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 6u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u];
w3 = a4[(output_place & PLACE) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 7u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; s3 = uint(a_halves[2u * (4u * ((output_place & PLACE) + 8208384u) + 16416768u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 7u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]); h3 = a2[2u * ((output_place & PLACE) + 8208384u) + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 7u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane)]; e3 = a1[(4u * ((output_place & PLACE) + 8208384u) + 16416768u) + 4104192u + (min(wg * 1002u + min(min(warp / 2u, 7u) * 126u + min(r + 7u, 125u), 1001u), 128255u) * 64u + warp % 2u * LANES + lane) / 8u];
give_logits(r, which);
}
}
#endif

#ifdef llama_8b_q4_k_m
// 27 quads a layer, 1 ahead. Made by tools/straight_line.py.
uvec4 w0 = uvec4(0u); uint s0 = 0u, e0 = 0u; uvec2 h0 = uvec2(0u);
uvec4 w1 = uvec4(0u); uint s1 = 0u, e1 = 0u; uvec2 h1 = uvec2(0u);
uvec4 w2 = uvec4(0u); uint s2 = 0u, e2 = 0u; uvec2 h2 = uvec2(0u);
uvec4 w3 = uvec4(0u); uint s3 = 0u, e3 = 0u; uvec2 h3 = uvec2(0u);
uint64_t p_low, p_high, p_scale, p_super; // into the matrix whose quads are asked for
uint64_t at_q, at_k, at_v, at_o, at_gate, at_up, at_down;
bool six_v = false, six_down = false;
uint here, there; // layers
uint64_t address(uint layer, uint i) {
    return packUint2x32(addresses[places_at / 2u + TABLE_ROW * layer + i]);
}
void load_places(uint layer) { there = layer; }
void move_on() { here = there; }
void load_first() {
    at_q = address(0u, 0u);
    { const uint number = (wg * 32u + min(warp / 4u, 3u) * 8u) * 128u + warp % 4u * LANES + lane; uint64_t at = at_q; p_low = at + 16u * number; p_scale = at + 8388608ul + 2u * number; p_super = at + 9437184ul + number / 8u * 4u; } at_k = address(here, 1u); at_v = address(here, 2u); w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); w1 = CODES(p_low, 128u); s1 = SCALES(p_scale, 128u); e1 = SUPERS(p_super, 16u); w2 = CODES(p_low, 256u); s2 = SCALES(p_scale, 256u); e2 = SUPERS(p_super, 32u); w3 = CODES(p_low, 384u); s3 = SCALES(p_scale, 384u); e3 = SUPERS(p_super, 48u);
}
void multiply_q(bool last) {
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 4u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 4u, i = lane / 8u;
if (lane % 8u == 0u && slot < 4u)
    partial[t * PARTIAL_TOKEN + warp % 4u * STRIDE_Q + 0u + slot * 8u + 0u + 0u + i] = t0;
}
w0 = CODES(p_low, 512u); s0 = SCALES(p_scale, 512u); e0 = SUPERS(p_super, 64u); w1 = CODES(p_low, 640u); s1 = SCALES(p_scale, 640u); e1 = SUPERS(p_super, 80u); w2 = CODES(p_low, 768u); s2 = SCALES(p_scale, 768u); e2 = SUPERS(p_super, 96u); w3 = CODES(p_low, 896u); s3 = SCALES(p_scale, 896u); e3 = SUPERS(p_super, 112u);
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 4u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 4u, i = lane / 8u;
if (lane % 8u == 0u && slot < 4u)
    partial[t * PARTIAL_TOKEN + warp % 4u * STRIDE_Q + 0u + slot * 8u + 0u + 4u + i] = t0;
}
{ const uint number = (wg * 8u + min(warp / 4u, 3u) * 2u) * 128u + warp % 4u * LANES + lane; uint64_t at = at_k; p_low = at + 16u * number; p_scale = at + 2097152ul + 2u * number; p_super = at + 2359296ul + number / 8u * 4u; } at_o = address(here, 3u); w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); w1 = CODES(p_low, 128u); s1 = SCALES(p_scale, 128u); e1 = SUPERS(p_super, 16u); { const uint number = (wg * 8u + min(warp / 4u, 3u) * 2u) * 128u + warp % 4u * LANES + lane; uint64_t at = at_v; six_v = (at & 1ul) != 0ul; at &= ~1ul; if (six_v) { p_low = at + 16u * number; p_high = at + 2097152ul + 8u * number; p_scale = at + 3145728ul + 2u * number; p_super = at + 3407872ul + number / 8u * 4u; } else { p_low = at + 16u * number; p_scale = at + 2097152ul + 2u * number; p_super = at + 2359296ul + number / 8u * 4u; } } if (six_v) { w2 = CODES(p_low, 0u); s2 = SCALES(p_scale, 0u); e2 = SUPERS(p_super, 0u); h2 = BITS(p_high, 0u); w3 = CODES(p_low, 128u); s3 = SCALES(p_scale, 128u); e3 = SUPERS(p_super, 16u); h3 = BITS(p_high, 128u); } else { w2 = CODES(p_low, 0u); s2 = SCALES(p_scale, 0u); e2 = SUPERS(p_super, 0u); w3 = CODES(p_low, 128u); s3 = SCALES(p_scale, 128u); e3 = SUPERS(p_super, 16u); }
}
}
void multiply_k(bool last) {
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 4u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2;
float t3;
if (six_v) t2 = product(w2, h2, s2, e2, true); else t2 = product(w2, uvec2(0u), s2, e2, false);
if (six_v) t3 = product(w3, h3, s3, e3, true); else t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 4u, i = lane / 8u;
if (lane % 8u == 0u && slot < 4u)
    partial[t * PARTIAL_TOKEN + warp % 4u * STRIDE_Q + (i < 2u ? OF_Q : OF_Q + OF_K - 2u) + slot * 2u + i] = t0;
}
{ const uint number = (wg * 32u + min(warp / 4u, 3u) * 8u) * 128u + warp % 4u * LANES + lane; uint64_t at = at_o; p_low = at + 16u * number; p_scale = at + 8388608ul + 2u * number; p_super = at + 9437184ul + number / 8u * 4u; } at_gate = address(here, 4u); w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); w1 = CODES(p_low, 128u); s1 = SCALES(p_scale, 128u); e1 = SUPERS(p_super, 16u); w2 = CODES(p_low, 256u); s2 = SCALES(p_scale, 256u); e2 = SUPERS(p_super, 32u); w3 = CODES(p_low, 384u); s3 = SCALES(p_scale, 384u); e3 = SUPERS(p_super, 48u);
}
}
void multiply_o(bool last) {
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 4u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 4u, i = lane / 8u;
if (lane % 8u == 0u && slot < 4u)
    partial[t * PARTIAL_TOKEN + warp % 4u * STRIDE_X + 0u + slot * 8u + 0u + 0u + i] = t0;
}
w0 = CODES(p_low, 512u); s0 = SCALES(p_scale, 512u); e0 = SUPERS(p_super, 64u); w1 = CODES(p_low, 640u); s1 = SCALES(p_scale, 640u); e1 = SUPERS(p_super, 80u); w2 = CODES(p_low, 768u); s2 = SCALES(p_scale, 768u); e2 = SUPERS(p_super, 96u); w3 = CODES(p_low, 896u); s3 = SCALES(p_scale, 896u); e3 = SUPERS(p_super, 112u);
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 4u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 4u, i = lane / 8u;
if (lane % 8u == 0u && slot < 4u)
    partial[t * PARTIAL_TOKEN + warp % 4u * STRIDE_X + 0u + slot * 8u + 0u + 4u + i] = t0;
}
{ const uint number = (wg * 112u + min(warp / 4u, 3u) * 28u) * 128u + warp % 4u * LANES + lane; uint64_t at = at_gate; p_low = at + 16u * number; p_scale = at + 29360128ul + 2u * number; p_super = at + 33030144ul + number / 8u * 4u; } at_up = address(here, 5u); w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); w1 = CODES(p_low, 128u); s1 = SCALES(p_scale, 128u); e1 = SUPERS(p_super, 16u); w2 = CODES(p_low, 256u); s2 = SCALES(p_scale, 256u); e2 = SUPERS(p_super, 32u); w3 = CODES(p_low, 384u); s3 = SCALES(p_scale, 384u); e3 = SUPERS(p_super, 48u);
}
}
void multiply_gate(bool last) {
[[dont_unroll]] for (uint r = 0u; r < 3u; r++) {
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 4u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 4u, i = lane / 8u;
if (lane % 8u == 0u && slot < 4u)
    partial[t * PARTIAL_TOKEN + warp % 4u * STRIDE_G + 0u + slot * 28u + 8u * r + 0u + i] = t0;
}
w0 = CODES(p_low, 512u); s0 = SCALES(p_scale, 512u); e0 = SUPERS(p_super, 64u); w1 = CODES(p_low, 640u); s1 = SCALES(p_scale, 640u); e1 = SUPERS(p_super, 80u); w2 = CODES(p_low, 768u); s2 = SCALES(p_scale, 768u); e2 = SUPERS(p_super, 96u); w3 = CODES(p_low, 896u); s3 = SCALES(p_scale, 896u); e3 = SUPERS(p_super, 112u);
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 4u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 4u, i = lane / 8u;
if (lane % 8u == 0u && slot < 4u)
    partial[t * PARTIAL_TOKEN + warp % 4u * STRIDE_G + 0u + slot * 28u + 8u * r + 4u + i] = t0;
}
w0 = CODES(p_low, 1024u); s0 = SCALES(p_scale, 1024u); e0 = SUPERS(p_super, 128u); w1 = CODES(p_low, 1152u); s1 = SCALES(p_scale, 1152u); e1 = SUPERS(p_super, 144u); w2 = CODES(p_low, 1280u); s2 = SCALES(p_scale, 1280u); e2 = SUPERS(p_super, 160u); w3 = CODES(p_low, 1408u); s3 = SCALES(p_scale, 1408u); e3 = SUPERS(p_super, 176u);
}
p_low += 16384ul; p_scale += 2048ul; p_super += 512ul;
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 4u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 4u, i = lane / 8u;
if (lane % 8u == 0u && slot < 4u)
    partial[t * PARTIAL_TOKEN + warp % 4u * STRIDE_G + 0u + slot * 28u + 24u + 0u + i] = t0;
}
{ const uint number = (wg * 112u + min(warp / 4u, 3u) * 28u) * 128u + warp % 4u * LANES + lane; uint64_t at = at_up; p_low = at + 16u * number; p_scale = at + 29360128ul + 2u * number; p_super = at + 33030144ul + number / 8u * 4u; } at_down = address(here, 6u); w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); w1 = CODES(p_low, 128u); s1 = SCALES(p_scale, 128u); e1 = SUPERS(p_super, 16u); w2 = CODES(p_low, 256u); s2 = SCALES(p_scale, 256u); e2 = SUPERS(p_super, 32u); w3 = CODES(p_low, 384u); s3 = SCALES(p_scale, 384u); e3 = SUPERS(p_super, 48u);
}
}
void multiply_up(bool last) {
[[dont_unroll]] for (uint r = 0u; r < 3u; r++) {
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 4u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 4u, i = lane / 8u;
if (lane % 8u == 0u && slot < 4u)
    partial[t * PARTIAL_TOKEN + warp % 4u * STRIDE_G + OF_G + slot * 28u + 8u * r + 0u + i] = t0;
}
w0 = CODES(p_low, 512u); s0 = SCALES(p_scale, 512u); e0 = SUPERS(p_super, 64u); w1 = CODES(p_low, 640u); s1 = SCALES(p_scale, 640u); e1 = SUPERS(p_super, 80u); w2 = CODES(p_low, 768u); s2 = SCALES(p_scale, 768u); e2 = SUPERS(p_super, 96u); w3 = CODES(p_low, 896u); s3 = SCALES(p_scale, 896u); e3 = SUPERS(p_super, 112u);
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 4u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 4u, i = lane / 8u;
if (lane % 8u == 0u && slot < 4u)
    partial[t * PARTIAL_TOKEN + warp % 4u * STRIDE_G + OF_G + slot * 28u + 8u * r + 4u + i] = t0;
}
w0 = CODES(p_low, 1024u); s0 = SCALES(p_scale, 1024u); e0 = SUPERS(p_super, 128u); w1 = CODES(p_low, 1152u); s1 = SCALES(p_scale, 1152u); e1 = SUPERS(p_super, 144u); w2 = CODES(p_low, 1280u); s2 = SCALES(p_scale, 1280u); e2 = SUPERS(p_super, 160u); w3 = CODES(p_low, 1408u); s3 = SCALES(p_scale, 1408u); e3 = SUPERS(p_super, 176u);
}
p_low += 16384ul; p_scale += 2048ul; p_super += 512ul;
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 4u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 4u, i = lane / 8u;
if (lane % 8u == 0u && slot < 4u)
    partial[t * PARTIAL_TOKEN + warp % 4u * STRIDE_G + OF_G + slot * 28u + 24u + 0u + i] = t0;
}
{ const uint number = (wg * 32u + min(warp / 14u, 0u) * 32u) * 448u + warp % 14u * LANES + lane; uint64_t at = at_down; six_down = (at & 1ul) != 0ul; at &= ~1ul; if (six_down) { p_low = at + 16u * number; p_high = at + 29360128ul + 8u * number; p_scale = at + 44040192ul + 2u * number; p_super = at + 47710208ul + number / 8u * 4u; } else { p_low = at + 16u * number; p_scale = at + 29360128ul + 2u * number; p_super = at + 33030144ul + number / 8u * 4u; } } at_q = address(here + 1u, 0u); if (six_down) { w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); h0 = BITS(p_high, 0u); w1 = CODES(p_low, 448u); s1 = SCALES(p_scale, 448u); e1 = SUPERS(p_super, 56u); h1 = BITS(p_high, 448u); w2 = CODES(p_low, 896u); s2 = SCALES(p_scale, 896u); e2 = SUPERS(p_super, 112u); h2 = BITS(p_high, 896u); w3 = CODES(p_low, 1344u); s3 = SCALES(p_scale, 1344u); e3 = SUPERS(p_super, 168u); h3 = BITS(p_high, 1344u); } else { w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); w1 = CODES(p_low, 448u); s1 = SCALES(p_scale, 448u); e1 = SUPERS(p_super, 56u); w2 = CODES(p_low, 896u); s2 = SCALES(p_scale, 896u); e2 = SUPERS(p_super, 112u); w3 = CODES(p_low, 1344u); s3 = SCALES(p_scale, 1344u); e3 = SUPERS(p_super, 168u); }
}
}
void multiply_down(bool last) {
if (six_down) {
[[dont_unroll]] for (uint r = 0u; r < 3u; r++) {
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 14u, true);
float t0 = product(w0, h0, s0, e0, true);
float t1 = product(w1, h1, s1, e1, true);
float t2 = product(w2, h2, s2, e2, true);
float t3 = product(w3, h3, s3, e3, true);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 14u, i = lane / 8u;
if (lane % 8u == 0u && slot < 1u)
    partial[t * PARTIAL_TOKEN + warp % 14u * STRIDE_X + 0u + slot * 32u + 8u * r + 0u + i] = t0;
}
w0 = CODES(p_low, 1792u); s0 = SCALES(p_scale, 1792u); e0 = SUPERS(p_super, 224u); h0 = BITS(p_high, 1792u); w1 = CODES(p_low, 2240u); s1 = SCALES(p_scale, 2240u); e1 = SUPERS(p_super, 280u); h1 = BITS(p_high, 2240u); w2 = CODES(p_low, 2688u); s2 = SCALES(p_scale, 2688u); e2 = SUPERS(p_super, 336u); h2 = BITS(p_high, 2688u); w3 = CODES(p_low, 3136u); s3 = SCALES(p_scale, 3136u); e3 = SUPERS(p_super, 392u); h3 = BITS(p_high, 3136u);
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 14u, true);
float t0 = product(w0, h0, s0, e0, true);
float t1 = product(w1, h1, s1, e1, true);
float t2 = product(w2, h2, s2, e2, true);
float t3 = product(w3, h3, s3, e3, true);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 14u, i = lane / 8u;
if (lane % 8u == 0u && slot < 1u)
    partial[t * PARTIAL_TOKEN + warp % 14u * STRIDE_X + 0u + slot * 32u + 8u * r + 4u + i] = t0;
}
w0 = CODES(p_low, 3584u); s0 = SCALES(p_scale, 3584u); e0 = SUPERS(p_super, 448u); h0 = BITS(p_high, 3584u); w1 = CODES(p_low, 4032u); s1 = SCALES(p_scale, 4032u); e1 = SUPERS(p_super, 504u); h1 = BITS(p_high, 4032u); w2 = CODES(p_low, 4480u); s2 = SCALES(p_scale, 4480u); e2 = SUPERS(p_super, 560u); h2 = BITS(p_high, 4480u); w3 = CODES(p_low, 4928u); s3 = SCALES(p_scale, 4928u); e3 = SUPERS(p_super, 616u); h3 = BITS(p_high, 4928u);
}
p_low += 57344ul; p_scale += 7168ul; p_super += 1792ul; p_high += 28672ul;
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 14u, true);
float t0 = product(w0, h0, s0, e0, true);
float t1 = product(w1, h1, s1, e1, true);
float t2 = product(w2, h2, s2, e2, true);
float t3 = product(w3, h3, s3, e3, true);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 14u, i = lane / 8u;
if (lane % 8u == 0u && slot < 1u)
    partial[t * PARTIAL_TOKEN + warp % 14u * STRIDE_X + 0u + slot * 32u + 24u + 0u + i] = t0;
}
w0 = CODES(p_low, 1792u); s0 = SCALES(p_scale, 1792u); e0 = SUPERS(p_super, 224u); h0 = BITS(p_high, 1792u); w1 = CODES(p_low, 2240u); s1 = SCALES(p_scale, 2240u); e1 = SUPERS(p_super, 280u); h1 = BITS(p_high, 2240u); w2 = CODES(p_low, 2688u); s2 = SCALES(p_scale, 2688u); e2 = SUPERS(p_super, 336u); h2 = BITS(p_high, 2688u); w3 = CODES(p_low, 3136u); s3 = SCALES(p_scale, 3136u); e3 = SUPERS(p_super, 392u); h3 = BITS(p_high, 3136u);
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 14u, true);
float t0 = product(w0, h0, s0, e0, true);
float t1 = product(w1, h1, s1, e1, true);
float t2 = product(w2, h2, s2, e2, true);
float t3 = product(w3, h3, s3, e3, true);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 14u, i = lane / 8u;
if (lane % 8u == 0u && slot < 1u)
    partial[t * PARTIAL_TOKEN + warp % 14u * STRIDE_X + 0u + slot * 32u + 24u + 4u + i] = t0;
}
if (last) { const uint64_t at = at_q; const uint number = 0u; p_low = at + 16u * number; p_high = at + 2048ul * VOCAB + 8u * number; p_scale = at + 3072ul * VOCAB + 2u * number; p_super = at + 3328ul * VOCAB + number / 8u * 4u; } if (last) { w0 = CODES(p_low, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 0u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); s0 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 0u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); e0 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 0u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane) / 8u); h0 = BITS(p_high, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 0u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); w1 = CODES(p_low, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 1u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); s1 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 1u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); e1 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 1u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane) / 8u); h1 = BITS(p_high, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 1u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); w2 = CODES(p_low, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 2u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); s2 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 2u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); e2 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 2u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane) / 8u); h2 = BITS(p_high, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 2u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); w3 = CODES(p_low, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 3u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); s3 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 3u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); e3 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 3u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane) / 8u); h3 = BITS(p_high, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 3u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); } else { { const uint number = (wg * 32u + min(warp / 4u, 3u) * 8u) * 128u + warp % 4u * LANES + lane; uint64_t at = at_q; p_low = at + 16u * number; p_scale = at + 8388608ul + 2u * number; p_super = at + 9437184ul + number / 8u * 4u; } at_k = address(here + 1u, 1u); at_v = address(here + 1u, 2u); w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); w1 = CODES(p_low, 128u); s1 = SCALES(p_scale, 128u); e1 = SUPERS(p_super, 16u); w2 = CODES(p_low, 256u); s2 = SCALES(p_scale, 256u); e2 = SUPERS(p_super, 32u); w3 = CODES(p_low, 384u); s3 = SCALES(p_scale, 384u); e3 = SUPERS(p_super, 48u); }
}
} else {
[[dont_unroll]] for (uint r = 0u; r < 3u; r++) {
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 14u, true);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 14u, i = lane / 8u;
if (lane % 8u == 0u && slot < 1u)
    partial[t * PARTIAL_TOKEN + warp % 14u * STRIDE_X + 0u + slot * 32u + 8u * r + 0u + i] = t0;
}
w0 = CODES(p_low, 1792u); s0 = SCALES(p_scale, 1792u); e0 = SUPERS(p_super, 224u); w1 = CODES(p_low, 2240u); s1 = SCALES(p_scale, 2240u); e1 = SUPERS(p_super, 280u); w2 = CODES(p_low, 2688u); s2 = SCALES(p_scale, 2688u); e2 = SUPERS(p_super, 336u); w3 = CODES(p_low, 3136u); s3 = SCALES(p_scale, 3136u); e3 = SUPERS(p_super, 392u);
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 14u, true);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 14u, i = lane / 8u;
if (lane % 8u == 0u && slot < 1u)
    partial[t * PARTIAL_TOKEN + warp % 14u * STRIDE_X + 0u + slot * 32u + 8u * r + 4u + i] = t0;
}
w0 = CODES(p_low, 3584u); s0 = SCALES(p_scale, 3584u); e0 = SUPERS(p_super, 448u); w1 = CODES(p_low, 4032u); s1 = SCALES(p_scale, 4032u); e1 = SUPERS(p_super, 504u); w2 = CODES(p_low, 4480u); s2 = SCALES(p_scale, 4480u); e2 = SUPERS(p_super, 560u); w3 = CODES(p_low, 4928u); s3 = SCALES(p_scale, 4928u); e3 = SUPERS(p_super, 616u);
}
p_low += 57344ul; p_scale += 7168ul; p_super += 1792ul;
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 14u, true);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 14u, i = lane / 8u;
if (lane % 8u == 0u && slot < 1u)
    partial[t * PARTIAL_TOKEN + warp % 14u * STRIDE_X + 0u + slot * 32u + 24u + 0u + i] = t0;
}
w0 = CODES(p_low, 1792u); s0 = SCALES(p_scale, 1792u); e0 = SUPERS(p_super, 224u); w1 = CODES(p_low, 2240u); s1 = SCALES(p_scale, 2240u); e1 = SUPERS(p_super, 280u); w2 = CODES(p_low, 2688u); s2 = SCALES(p_scale, 2688u); e2 = SUPERS(p_super, 336u); w3 = CODES(p_low, 3136u); s3 = SCALES(p_scale, 3136u); e3 = SUPERS(p_super, 392u);
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 14u, true);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 14u, i = lane / 8u;
if (lane % 8u == 0u && slot < 1u)
    partial[t * PARTIAL_TOKEN + warp % 14u * STRIDE_X + 0u + slot * 32u + 24u + 4u + i] = t0;
}
if (last) { const uint64_t at = at_q; const uint number = 0u; p_low = at + 16u * number; p_high = at + 2048ul * VOCAB + 8u * number; p_scale = at + 3072ul * VOCAB + 2u * number; p_super = at + 3328ul * VOCAB + number / 8u * 4u; } if (last) { w0 = CODES(p_low, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 0u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); s0 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 0u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); e0 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 0u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane) / 8u); h0 = BITS(p_high, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 0u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); w1 = CODES(p_low, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 1u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); s1 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 1u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); e1 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 1u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane) / 8u); h1 = BITS(p_high, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 1u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); w2 = CODES(p_low, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 2u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); s2 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 2u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); e2 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 2u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane) / 8u); h2 = BITS(p_high, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 2u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); w3 = CODES(p_low, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 3u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); s3 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 3u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); e3 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 3u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane) / 8u); h3 = BITS(p_high, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + 3u, OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); } else { { const uint number = (wg * 32u + min(warp / 4u, 3u) * 8u) * 128u + warp % 4u * LANES + lane; uint64_t at = at_q; p_low = at + 16u * number; p_scale = at + 8388608ul + 2u * number; p_super = at + 9437184ul + number / 8u * 4u; } at_k = address(here + 1u, 1u); at_v = address(here + 1u, 2u); w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); w1 = CODES(p_low, 128u); s1 = SCALES(p_scale, 128u); e1 = SUPERS(p_super, 16u); w2 = CODES(p_low, 256u); s2 = SCALES(p_scale, 256u); e2 = SUPERS(p_super, 32u); w3 = CODES(p_low, 384u); s3 = SCALES(p_scale, 384u); e3 = SUPERS(p_super, 48u); }
}
}
}
void multiply_v(bool last) {}
void ask_again() {
    const uint64_t zero = uint64_t(position >> 30u);
    p_low += zero; p_scale += zero; p_super += zero;
    w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); w1 = CODES(p_low, 128u); s1 = SCALES(p_scale, 128u); e1 = SUPERS(p_super, 16u); w2 = CODES(p_low, 256u); s2 = SCALES(p_scale, 256u); e2 = SUPERS(p_super, 32u); w3 = CODES(p_low, 384u); s3 = SCALES(p_scale, 384u); e3 = SUPERS(p_super, 48u);
}
void multiply_output() {
[[dont_unroll]] for (uint r = 0u; r < N_L; r += 4u) {
const uint which = r / 4u & 1u;
[[dont_unroll]] for (uint j = 0u; j < n_outputs; j++) {
take_x_of(output_tokens[j], warp % 4u, false);
float t0 = product(w0, h0, s0, e0, true);
float t1 = product(w1, h1, s1, e1, true);
float t2 = product(w2, h2, s2, e2, true);
float t3 = product(w3, h3, s3, e3, true);
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 16u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 16); }
{ const bool up = (lane & 8u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 8); }
t0 += subgroupShuffleXor(t0, 4);
t0 += subgroupShuffleXor(t0, 2);
t0 += subgroupShuffleXor(t0, 1);
const uint i = lane / 8u, slot = warp / 4u;
if (lane % 8u == 0u && slot < 4u)
    partial[j * PARTIAL_TOKEN + which * PARTIAL_STEP + warp % 4u * OF_STEP + slot * AHEAD + i] = t0;
}
w0 = CODES(p_low, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + min(r + 4u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); s0 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + min(r + 4u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); e0 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + min(r + 4u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane) / 8u); h0 = BITS(p_high, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + min(r + 4u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane));
w1 = CODES(p_low, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + min(r + 5u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); s1 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + min(r + 5u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); e1 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + min(r + 5u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane) / 8u); h1 = BITS(p_high, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + min(r + 5u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane));
w2 = CODES(p_low, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + min(r + 6u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); s2 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + min(r + 6u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); e2 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + min(r + 6u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane) / 8u); h2 = BITS(p_high, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + min(r + 6u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane));
w3 = CODES(p_low, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + min(r + 7u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); s3 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + min(r + 7u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane)); e3 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + min(r + 7u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane) / 8u); h3 = BITS(p_high, (min(wg * OF_L + min(min(warp / 4u, 3u) * N_L + min(r + 7u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 128u + warp % 4u * LANES + lane));
give_logits(r, which);
}
}
#endif

#ifdef tiny_q4_k_m
// 27 quads a layer, 1 ahead. Made by tools/straight_line.py.
uvec4 w0 = uvec4(0u); uint s0 = 0u, e0 = 0u; uvec2 h0 = uvec2(0u);
uvec4 w1 = uvec4(0u); uint s1 = 0u, e1 = 0u; uvec2 h1 = uvec2(0u);
uvec4 w2 = uvec4(0u); uint s2 = 0u, e2 = 0u; uvec2 h2 = uvec2(0u);
uvec4 w3 = uvec4(0u); uint s3 = 0u, e3 = 0u; uvec2 h3 = uvec2(0u);
uint64_t p_low, p_high, p_scale, p_super; // into the matrix whose quads are asked for
uint64_t at_q, at_k, at_v, at_o, at_gate, at_up, at_down;
bool six_v = false, six_down = false;
uint here, there; // layers
uint64_t address(uint layer, uint i) {
    return packUint2x32(addresses[places_at / 2u + TABLE_ROW * layer + i]);
}
void load_places(uint layer) { there = layer; }
void move_on() { here = there; }
void load_first() {
    at_q = address(0u, 0u);
    { const uint number = (wg * 256u + min(warp / 1u, 63u) * 4u) * 8u + warp % 1u * LANES + lane; uint64_t at = at_q; p_low = at + 16u * number; p_scale = at + 32768ul + 2u * number; p_super = at + 36864ul + number / 8u * 4u; } at_k = address(here, 1u); at_v = address(here, 2u); w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); w1 = CODES(p_low, 8u); s1 = SCALES(p_scale, 8u); e1 = SUPERS(p_super, 1u); w2 = CODES(p_low, 16u); s2 = SCALES(p_scale, 16u); e2 = SUPERS(p_super, 2u); w3 = CODES(p_low, 24u); s3 = SCALES(p_scale, 24u); e3 = SUPERS(p_super, 3u);
}
void multiply_q(bool last) {
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 1u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 1u, i = lane / 2u;
if (lane % 2u == 0u && slot < 64u)
    partial[t * PARTIAL_TOKEN + warp % 1u * STRIDE_Q + 0u + slot * 4u + 0u + 0u + i] = t0;
}
{ const uint number = (wg * 128u + min(warp / 1u, 63u) * 2u) * 8u + warp % 1u * LANES + lane; uint64_t at = at_k; p_low = at + 16u * number; p_scale = at + 16384ul + 2u * number; p_super = at + 18432ul + number / 8u * 4u; } at_o = address(here, 3u); w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); w1 = CODES(p_low, 8u); s1 = SCALES(p_scale, 8u); e1 = SUPERS(p_super, 1u); { const uint number = (wg * 128u + min(warp / 1u, 63u) * 2u) * 8u + warp % 1u * LANES + lane; uint64_t at = at_v; six_v = (at & 1ul) != 0ul; at &= ~1ul; if (six_v) { p_low = at + 16u * number; p_high = at + 16384ul + 8u * number; p_scale = at + 24576ul + 2u * number; p_super = at + 26624ul + number / 8u * 4u; } else { p_low = at + 16u * number; p_scale = at + 16384ul + 2u * number; p_super = at + 18432ul + number / 8u * 4u; } } if (six_v) { w2 = CODES(p_low, 0u); s2 = SCALES(p_scale, 0u); e2 = SUPERS(p_super, 0u); h2 = BITS(p_high, 0u); w3 = CODES(p_low, 8u); s3 = SCALES(p_scale, 8u); e3 = SUPERS(p_super, 1u); h3 = BITS(p_high, 8u); } else { w2 = CODES(p_low, 0u); s2 = SCALES(p_scale, 0u); e2 = SUPERS(p_super, 0u); w3 = CODES(p_low, 8u); s3 = SCALES(p_scale, 8u); e3 = SUPERS(p_super, 1u); }
}
}
void multiply_k(bool last) {
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 1u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2;
float t3;
if (six_v) t2 = product(w2, h2, s2, e2, true); else t2 = product(w2, uvec2(0u), s2, e2, false);
if (six_v) t3 = product(w3, h3, s3, e3, true); else t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 1u, i = lane / 2u;
if (lane % 2u == 0u && slot < 64u)
    partial[t * PARTIAL_TOKEN + warp % 1u * STRIDE_Q + (i < 2u ? OF_Q : OF_Q + OF_K - 2u) + slot * 2u + i] = t0;
}
{ const uint number = (wg * 256u + min(warp / 1u, 63u) * 4u) * 8u + warp % 1u * LANES + lane; uint64_t at = at_o; p_low = at + 16u * number; p_scale = at + 32768ul + 2u * number; p_super = at + 36864ul + number / 8u * 4u; } at_gate = address(here, 4u); w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); w1 = CODES(p_low, 8u); s1 = SCALES(p_scale, 8u); e1 = SUPERS(p_super, 1u); w2 = CODES(p_low, 16u); s2 = SCALES(p_scale, 16u); e2 = SUPERS(p_super, 2u); w3 = CODES(p_low, 24u); s3 = SCALES(p_scale, 24u); e3 = SUPERS(p_super, 3u);
}
}
void multiply_o(bool last) {
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 1u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 1u, i = lane / 2u;
if (lane % 2u == 0u && slot < 64u)
    partial[t * PARTIAL_TOKEN + warp % 1u * STRIDE_X + 0u + slot * 4u + 0u + 0u + i] = t0;
}
{ const uint number = (wg * 2048u + min(warp / 1u, 63u) * 32u) * 8u + warp % 1u * LANES + lane; uint64_t at = at_gate; p_low = at + 16u * number; p_scale = at + 262144ul + 2u * number; p_super = at + 294912ul + number / 8u * 4u; } at_up = address(here, 5u); w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); w1 = CODES(p_low, 8u); s1 = SCALES(p_scale, 8u); e1 = SUPERS(p_super, 1u); w2 = CODES(p_low, 16u); s2 = SCALES(p_scale, 16u); e2 = SUPERS(p_super, 2u); w3 = CODES(p_low, 24u); s3 = SCALES(p_scale, 24u); e3 = SUPERS(p_super, 3u);
}
}
void multiply_gate(bool last) {
[[dont_unroll]] for (uint r = 0u; r < 3u; r++) {
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 1u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 1u, i = lane / 2u;
if (lane % 2u == 0u && slot < 64u)
    partial[t * PARTIAL_TOKEN + warp % 1u * STRIDE_G + 0u + slot * 32u + 8u * r + 0u + i] = t0;
}
w0 = CODES(p_low, 32u); s0 = SCALES(p_scale, 32u); e0 = SUPERS(p_super, 4u); w1 = CODES(p_low, 40u); s1 = SCALES(p_scale, 40u); e1 = SUPERS(p_super, 5u); w2 = CODES(p_low, 48u); s2 = SCALES(p_scale, 48u); e2 = SUPERS(p_super, 6u); w3 = CODES(p_low, 56u); s3 = SCALES(p_scale, 56u); e3 = SUPERS(p_super, 7u);
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 1u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 1u, i = lane / 2u;
if (lane % 2u == 0u && slot < 64u)
    partial[t * PARTIAL_TOKEN + warp % 1u * STRIDE_G + 0u + slot * 32u + 8u * r + 4u + i] = t0;
}
w0 = CODES(p_low, 64u); s0 = SCALES(p_scale, 64u); e0 = SUPERS(p_super, 8u); w1 = CODES(p_low, 72u); s1 = SCALES(p_scale, 72u); e1 = SUPERS(p_super, 9u); w2 = CODES(p_low, 80u); s2 = SCALES(p_scale, 80u); e2 = SUPERS(p_super, 10u); w3 = CODES(p_low, 88u); s3 = SCALES(p_scale, 88u); e3 = SUPERS(p_super, 11u);
}
p_low += 1024ul; p_scale += 128ul; p_super += 32ul;
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 1u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 1u, i = lane / 2u;
if (lane % 2u == 0u && slot < 64u)
    partial[t * PARTIAL_TOKEN + warp % 1u * STRIDE_G + 0u + slot * 32u + 24u + 0u + i] = t0;
}
w0 = CODES(p_low, 32u); s0 = SCALES(p_scale, 32u); e0 = SUPERS(p_super, 4u); w1 = CODES(p_low, 40u); s1 = SCALES(p_scale, 40u); e1 = SUPERS(p_super, 5u); w2 = CODES(p_low, 48u); s2 = SCALES(p_scale, 48u); e2 = SUPERS(p_super, 6u); w3 = CODES(p_low, 56u); s3 = SCALES(p_scale, 56u); e3 = SUPERS(p_super, 7u);
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 1u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 1u, i = lane / 2u;
if (lane % 2u == 0u && slot < 64u)
    partial[t * PARTIAL_TOKEN + warp % 1u * STRIDE_G + 0u + slot * 32u + 24u + 4u + i] = t0;
}
{ const uint number = (wg * 2048u + min(warp / 1u, 63u) * 32u) * 8u + warp % 1u * LANES + lane; uint64_t at = at_up; p_low = at + 16u * number; p_scale = at + 262144ul + 2u * number; p_super = at + 294912ul + number / 8u * 4u; } at_down = address(here, 6u); w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); w1 = CODES(p_low, 8u); s1 = SCALES(p_scale, 8u); e1 = SUPERS(p_super, 1u); w2 = CODES(p_low, 16u); s2 = SCALES(p_scale, 16u); e2 = SUPERS(p_super, 2u); w3 = CODES(p_low, 24u); s3 = SCALES(p_scale, 24u); e3 = SUPERS(p_super, 3u);
}
}
void multiply_up(bool last) {
[[dont_unroll]] for (uint r = 0u; r < 3u; r++) {
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 1u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 1u, i = lane / 2u;
if (lane % 2u == 0u && slot < 64u)
    partial[t * PARTIAL_TOKEN + warp % 1u * STRIDE_G + OF_G + slot * 32u + 8u * r + 0u + i] = t0;
}
w0 = CODES(p_low, 32u); s0 = SCALES(p_scale, 32u); e0 = SUPERS(p_super, 4u); w1 = CODES(p_low, 40u); s1 = SCALES(p_scale, 40u); e1 = SUPERS(p_super, 5u); w2 = CODES(p_low, 48u); s2 = SCALES(p_scale, 48u); e2 = SUPERS(p_super, 6u); w3 = CODES(p_low, 56u); s3 = SCALES(p_scale, 56u); e3 = SUPERS(p_super, 7u);
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 1u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 1u, i = lane / 2u;
if (lane % 2u == 0u && slot < 64u)
    partial[t * PARTIAL_TOKEN + warp % 1u * STRIDE_G + OF_G + slot * 32u + 8u * r + 4u + i] = t0;
}
w0 = CODES(p_low, 64u); s0 = SCALES(p_scale, 64u); e0 = SUPERS(p_super, 8u); w1 = CODES(p_low, 72u); s1 = SCALES(p_scale, 72u); e1 = SUPERS(p_super, 9u); w2 = CODES(p_low, 80u); s2 = SCALES(p_scale, 80u); e2 = SUPERS(p_super, 10u); w3 = CODES(p_low, 88u); s3 = SCALES(p_scale, 88u); e3 = SUPERS(p_super, 11u);
}
p_low += 1024ul; p_scale += 128ul; p_super += 32ul;
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 1u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 1u, i = lane / 2u;
if (lane % 2u == 0u && slot < 64u)
    partial[t * PARTIAL_TOKEN + warp % 1u * STRIDE_G + OF_G + slot * 32u + 24u + 0u + i] = t0;
}
w0 = CODES(p_low, 32u); s0 = SCALES(p_scale, 32u); e0 = SUPERS(p_super, 4u); w1 = CODES(p_low, 40u); s1 = SCALES(p_scale, 40u); e1 = SUPERS(p_super, 5u); w2 = CODES(p_low, 48u); s2 = SCALES(p_scale, 48u); e2 = SUPERS(p_super, 6u); w3 = CODES(p_low, 56u); s3 = SCALES(p_scale, 56u); e3 = SUPERS(p_super, 7u);
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 1u, false);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 1u, i = lane / 2u;
if (lane % 2u == 0u && slot < 64u)
    partial[t * PARTIAL_TOKEN + warp % 1u * STRIDE_G + OF_G + slot * 32u + 24u + 4u + i] = t0;
}
{ const uint number = (wg * 256u + min(warp / 8u, 7u) * 32u) * 64u + warp % 8u * LANES + lane; uint64_t at = at_down; six_down = (at & 1ul) != 0ul; at &= ~1ul; if (six_down) { p_low = at + 16u * number; p_high = at + 262144ul + 8u * number; p_scale = at + 393216ul + 2u * number; p_super = at + 425984ul + number / 8u * 4u; } else { p_low = at + 16u * number; p_scale = at + 262144ul + 2u * number; p_super = at + 294912ul + number / 8u * 4u; } } at_q = address(here + 1u, 0u); if (six_down) { w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); h0 = BITS(p_high, 0u); w1 = CODES(p_low, 64u); s1 = SCALES(p_scale, 64u); e1 = SUPERS(p_super, 8u); h1 = BITS(p_high, 64u); w2 = CODES(p_low, 128u); s2 = SCALES(p_scale, 128u); e2 = SUPERS(p_super, 16u); h2 = BITS(p_high, 128u); w3 = CODES(p_low, 192u); s3 = SCALES(p_scale, 192u); e3 = SUPERS(p_super, 24u); h3 = BITS(p_high, 192u); } else { w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); w1 = CODES(p_low, 64u); s1 = SCALES(p_scale, 64u); e1 = SUPERS(p_super, 8u); w2 = CODES(p_low, 128u); s2 = SCALES(p_scale, 128u); e2 = SUPERS(p_super, 16u); w3 = CODES(p_low, 192u); s3 = SCALES(p_scale, 192u); e3 = SUPERS(p_super, 24u); }
}
}
void multiply_down(bool last) {
if (six_down) {
[[dont_unroll]] for (uint r = 0u; r < 3u; r++) {
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 8u, true);
float t0 = product(w0, h0, s0, e0, true);
float t1 = product(w1, h1, s1, e1, true);
float t2 = product(w2, h2, s2, e2, true);
float t3 = product(w3, h3, s3, e3, true);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 8u, i = lane / 2u;
if (lane % 2u == 0u && slot < 8u)
    partial[t * PARTIAL_TOKEN + warp % 8u * STRIDE_X + 0u + slot * 32u + 8u * r + 0u + i] = t0;
}
w0 = CODES(p_low, 256u); s0 = SCALES(p_scale, 256u); e0 = SUPERS(p_super, 32u); h0 = BITS(p_high, 256u); w1 = CODES(p_low, 320u); s1 = SCALES(p_scale, 320u); e1 = SUPERS(p_super, 40u); h1 = BITS(p_high, 320u); w2 = CODES(p_low, 384u); s2 = SCALES(p_scale, 384u); e2 = SUPERS(p_super, 48u); h2 = BITS(p_high, 384u); w3 = CODES(p_low, 448u); s3 = SCALES(p_scale, 448u); e3 = SUPERS(p_super, 56u); h3 = BITS(p_high, 448u);
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 8u, true);
float t0 = product(w0, h0, s0, e0, true);
float t1 = product(w1, h1, s1, e1, true);
float t2 = product(w2, h2, s2, e2, true);
float t3 = product(w3, h3, s3, e3, true);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 8u, i = lane / 2u;
if (lane % 2u == 0u && slot < 8u)
    partial[t * PARTIAL_TOKEN + warp % 8u * STRIDE_X + 0u + slot * 32u + 8u * r + 4u + i] = t0;
}
w0 = CODES(p_low, 512u); s0 = SCALES(p_scale, 512u); e0 = SUPERS(p_super, 64u); h0 = BITS(p_high, 512u); w1 = CODES(p_low, 576u); s1 = SCALES(p_scale, 576u); e1 = SUPERS(p_super, 72u); h1 = BITS(p_high, 576u); w2 = CODES(p_low, 640u); s2 = SCALES(p_scale, 640u); e2 = SUPERS(p_super, 80u); h2 = BITS(p_high, 640u); w3 = CODES(p_low, 704u); s3 = SCALES(p_scale, 704u); e3 = SUPERS(p_super, 88u); h3 = BITS(p_high, 704u);
}
p_low += 8192ul; p_scale += 1024ul; p_super += 256ul; p_high += 4096ul;
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 8u, true);
float t0 = product(w0, h0, s0, e0, true);
float t1 = product(w1, h1, s1, e1, true);
float t2 = product(w2, h2, s2, e2, true);
float t3 = product(w3, h3, s3, e3, true);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 8u, i = lane / 2u;
if (lane % 2u == 0u && slot < 8u)
    partial[t * PARTIAL_TOKEN + warp % 8u * STRIDE_X + 0u + slot * 32u + 24u + 0u + i] = t0;
}
w0 = CODES(p_low, 256u); s0 = SCALES(p_scale, 256u); e0 = SUPERS(p_super, 32u); h0 = BITS(p_high, 256u); w1 = CODES(p_low, 320u); s1 = SCALES(p_scale, 320u); e1 = SUPERS(p_super, 40u); h1 = BITS(p_high, 320u); w2 = CODES(p_low, 384u); s2 = SCALES(p_scale, 384u); e2 = SUPERS(p_super, 48u); h2 = BITS(p_high, 384u); w3 = CODES(p_low, 448u); s3 = SCALES(p_scale, 448u); e3 = SUPERS(p_super, 56u); h3 = BITS(p_high, 448u);
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 8u, true);
float t0 = product(w0, h0, s0, e0, true);
float t1 = product(w1, h1, s1, e1, true);
float t2 = product(w2, h2, s2, e2, true);
float t3 = product(w3, h3, s3, e3, true);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 8u, i = lane / 2u;
if (lane % 2u == 0u && slot < 8u)
    partial[t * PARTIAL_TOKEN + warp % 8u * STRIDE_X + 0u + slot * 32u + 24u + 4u + i] = t0;
}
if (last) { const uint64_t at = at_q; const uint number = 0u; p_low = at + 16u * number; p_high = at + 128ul * VOCAB + 8u * number; p_scale = at + 192ul * VOCAB + 2u * number; p_super = at + 208ul * VOCAB + number / 8u * 4u; } if (last) { w0 = CODES(p_low, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 0u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); s0 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 0u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); e0 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 0u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane) / 8u); h0 = BITS(p_high, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 0u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); w1 = CODES(p_low, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 1u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); s1 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 1u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); e1 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 1u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane) / 8u); h1 = BITS(p_high, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 1u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); w2 = CODES(p_low, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 2u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); s2 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 2u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); e2 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 2u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane) / 8u); h2 = BITS(p_high, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 2u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); w3 = CODES(p_low, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 3u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); s3 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 3u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); e3 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 3u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane) / 8u); h3 = BITS(p_high, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 3u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); } else { { const uint number = (wg * 256u + min(warp / 1u, 63u) * 4u) * 8u + warp % 1u * LANES + lane; uint64_t at = at_q; p_low = at + 16u * number; p_scale = at + 32768ul + 2u * number; p_super = at + 36864ul + number / 8u * 4u; } at_k = address(here + 1u, 1u); at_v = address(here + 1u, 2u); w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); w1 = CODES(p_low, 8u); s1 = SCALES(p_scale, 8u); e1 = SUPERS(p_super, 1u); w2 = CODES(p_low, 16u); s2 = SCALES(p_scale, 16u); e2 = SUPERS(p_super, 2u); w3 = CODES(p_low, 24u); s3 = SCALES(p_scale, 24u); e3 = SUPERS(p_super, 3u); }
}
} else {
[[dont_unroll]] for (uint r = 0u; r < 3u; r++) {
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 8u, true);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 8u, i = lane / 2u;
if (lane % 2u == 0u && slot < 8u)
    partial[t * PARTIAL_TOKEN + warp % 8u * STRIDE_X + 0u + slot * 32u + 8u * r + 0u + i] = t0;
}
w0 = CODES(p_low, 256u); s0 = SCALES(p_scale, 256u); e0 = SUPERS(p_super, 32u); w1 = CODES(p_low, 320u); s1 = SCALES(p_scale, 320u); e1 = SUPERS(p_super, 40u); w2 = CODES(p_low, 384u); s2 = SCALES(p_scale, 384u); e2 = SUPERS(p_super, 48u); w3 = CODES(p_low, 448u); s3 = SCALES(p_scale, 448u); e3 = SUPERS(p_super, 56u);
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 8u, true);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 8u, i = lane / 2u;
if (lane % 2u == 0u && slot < 8u)
    partial[t * PARTIAL_TOKEN + warp % 8u * STRIDE_X + 0u + slot * 32u + 8u * r + 4u + i] = t0;
}
w0 = CODES(p_low, 512u); s0 = SCALES(p_scale, 512u); e0 = SUPERS(p_super, 64u); w1 = CODES(p_low, 576u); s1 = SCALES(p_scale, 576u); e1 = SUPERS(p_super, 72u); w2 = CODES(p_low, 640u); s2 = SCALES(p_scale, 640u); e2 = SUPERS(p_super, 80u); w3 = CODES(p_low, 704u); s3 = SCALES(p_scale, 704u); e3 = SUPERS(p_super, 88u);
}
p_low += 8192ul; p_scale += 1024ul; p_super += 256ul;
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 8u, true);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 8u, i = lane / 2u;
if (lane % 2u == 0u && slot < 8u)
    partial[t * PARTIAL_TOKEN + warp % 8u * STRIDE_X + 0u + slot * 32u + 24u + 0u + i] = t0;
}
w0 = CODES(p_low, 256u); s0 = SCALES(p_scale, 256u); e0 = SUPERS(p_super, 32u); w1 = CODES(p_low, 320u); s1 = SCALES(p_scale, 320u); e1 = SUPERS(p_super, 40u); w2 = CODES(p_low, 384u); s2 = SCALES(p_scale, 384u); e2 = SUPERS(p_super, 48u); w3 = CODES(p_low, 448u); s3 = SCALES(p_scale, 448u); e3 = SUPERS(p_super, 56u);
}
{
[[dont_unroll]] for (uint t = 0u; t < TOKENS; t++) {
take_x_of(t, warp % 8u, true);
float t0 = product(w0, uvec2(0u), s0, e0, false);
float t1 = product(w1, uvec2(0u), s1, e1, false);
float t2 = product(w2, uvec2(0u), s2, e2, false);
float t3 = product(w3, uvec2(0u), s3, e3, false);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint slot = warp / 8u, i = lane / 2u;
if (lane % 2u == 0u && slot < 8u)
    partial[t * PARTIAL_TOKEN + warp % 8u * STRIDE_X + 0u + slot * 32u + 24u + 4u + i] = t0;
}
if (last) { const uint64_t at = at_q; const uint number = 0u; p_low = at + 16u * number; p_high = at + 128ul * VOCAB + 8u * number; p_scale = at + 192ul * VOCAB + 2u * number; p_super = at + 208ul * VOCAB + number / 8u * 4u; } if (last) { w0 = CODES(p_low, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 0u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); s0 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 0u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); e0 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 0u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane) / 8u); h0 = BITS(p_high, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 0u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); w1 = CODES(p_low, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 1u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); s1 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 1u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); e1 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 1u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane) / 8u); h1 = BITS(p_high, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 1u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); w2 = CODES(p_low, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 2u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); s2 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 2u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); e2 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 2u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane) / 8u); h2 = BITS(p_high, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 2u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); w3 = CODES(p_low, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 3u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); s3 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 3u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); e3 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 3u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane) / 8u); h3 = BITS(p_high, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + 3u, OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); } else { { const uint number = (wg * 256u + min(warp / 1u, 63u) * 4u) * 8u + warp % 1u * LANES + lane; uint64_t at = at_q; p_low = at + 16u * number; p_scale = at + 32768ul + 2u * number; p_super = at + 36864ul + number / 8u * 4u; } at_k = address(here + 1u, 1u); at_v = address(here + 1u, 2u); w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); w1 = CODES(p_low, 8u); s1 = SCALES(p_scale, 8u); e1 = SUPERS(p_super, 1u); w2 = CODES(p_low, 16u); s2 = SCALES(p_scale, 16u); e2 = SUPERS(p_super, 2u); w3 = CODES(p_low, 24u); s3 = SCALES(p_scale, 24u); e3 = SUPERS(p_super, 3u); }
}
}
}
void multiply_v(bool last) {}
void ask_again() {
    const uint64_t zero = uint64_t(position >> 30u);
    p_low += zero; p_scale += zero; p_super += zero;
    w0 = CODES(p_low, 0u); s0 = SCALES(p_scale, 0u); e0 = SUPERS(p_super, 0u); w1 = CODES(p_low, 8u); s1 = SCALES(p_scale, 8u); e1 = SUPERS(p_super, 1u); w2 = CODES(p_low, 16u); s2 = SCALES(p_scale, 16u); e2 = SUPERS(p_super, 2u); w3 = CODES(p_low, 24u); s3 = SCALES(p_scale, 24u); e3 = SUPERS(p_super, 3u);
}
void multiply_output() {
[[dont_unroll]] for (uint r = 0u; r < N_L; r += 4u) {
const uint which = r / 4u & 1u;
[[dont_unroll]] for (uint j = 0u; j < n_outputs; j++) {
take_x_of(output_tokens[j], warp % 1u, false);
float t0 = product(w0, h0, s0, e0, true);
float t1 = product(w1, h1, s1, e1, true);
float t2 = product(w2, h2, s2, e2, true);
float t3 = product(w3, h3, s3, e3, true);
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t2 : t0, gone = up ? t0 : t2;
t0 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 4u) != 0u; const float kept = up ? t3 : t1, gone = up ? t1 : t3;
t1 = kept + subgroupShuffleXor(gone, 4); }
{ const bool up = (lane & 2u) != 0u; const float kept = up ? t1 : t0, gone = up ? t0 : t1;
t0 = kept + subgroupShuffleXor(gone, 2); }
t0 += subgroupShuffleXor(t0, 1);
const uint i = lane / 2u, slot = warp / 1u;
if (lane % 2u == 0u && slot < 64u)
    partial[j * PARTIAL_TOKEN + which * PARTIAL_STEP + warp % 1u * OF_STEP + slot * AHEAD + i] = t0;
}
w0 = CODES(p_low, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + min(r + 4u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); s0 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + min(r + 4u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); e0 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + min(r + 4u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane) / 8u); h0 = BITS(p_high, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + min(r + 4u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane));
w1 = CODES(p_low, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + min(r + 5u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); s1 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + min(r + 5u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); e1 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + min(r + 5u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane) / 8u); h1 = BITS(p_high, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + min(r + 5u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane));
w2 = CODES(p_low, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + min(r + 6u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); s2 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + min(r + 6u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); e2 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + min(r + 6u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane) / 8u); h2 = BITS(p_high, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + min(r + 6u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane));
w3 = CODES(p_low, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + min(r + 7u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); s3 = SCALES(p_scale, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + min(r + 7u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane)); e3 = SUPERS(p_super, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + min(r + 7u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane) / 8u); h3 = BITS(p_high, (min(wg * OF_L + min(min(warp / 1u, 63u) * N_L + min(r + 7u, N_L - 1u), OF_L - 1u), VOCAB - 1u) * 8u + warp % 1u * LANES + lane));
give_logits(r, which);
}
}
#endif
