"""``mx.fast.cuda_kernel`` without CUDA: a kernel's text, compiled as C++; its threads take turns between barriers.

Inputs that a kernel writes to change in place, as on a GPU.
"""

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from metal_emulator import compiler

CPLUSPLUS = """
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <algorithm>
#include <cstring>
#include <csetjmp>
#include <ucontext.h>
#define __device__
#define __shared__ static
#define alignas(n)  // MLX aligns memory of processors less
struct Place { unsigned x, y, z; };
static Place threadIdx, blockIdx, gridDim;
static jmp_buf scheduler, threads[1024];  // swapcontext would make two system calls a turn
static ucontext_t beginnings[1024];
static bool begun[1024], ended[1024];
static float passed[1024];
static unsigned n_waiting, generation;
static void next_turn() {  // all lanes of a warp do the same
    if (!_setjmp(threads[threadIdx.x])) _longjmp(scheduler, 1);
}
static void __syncthreads() {
    n_waiting++;
    for (const unsigned mine = generation; generation == mine;) next_turn();
}
static void __threadfence() {}
static float __shfl_xor_sync(unsigned, float value, int other) {
    passed[threadIdx.x] = value;
    next_turn();
    const float result = passed[threadIdx.x ^ other];
    next_turn();
    return result;
}
static unsigned atomicAdd(unsigned* to, unsigned value) { const unsigned before = *to; *to += value; return before; }
static float __ldcg(const float* from) { return *from; }
typedef _Float16 half_;
// A warp's product of 16 x 16 and 16 x 8 numbers: each lane has pairs of them, and four results.
static unsigned fragments[1024][6];
static half_ number(unsigned pair, int i) {
    const unsigned short bits = pair >> 16 * i;
    half_ result;
    std::memcpy(&result, &bits, 2);
    return result;
}
static void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    unsigned* own = fragments[threadIdx.x];
    for (int i = 0; i < 4; i++) own[i] = a[i];
    own[4] = b0, own[5] = b1;
    next_turn();
    const int warp = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4, half = i / 2, column = 2 * (lane % 4) + i % 2;
        for (int k = 0; k < 16; k++) {
            const int place = k % 8 / 2, high = k / 8;
            const half_ left = number(fragments[warp + 4 * row + place][half + 2 * high], k % 2);
            sums[i] += float(left) * float(number(fragments[warp + 4 * column + place][4 + high], k % 2));
        }
    }
    next_turn();
}
static unsigned scaled(unsigned plain, unsigned scale, unsigned bias) {
    unsigned result = 0;
    for (int i = 0; i < 2; i++) {
        const half_ value = half_((float(number(plain, i)) - 1024) * float(number(scale, i)) + float(number(bias, i)));
        unsigned short bits;
        std::memcpy(&bits, &value, 2);
        result |= unsigned(bits) << 16 * i;
    }
    return result;
}
HEADER
static void body(PARAMETERS) {
    TEMPLATE
    SOURCE
}
static void** buffers;
static const int* shapes;
static const int64_t* strides;
static void enter() {
    body(ARGUMENTS);
    ended[threadIdx.x] = true;
    _longjmp(scheduler, 1);
}
static void go_on(unsigned thread) {
    if (_setjmp(scheduler)) return;
    threadIdx = {thread, 0, 0};
    if (begun[thread]) _longjmp(threads[thread], 1);
    begun[thread] = true;
    setcontext(&beginnings[thread]);
}
extern "C" void run(const unsigned* grid, unsigned n_threads, void** buffers_, const int* shapes_,
                    const int64_t* strides_) {
    buffers = buffers_, shapes = shapes_, strides = strides_;
    static char* stacks = (char*)std::malloc(1024 * 65536);
    gridDim = {grid[0], grid[1], grid[2]};
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y_ = 0; y_ < grid[1]; y_++)
            for (unsigned x = grid[0]; x-- > 0;) {  // in another order than a reader expects
                blockIdx = {x, y_, z};
                for (unsigned i = 0; i < n_threads; i++) {
                    begun[i] = ended[i] = false;
                    getcontext(&beginnings[i]);
                    beginnings[i].uc_stack.ss_sp = stacks + i * 65536;
                    beginnings[i].uc_stack.ss_size = 65536;
                    makecontext(&beginnings[i], enter, 0);
                }
                n_waiting = 0;
                for (unsigned left = n_threads; left;) {
                    for (unsigned i = left = 0; i < n_threads; i++)
                        if (!ended[i]) {
                            go_on(i);
                            left += !ended[i];
                        }
                    if (n_waiting == left) n_waiting = 0, generation++;
                }
            }
}
"""
TYPES = {mx.float32: "float", mx.float16: "half_", mx.int32: "int", mx.uint32: "unsigned"}


def cuda_kernel(folder: Path) -> Callable[..., Callable[..., list[mx.array]]]:
    """Return what replaces ``mx.fast.cuda_kernel``; libraries are files of the folder."""
    libraries: dict[str, ctypes.CDLL] = {}

    def define(
        name: str,
        input_names: Sequence[str],
        output_names: Sequence[str],
        source: str,
        header: str = "",
        *,
        ensure_row_contiguous: bool = True,
    ) -> Callable[..., list[mx.array]]:
        def call(
            *,
            inputs: Sequence[mx.array],
            template: Sequence[tuple[str, Any]],
            grid: tuple[int, int, int],
            threadgroup: tuple[int, int, int],
            output_shapes: Sequence[tuple[int, ...]],
            output_dtypes: Sequence[mx.Dtype],
        ) -> list[mx.array]:
            arrays = [mx.contiguous(array) if ensure_row_contiguous else array for array in inputs]
            mx.eval(arrays)
            outputs = [
                mx.full(shape, float("nan")).astype(type)
                for shape, type in zip(output_shapes, output_dtypes, strict=True)
            ]
            mx.eval(outputs)
            types = [f"const {TYPES[array.dtype]}*" for array in arrays] + [f"{TYPES[y.dtype]}*" for y in outputs]
            parameters = [f"{type} {name}" for type, name in zip(types, [*input_names, *output_names], strict=True)]
            arguments = [f"({type})buffers[{i}]" for i, type in enumerate(types)]
            shaped = [i for i, name in enumerate(input_names) if f"{name}_shape" in source]
            for number, i in enumerate(shaped):
                parameters.append(f"const int* {input_names[i]}_shape")
                arguments.append(f"shapes + {8 * number}")
            strided = [i for i, name in enumerate(input_names) if f"{name}_strides" in source]
            for number, i in enumerate(strided):
                parameters.append(f"const int64_t* {input_names[i]}_strides")
                arguments.append(f"strides + {8 * number}")
            fields = {
                "TEMPLATE": "\n".join(
                    f"using {key} = {TYPES[value]};"
                    if isinstance(value, mx.Dtype)
                    else f"constexpr int {key} = {int(value)};"
                    for key, value in template
                ),
                "HEADER": header,
                "PARAMETERS": ", ".join(parameters),
                "ARGUMENTS": ", ".join(arguments),
                "SOURCE": source,
            }  # fmt: skip
            text = CPLUSPLUS
            for field, value in fields.items():
                text = text.replace(field, value)
            if text not in libraries:
                libraries[text] = _library(folder / f"{name}_{len(libraries)}", text)
            views = [np.array(array, copy=False) for array in (*arrays, *outputs)]
            sizes = [size for i in shaped for size in eight(arrays[i].shape)]
            steps = [size // view.itemsize for view in (views[i] for i in strided) for size in eight(view.strides)]
            libraries[text].run(
                (ctypes.c_uint32 * 3)(*(-(-n // size) for n, size in zip(grid, threadgroup, strict=True))),
                ctypes.c_uint32(threadgroup[0]),
                (ctypes.c_void_p * len(views))(*(view.ctypes.data for view in views)),
                (ctypes.c_int * max(len(sizes), 1))(*sizes),
                (ctypes.c_int64 * max(len(steps), 1))(*steps),
            )
            return outputs

        return call

    return define


def eight(sizes: Sequence[int]) -> tuple[int, ...]:
    return (*sizes, *[1] * (8 - len(sizes)))


def _library(path: Path, text: str) -> ctypes.CDLL:
    path.with_suffix(".cpp").write_text(text)
    command = [
        compiler(),
        "-std=c++20",
        "-shared",
        "-fPIC",
        "-O1",
        "-U_FORTIFY_SOURCE",
        f"{path}.cpp",
        "-o",
        f"{path}.so",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return ctypes.CDLL(f"{path}.so")
