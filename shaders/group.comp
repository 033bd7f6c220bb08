// Pairs of a token and an expert by expert, in tiles (group.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x_id = 2) in;
layout(constant_id = 0) const uint MATRICES = 1;
layout(constant_id = 1) const uint WIDTH = 32;  // maximum pairs per tile
layout(std430, set = 0, binding = 1) readonly buffer Ids { uint ids[]; };
layout(std430, set = 0, binding = 2) writeonly buffer Tiles { uint tiles[]; };
layout(std430, set = 0, binding = 3) writeonly buffer Order { uint order[]; };
layout(push_constant) uniform Push { uint rows, ids_at, tiles_at, order_at; uint n_used; };

#define ID(PAIR) ids[ids_at + PAIR]
#include "group.glsl"

void main() { group_pairs(row_count(rows) * n_used); }
