// Parts of every kernel: the step block at binding 0, and the number of rows in the first push constant.

#ifndef STEP_ACCESS
#define STEP_ACCESS readonly
#endif
layout(std430, set = 0, binding = 0) STEP_ACCESS buffer Step { uint step_words[]; };

// The value of a push constant: with bit 31 the number itself, else the number at that index of the step block.
uint row_count(uint word) {
    return (word & 0x80000000u) != 0u ? word & 0x7fffffffu : step_words[word];
}

uint group_index() {
    return gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
}
