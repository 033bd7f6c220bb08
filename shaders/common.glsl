// What every kernel has: the step block at binding 0, and in the first push constant how many rows there are.

#ifndef STEP_ACCESS
#define STEP_ACCESS readonly
#endif
layout(std430, set = 0, binding = 0) STEP_ACCESS buffer Step { uint step_words[]; };

// A push constant that is a number with bit 31, and without it the word of the step block that has the number.
uint row_count(uint word) {
    return (word & 0x80000000u) != 0u ? word & 0x7fffffffu : step_words[word];
}

uint group_index() {
    return gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
}
