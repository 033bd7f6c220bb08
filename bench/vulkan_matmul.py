"""Measure the Vulkan backend's matrix kernels: ``python bench/vulkan_matmul.py [--json FILE]``.

Shapes are those of Llama 1B and 8B. Every kernel is measured with many workgroup sizes, and the best are printed: few
rows of activations in GB/s of weights, 512 rows in TFLOP/s; ``--only blocks`` measures tiles without matrix units. Each
dispatch waits for the previous one and reads its own memory, in total more than caches hold.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vulkan_dispatches import Bench  # imported first, since it sets the path of the sources

from pumice.graph import Tensor
from pumice_vulkan.device import open_device
from pumice_vulkan.formats import BY_NAME
from pumice_vulkan.lower import tiles, vectors
from pumice_vulkan.lower.matrices import Matrix
from pumice_vulkan.lower.rule import Dispatch
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.tuning import (
    PROCESSORS,
    BlockShape,
    TileNumbers,
    TileShape,
    VectorShape,
    block_shape,
    tile_shape,
    vector_shape,
)

# Name: rows of each matrix, columns; whether an RMS norm precedes; whether two matrices are gate and up.
SHAPES = {
    "nothing": ([16], 2048, False, False),
    "nothing+norm": ([16], 2048, True, False),
    "1b qkv": ([2048, 512, 512], 2048, True, False),
    "1b o": ([2048], 2048, False, False),
    "1b gate+up": ([8192, 8192], 2048, True, True),
    "1b down": ([2048], 8192, False, False),
    "1b output": ([128256], 2048, True, False),
    "8b qkv": ([4096, 1024, 1024], 4096, True, False),
    "8b o": ([4096], 4096, False, False),
    "8b gate+up": ([14336, 14336], 4096, True, True),
    "8b down": ([4096], 14336, False, False),
    "8b output": ([128256], 4096, True, False),
}
MATMUL = [(2048, 2048), (8192, 2048), (2048, 8192), (4096, 4096), (14336, 4096), (4096, 14336)]
TILES = [
    TileShape(32, 32, 2, 1),
    TileShape(32, 64, 1, 2),
    TileShape(32, 128, 1, 2),
    TileShape(64, 32, 4, 1),
    TileShape(64, 32, 2, 1),
    TileShape(64, 64, 2, 2),
    TileShape(128, 64, 2, 2),
    TileShape(128, 64, 4, 2),
    TileShape(64, 128, 2, 2),
    TileShape(64, 128, 1, 4),
    TileShape(128, 128, 2, 2),
    TileShape(128, 128, 2, 2, 32),
    TileShape(128, 128, 4, 2),
    TileShape(128, 128, 2, 4),
    TileShape(64, 256, 1, 4),
    TileShape(256, 128, 4, 2, 32),
]

BLOCK_SIZES = [(512, 2048), (2048, 2048), (8192, 2048), (2048, 8192), (128256, 2048)]
BLOCK_SIZES_8B = [(1024, 4096), (4096, 4096), (14336, 4096), (4096, 14336)]
FLOAT_CANDIDATES = [
    *(BlockShape(4, 8), BlockShape(4, 4), BlockShape(4, 4, 32, 4), BlockShape(8, 4), BlockShape(8, 4, 16, 16)),
    *(BlockShape(8, 4, 8, 16), BlockShape(8, 4, 16, 4), BlockShape(4, 8, 32, 8), BlockShape(8, 8, 8, 8)),
    *(
        BlockShape(8, 8),
        BlockShape(8, 8, 16, 16),
        BlockShape(8, 4, depth=32, step=1),
        BlockShape(8, 8, depth=32, step=4),
    ),
]
HALF_CANDIDATES = [
    BlockShape(*division, depth=depth, step=step)
    for division in ((8, 8, 16, 8), (8, 8, 16, 16), (8, 4, 16, 8), (4, 4, 16, 8), (4, 8, 32, 8))
    for depth, step in ((16, 16), (32, 16), (32, 8), (64, 16), (64, 32), (64, 64))
]
INT8_CANDIDATES = [
    *(BlockShape(4, 8), BlockShape(4, 4), BlockShape(2, 4), BlockShape(2, 2), BlockShape(4, 2, 32, 8)),
    *(BlockShape(4, 4, 32, 4), BlockShape(8, 4, 8, 16), BlockShape(4, 4, 16, 16)),
]


CANDIDATES = {
    TileNumbers.FLOAT: FLOAT_CANDIDATES,
    TileNumbers.HALF: HALF_CANDIDATES,
    TileNumbers.INT8: INT8_CANDIDATES,
}


def vector_dispatches(
    bench: Bench,
    format: str,
    name: str,
    shape: VectorShape,
    n_tokens: int,
    x_mode: str = "fused",
    most_copies: int = 100,
    as_models_do: bool = False,
) -> tuple[list[Dispatch], int]:
    """Return products of all matrices of a shape with copies of the weights, and the bytes of weights of one."""
    rows, columns, norm, paired = SHAPES[name]
    kind = BY_NAME[format]
    n_bytes = [kind.matrix_bytes(n, columns) for n in rows]
    int8_y = as_models_do and paired
    lowering, activation = bench.lowering(n_tokens)
    x = activation(columns)
    vectors.vector_shape = lambda *_: shape
    fused = bench.int8 and x_mode == "fused" and n_tokens * columns // 32 * 40 <= 16384 and not kind.dense
    vectors.SHARED_X_BYTES = 16384 if fused else 0
    if bench.int8 and not fused and not kind.dense:
        vectors.quantized(lowering, x, columns // 32)
    lowering.dispatches.clear()
    ys = [BufferSlice(bench.y, sum(rows[:i]) * n_tokens, n * n_tokens) for i, n in enumerate(rows)]
    for offset in bench.copies(sum(n_bytes) + 256 * len(rows))[:most_copies]:
        matrices = []
        for n, size in zip(rows, n_bytes, strict=True):
            matrices.append(Matrix(kind, BufferSlice(bench.weights, offset, size // 4, True), n, columns))
            offset += -(-size // 256) * 64
        weight = BufferSlice(bench.x, bench.x.n_bytes // 8, columns, True)
        call = vectors.VectorProduct(
            x,
            matrices,
            ys[:1] if paired else ys,
            norm=(weight, 1e-5) if norm and fused else None,
            paired=paired,
            output=Tensor("y", (n_tokens, rows[0])) if int8_y else None,
        )
        vectors.vector_product(lowering, call)
    return lowering.dispatches, sum(n_bytes)


def vector_candidates(bench: Bench, row_blocks: int, format: str) -> list[VectorShape]:
    subgroup = bench.device.subgroup_size
    shapes = []
    for lanes in (subgroup, 2 * subgroup, 4 * subgroup, 8 * subgroup):
        for threads in (64, 128, 256):
            for rows in (2, 4, 8):
                for unroll in (1, 2, 4):
                    steps = -(-row_blocks // (lanes * unroll))
                    wasted = steps * lanes * unroll >= 2 * row_blocks
                    loads = rows * unroll * (2 if format == "q8_0" else 1)
                    if lanes > threads or wasted or not 4 <= loads <= 16:
                        continue
                    for prefetch in (False, True) if steps > 1 and loads <= 8 else (False,):
                        shapes.append(VectorShape(lanes, threads // lanes, rows, unroll, prefetch))
    return shapes


def vector_results(bench: Bench, formats: Sequence[str], names: Sequence[str], n_tokens: int, sweep: bool) -> list[Any]:
    results = []
    for format in formats:
        for name in names:
            rows, columns, _, paired = SHAPES[name]
            row_blocks = BY_NAME[format].row_blocks(columns)
            kind = BY_NAME[format]
            default = vector_shape(bench.device, sum(rows), row_blocks, n_tokens, kind, paired, int8=bench.int8)
            shapes = [default, *(vector_candidates(bench, row_blocks, format) if sweep else [])]
            modes = ["fused"] if kind.dense or not bench.int8 else ["fused", "quantized x"]
            firsts = [vector_dispatches(bench, format, name, shape, n_tokens, most_copies=1)[0][0] for shape in shapes]
            usable = bench.compile(firsts)
            timed = []
            bench.warm_up(firsts[:1] * 20)
            for shape, good in zip(shapes, usable, strict=True):
                if good:
                    dispatches, n_bytes = vector_dispatches(bench, format, name, shape, n_tokens)
                    timed.append((bench.time(dispatches), shape))
            default_us = timed[0][0]
            timed.sort(key=lambda item: item[0])
            us, shape = timed[0]
            other = {}
            for mode in modes[1:]:
                dispatches, _ = vector_dispatches(bench, format, name, shape, n_tokens, mode)
                other[mode] = bench.time(dispatches)
            if paired and bench.int8:
                dispatches, _ = vector_dispatches(bench, format, name, default, n_tokens, as_models_do=True)
                other["also int8"] = bench.time(dispatches)
            print(
                f"{format:7} {name:11} x{n_tokens}: {n_bytes / us / 1e3:6.0f} GB/s {us:7.2f} us "
                f"(default {default_us:7.2f}"
                + "".join(f", {mode} {value:7.2f}" for mode, value in other.items())
                + f")  {compact(shape)}; then "
                + ", ".join(f"{compact(shape)} {us:.2f}" for us, shape in timed[1:4]),
                flush=True,
            )
            results.append(
                {
                    "format": format,
                    "shape": name,
                    "tokens": n_tokens,
                    "bytes": n_bytes,
                    "default_us": default_us,
                    "other_us": other,
                    "timed": [[round(us, 3), dataclasses.astuple(shape)] for us, shape in timed],
                }
            )
    return results


def compact(shape: VectorShape | TileShape | BlockShape) -> str:
    return "/".join(str(int(value)) for value in dataclasses.astuple(shape))


def matrix_dispatches(
    bench: Bench, format: str, n_rows: int, columns: int, n_tokens: int, shape: TileShape | None
) -> list[Dispatch]:
    kind = BY_NAME[format]
    n_bytes = kind.matrix_bytes(n_rows, columns)
    lowering, activation = bench.lowering(n_tokens)
    tiles.tile_shape = (lambda *_: shape) if shape else tile_shape
    x, y = activation(columns), BufferSlice(bench.y, 0, n_rows * n_tokens)
    for offset in bench.copies(n_bytes)[:8]:
        matrix = Matrix(kind, BufferSlice(bench.weights, offset, n_bytes // 4, True), n_rows, columns)
        tiles.cooperative_product(lowering, tiles.TileProduct(x, matrix, y))
    return lowering.dispatches


def matrix_results(
    bench: Bench, formats: Sequence[str], sizes: Sequence[tuple[int, int]], n_tokens: int, sweep: bool
) -> list[Any]:
    results = []
    most = bench.device.threadgroup_memory_bytes
    for format in formats:
        for n_rows, columns in sizes:
            shapes = [shape for shape in TILES if shape.shared_bytes() <= most and shape.n <= 2 * n_tokens]
            default = tile_shape(bench.device, n_rows, n_tokens)
            shapes = [default, *(shape for shape in shapes if sweep and shape != default)]
            lowered = [matrix_dispatches(bench, format, n_rows, columns, n_tokens, shape) for shape in shapes]
            usable = bench.compile([dispatches[-1] for dispatches in lowered])
            bench.warm_up(lowered[0])
            half_us = bench.time(lowered[0][:1] * 8)
            timed = []
            for shape, dispatches, good in zip(shapes, lowered, usable, strict=True):
                if good:
                    timed.append((bench.time(dispatches[1:]), shape))
            default_us = timed[0][0]
            timed.sort(key=lambda item: item[0])
            us, shape = timed[0]
            flops = 2 * n_rows * columns * n_tokens
            print(
                f"{format:7} {n_rows:6}x{columns:5} x{n_tokens}: {flops / us / 1e6:6.1f} TFLOP/s {us:8.1f} us "
                f"(default {default_us:.1f}, to float16 {half_us:.1f})  {compact(shape)}; then "
                + ", ".join(f"{compact(shape)} {us:.1f}" for us, shape in timed[1:4]),
                flush=True,
            )
            results.append(
                {
                    "format": format,
                    "rows": n_rows,
                    "columns": columns,
                    "tokens": n_tokens,
                    "half_us": half_us,
                    "timed": [[round(us, 3), dataclasses.astuple(shape)] for us, shape in timed],
                }
            )
    return results


def block_dispatches(
    bench: Bench, format: str, size: tuple[int, int], n_tokens: int, shape: BlockShape | None, numbers: TileNumbers
) -> list[Dispatch]:
    """Return products without matrix units with copies of the weights; without a shape, those of passes."""
    (n_rows, columns), kind = size, BY_NAME[format]
    n_bytes = kind.matrix_bytes(n_rows, columns)
    int8, bench.half = numbers == TileNumbers.INT8, numbers == TileNumbers.HALF
    lowering, activation = bench.lowering(n_tokens, int8)
    x, y = activation(columns), BufferSlice(bench.y, 0, n_rows * n_tokens)
    if int8:
        vectors.quantized(lowering, x, columns // 32)
        lowering.dispatches.clear()
    for offset in bench.copies(n_bytes)[:8]:
        matrix = Matrix(kind, BufferSlice(bench.weights, offset, n_bytes // 4, True), n_rows, columns)
        if shape:
            tiles.tiled_product(lowering, tiles.TileProduct(x, matrix, y), shape)
        else:
            vectors.vector_product(lowering, vectors.VectorProduct(x, [matrix], [y]))
    return lowering.dispatches


def block_results(
    bench: Bench, format: str, size: tuple[int, int], n_tokens: int, numbers: TileNumbers
) -> dict[str, Any]:
    """Measure every shape with every number of parts that may occupy the device, and passes for few rows."""
    (n_rows, columns), shapes = size, list[BlockShape | None]()
    for shape in CANDIDATES[numbers]:
        n_tiles = -(-n_rows // shape.m) * -(-n_tokens // shape.n)
        for splits in (1, 2, 4, 8, 16, 32):
            enough = splits == 1 or (n_tiles * splits <= 10 * PROCESSORS and columns >= 128 * splits)
            if shape.n < 2 * n_tokens and enough:
                shapes.append(dataclasses.replace(shape, splits=splits))
    default = block_shape(n_rows, columns, n_tokens, numbers)
    shapes = [default, *(shape for shape in [*shapes, *([None] if n_tokens <= 64 else [])] if shape != default)]
    lowered = [block_dispatches(bench, format, size, n_tokens, shape, numbers) for shape in shapes]
    usable = bench.compile([dispatches[-1] for dispatches in lowered])
    bench.warm_up(lowered[0])
    timed = [
        (bench.time(dispatches), compact(shape) if shape else "passes")
        for shape, dispatches, good in zip(shapes, lowered, usable, strict=True)
        if good
    ]
    default_us = timed[0][0]
    timed.sort(key=lambda item: item[0])
    us = timed[0][0]
    kind, tera = numbers.name.lower(), 2 * n_rows * columns * n_tokens / us / 1e6
    print(
        f"{kind:5} {format} {n_rows:6}x{columns:5} x{n_tokens:3}: {tera:5.1f} TFLOP/s"
        f" (default {compact(default) if default else 'passes'} {default_us:.1f} us)  "
        + ", ".join(f"{name} {us:.1f}" for us, name in timed[:4])
        + "".join(f"; {name} {us:.1f}" for us, name in timed[4:] if name == "passes"),
        flush=True,
    )
    return {"numbers": kind, "rows": n_rows, "columns": columns, "tokens": n_tokens, "timed": timed}


def all_blocks(bench: Bench, n_all_tokens: Sequence[int]) -> list[dict[str, Any]]:
    results = []
    for numbers in TileNumbers:
        if numbers == TileNumbers.HALF and "float16" not in bench.device.features:
            continue
        for format, sizes in (("q4_0", BLOCK_SIZES), ("q4_k", BLOCK_SIZES_8B)):
            for size in sizes:
                for n_tokens in n_all_tokens:
                    if n_tokens <= 64 or size[0] < 100000:
                        results.append(block_results(bench, format, size, n_tokens, numbers))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write all measurements to a file")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--driver", default="native")
    parser.add_argument("--formats", default="q4_0,q4_k,q6_k,q8_0", help="formats whose workgroup sizes are swept")
    parser.add_argument(
        "--defaults", action="store_true", help="measure only the sizes that models use, for all formats"
    )
    parser.add_argument(
        "--quick", action="store_true", help="measure one small shape of each kind, for a check without a GPU"
    )
    parser.add_argument("--float", action="store_true", help="products with vectors of floats instead of int8")
    parser.add_argument("--only", choices=["vectors", "matrices", "blocks"])
    parser.add_argument(
        "--tokens", type=int, nargs="+", default=[16, 32, 64, 512], help="rows of activations of `--only blocks`"
    )
    arguments = parser.parse_args()
    formats = arguments.formats.split(",")
    with open_device(arguments.driver, arguments.device) as device:
        cooperative = any(
            (s.m, s.n, s.k, s.a, s.c) == (16, 16, 16, "float16", "float32")
            for s in device.description.cooperative_matrices
        )
        print(f"{device.name}, {device.description.vulkan_driver}; cooperative matrices: {cooperative}", flush=True)
        quick = arguments.quick
        bench = Bench(device, (32 << 20) if quick else (1 << 30), 16384, 100 if quick else 512)
        bench.int8 = not arguments.float
        report: dict[str, Any] = {"device": device.name}

        def save() -> None:
            if arguments.json:
                arguments.json.write_text(json.dumps(report) + "\n")

        print(f"copies {bench.copy_speed():.0f} GB/s, read and written", flush=True)
        if arguments.only in (None, "vectors"):
            names = ["1b o", "1b gate+up"] if quick else list(SHAPES)
            sweep = not (quick or arguments.defaults)
            print("\nfew rows: lanes/groups/rows/unroll/prefetch", flush=True)
            report["vectors"] = vector_results(bench, formats, names, 1, sweep)
            if not quick:
                rest = [name for name in BY_NAME if name not in formats]
                report["vectors"] += vector_results(bench, rest, ["1b gate+up", "8b down"], 1, sweep)
                for n_tokens in (2, 4, 8):
                    report["vectors"] += vector_results(bench, formats[:2], ["1b gate+up", "8b down"], n_tokens, sweep)
            save()
        if arguments.only == "blocks":
            print("\nmany rows without matrix units: rows/vectors/invocations m/invocations n/splits", flush=True)
            report["blocks"] = all_blocks(bench, (16, 64) if quick else arguments.tokens)
            save()
        if cooperative and arguments.only in (None, "matrices"):
            print("\nmany rows: m/n/subgroups m/subgroups n/k", flush=True)
            sweep = not arguments.defaults
            sizes = MATMUL[:1] if quick else MATMUL
            report["matrices"] = matrix_results(bench, [*formats, "f16"], sizes, 512, sweep)
            for n_tokens in () if quick else (16, 32, 64, 128, 256):
                report["matrices"] += matrix_results(bench, formats[:1], MATMUL[1:2], n_tokens, True)
            save()


if __name__ == "__main__":
    main()
