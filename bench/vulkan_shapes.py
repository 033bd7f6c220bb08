"""Sweep the shapes of a matrix kernel: which division of its work is the fastest.

    python bench/vulkan_shapes.py lanes --types q4_k f16_lanes --vectors 512 [--matrices 14336x4096x2 4096x14336]
    python bench/vulkan_shapes.py vectors --types f16 --vectors 1 2

A matrix is rows x columns, with x2 for gate and up together. Prints microseconds of the shape that
``pumice_vulkan/tuning.py`` chooses, then of the best shapes with their fields. Each dispatch waits for the previous one
and reads memory of its own.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple
from unittest import mock

from vulkan_dispatches import Bench  # imported first, since it sets the path of the sources

from pumice_vulkan.device import open_device
from pumice_vulkan.formats import BY_NAME, Format
from pumice_vulkan.lower import few, vectors
from pumice_vulkan.lower.matrices import Matrix
from pumice_vulkan.lower.rule import Dispatch
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.tuning import LanesShape, VectorShape, lanes_shape, lanes_width, vector_shape

Shape = LanesShape | VectorShape
COPIES = 8  # of the weights, read in turn
MATRICES = ["14336x4096x2", "4096x14336", "4096x4096", "8192x3072x2", "3072x8192", "8192x2048x2", "2048x8192"]


class Product(NamedTuple):
    """A product to measure; ``n_rows`` of each matrix."""

    format: Format
    n_rows: int
    n_columns: int
    n_matrices: int
    n_vectors: int


def shapes_of_lanes(item: Product, width: int) -> Iterator[Shape]:
    """Yield the shape that is chosen, then all others with up to eight subgroups and 16 fragments of sums each."""
    paired = item.n_matrices > 1
    yield lanes_shape(item.n_rows * item.n_matrices, item.n_columns, item.n_vectors, paired, item.format, width)
    divisions = [(parts_m, parts_k) for parts_m in (1, 2, 4, 8) for parts_k in (1, 2, 4, 8) if parts_m * parts_k == 8]
    for (parts_m, parts_k), (fragments_m, fragments_n) in product(divisions, [(2, 8), (4, 4), (2, 4), (2, 2)]):
        if 16 * fragments_n < 2 * item.n_vectors:
            for depth, x_first in ((1, False), (1, True), (2, False)):
                yield LanesShape(parts_m, parts_k, fragments_m, fragments_n, depth, x_first)


def shapes_of_vectors(item: Product, bench: Bench) -> Iterator[Shape]:
    """Yield the shape that is chosen, then others with 64 to 256 invocations."""
    n_rows, row_blocks = item.n_rows * item.n_matrices, item.format.row_blocks(item.n_columns)
    int8 = bench.int8 and not item.format.dense
    yield vector_shape(bench.device, n_rows, row_blocks, item.n_vectors, item.format, item.n_matrices > 1, False, int8)
    for lanes, groups, rows, unroll, prefetch in product((32, 64, 128), (1, 2, 4, 8), (2, 4, 8), (1, 2), (False, True)):
        if 64 <= lanes * groups <= 256 and rows * unroll <= 8:
            yield VectorShape(lanes, groups, rows, unroll, prefetch)


def dispatches(bench: Bench, item: Product, shape: Shape) -> list[Dispatch]:
    """Return the product with copies of the weights, without what converts x."""
    lowering, activation = bench.lowering(item.n_vectors)
    x, y = activation(item.n_columns), BufferSlice(bench.y, 0, item.n_rows * item.n_vectors)
    n_bytes = item.format.matrix_bytes(item.n_rows, item.n_columns)
    room = -(-n_bytes // 256) * 64  # words
    for offset in bench.copies(4 * room * item.n_matrices)[:COPIES]:
        weights = [
            Matrix(
                *(item.format, BufferSlice(bench.weights, offset + i * room, n_bytes // 4, True)),
                *(item.n_rows, item.n_columns),
            )
            for i in range(item.n_matrices)
        ]
        if isinstance(shape, LanesShape):
            few.lanes_product(lowering, few.FewProduct(x, weights, y), shape)
        else:
            with mock.patch.object(vectors, "vector_shape", return_value=shape):
                call = vectors.VectorProduct(x, weights, [y], paired=item.n_matrices > 1)
                vectors.vector_product(lowering, call)
    return [dispatch for dispatch in lowering.dispatches if dispatch.kernel.startswith("mat")]


def measure(bench: Bench, item: Product, shapes: Sequence[Shape], most: int) -> str:
    """Return a line: the shape that is chosen, and the best."""
    lowered = [dispatches(bench, item, shape) for shape in shapes]
    usable = bench.compile([each[-1] for each in lowered])
    bench.warm_up(lowered[0], 0.5)
    timed = [(bench.time(each), i) for i, (each, good) in enumerate(zip(lowered, usable, strict=True)) if good]
    chosen = next((us for us, i in timed if i == 0), float("nan"))
    best = [f"{us:.1f} {fields(shapes[i])}" for us, i in sorted(timed)[:most]]
    return f"chosen {chosen:.1f} {fields(shapes[0])}; best {', '.join(best)}"


def fields(shape: Shape) -> str:
    return "/".join(str(int(value)) for value in dataclasses.astuple(shape))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel", choices=["lanes", "vectors"])
    parser.add_argument("--types", nargs="+", choices=sorted(BY_NAME), default=["q4_k"])
    parser.add_argument("--vectors", nargs="+", type=int, default=[512])
    parser.add_argument("--matrices", nargs="+", default=MATRICES)
    parser.add_argument("--best", type=int, default=4, help="shapes to print")
    arguments = parser.parse_args()
    with open_device() as device:
        bench = Bench(device, 2 << 30, 16384, max(arguments.vectors))
        for text, name, n_vectors in product(arguments.matrices, arguments.types, arguments.vectors):
            n_rows, n_columns, n_matrices = map(int, (*text.split("x"), 1)[:3])
            item = Product(BY_NAME[name], n_rows, n_columns, n_matrices, n_vectors)
            lanes = arguments.kernel == "lanes"
            shapes = list(shapes_of_lanes(item, lanes_width(device)) if lanes else shapes_of_vectors(item, bench))
            print(f"{name} {text}, {n_vectors} vectors:", measure(bench, item, shapes, arguments.best), flush=True)


if __name__ == "__main__":
    main()
