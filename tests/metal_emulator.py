"""``mx.fast.metal_kernel`` without Metal: a kernel's text, compiled as C++; its 32 lanes run one after the other."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

CPLUSPLUS = """
#include <cmath>
#include <cstdint>
#include <cstring>
#define device
#define thread
using uint = uint32_t;
using ushort = uint16_t;
using ulong = uint64_t;
struct half {
    ushort bits;
    explicit operator float() const {
        const int exponent = bits >> 10 & 31, fraction = bits & 1023;
        const bool is_normal = exponent != 0;
        const float size = std::ldexp(float(is_normal ? 1024 + fraction : fraction), is_normal ? exponent - 25 : -24);
        return bits >> 15 ? -size : size;
    }
};
template <class T> T as_type(ushort bits) { return T{bits}; }
static uint popcount(uint bits) { return __builtin_popcount(bits); }
struct Position { uint x, y, z; };
static float totals[64];
static uint n_sums;
// Of the last lane to run, which is the first: the sum of all.
static float simd_sum(float value) { return totals[n_sums++] += value; }
TEMPLATE
HEADER
static void body(Position thread_position_in_grid, PARAMETERS) {
    SOURCE
}
extern "C" void run(const uint* grid, const int* values, void** buffers) {
    SETTINGS
    for (uint z = 0; z < grid[2]; z++)
        for (uint y_ = 0; y_ < grid[1]; y_++)
            for (uint group = 0; group < grid[0]; group += 32) {
                std::memset(totals, 0, sizeof totals);
                for (uint lane = grid[0] - group < 32 ? grid[0] - group : 32; lane-- > 0; n_sums = 0)
                    body({group + lane, y_, z}, ARGUMENTS);
            }
}
"""
TYPES = {mx.float32: "float", mx.uint8: "uint8_t", mx.int8: "int8_t", mx.uint32: "uint32_t"}
DTYPES = {mx.float32: np.float32, mx.uint8: np.uint8, mx.int8: np.int8, mx.uint32: np.uint32}


def compiler() -> str:
    if (found := shutil.which("c++")) is None:
        pytest.skip("no C++ compiler (Debian: g++)")
    return found


def metal_kernel(folder: Path) -> Callable[..., Callable[..., list[mx.array]]]:
    """Return what replaces ``mx.fast.metal_kernel``; libraries are files of the folder. float16 becomes float32."""

    def define(
        name: str, input_names: Sequence[str], output_names: Sequence[str], source: str, header: str = ""
    ) -> Callable[..., list[mx.array]]:
        libraries: dict[Any, ctypes.CDLL] = {}

        def call(
            *,
            inputs: Sequence[mx.array],
            template: Sequence[tuple[str, int]],
            grid: tuple[int, int, int],
            threadgroup: tuple[int, int, int],
            output_shapes: Sequence[tuple[int, ...]],
            output_dtypes: Sequence[mx.Dtype],
        ) -> list[mx.array]:
            assert 1 <= np.prod(threadgroup) <= 1024
            wide = [array.astype(mx.float32) if array.dtype == mx.float16 else array for array in inputs]
            arrays = [np.ascontiguousarray(np.array(array, DTYPES[array.dtype])) for array in wide]
            outputs = [np.full(shape, np.nan, np.float32) for shape in output_shapes]
            types = [f"const {TYPES[array.dtype]}*" for array in wide] + ["float*"] * len(outputs)
            key = (tuple(types), tuple(name for name, _ in template))
            if key not in libraries:
                names = [*input_names, *output_names]
                fields = {
                    "TEMPLATE": "\n".join(f"static int {name};" for name, _ in template),
                    "SETTINGS": "\n".join(f"{name} = values[{i}];" for i, (name, _) in enumerate(template)),
                    "HEADER": header,
                    "PARAMETERS": ", ".join(f"{type} {name}" for type, name in zip(types, names, strict=True)),
                    "ARGUMENTS": ", ".join(f"({type})buffers[{i}]" for i, type in enumerate(types)),
                    "SOURCE": source,
                }
                text = CPLUSPLUS
                for field, value in fields.items():
                    text = text.replace(field, value)
                n_files = len(list(folder.iterdir()))  # a library of an earlier name would be taken for loaded
                libraries[key] = _library(folder / f"{name}_{n_files}", text)
            buffers = [array.ctypes.data for array in (*arrays, *outputs)]
            values = [value for _, value in template]
            libraries[key].run(
                (ctypes.c_uint32 * 3)(*grid),
                (ctypes.c_int * len(values))(*values),
                (ctypes.c_void_p * len(buffers))(*buffers),
            )
            return [mx.array(array).astype(type) for array, type in zip(outputs, output_dtypes, strict=True)]

        return call

    return define


def _library(path: Path, text: str) -> ctypes.CDLL:
    path.with_suffix(".cpp").write_text(text)
    command = [compiler(), "-std=c++17", "-shared", "-fPIC", "-O1", f"{path}.cpp", "-o", f"{path}.so"]
    if subprocess.run(command, capture_output=True).returncode:
        raise RuntimeError("Unable to build metal library from source")  # as MLX does
    return ctypes.CDLL(f"{path}.so")
