"""Workgroup sizes: from measurements where possible (bench/vulkan_*.py), else conservative."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from pumice.plugin import GGMLType
from pumice_vulkan.device import Device, MatrixShape
from pumice_vulkan.formats import LANES_STEP, Format


@dataclass(frozen=True)
class VectorShape:
    """Work division of shaders/matvec.comp: its first specialization constants."""

    lanes: int
    groups: int
    rows: int
    unroll: int = 1
    prefetch: bool = False

    @property
    def invocations(self) -> int:
        return self.lanes * self.groups


@dataclass(frozen=True)
class TileShape:
    """Work division of shaders/matmul_cooperative.comp: tile rows of matrix and of x, subgroups, columns at a time."""

    m: int
    n: int
    warps_m: int
    warps_n: int
    k: int = 64
    splits: int = 1  # workgroups that divide the columns

    def shared_bytes(self, unit: int = 16) -> int:
        results = self.warps_m * self.warps_n * 2 * unit * X_UNIT * 4
        return max((self.m + self.n) * (self.k + 8) * 2, results)

    def fits(self, device: Device) -> bool:
        """Return True if the device has the shared memory and invocations, and these share out the loads of x."""
        invocations = self.warps_m * self.warps_n * device.subgroup_size
        shares = self.n * self.k // 8 % invocations == 0
        enough = invocations <= device.description.max_threads_per_threadgroup
        unit = NARROW_ROWS // 2 if is_narrow(device) else X_UNIT
        return enough and shares and self.shared_bytes(unit) <= device.threadgroup_memory_bytes

    def on(self, device: Device) -> TileShape:
        """Return the shape with as many subgroups as have room for their part of it in registers."""
        if not is_narrow(device):
            return self
        parts = {"warps_m": max(1, self.m // NARROW_ROWS), "warps_n": max(1, self.n // (2 * device.subgroup_size))}
        return dataclasses.replace(self, **parts)


X_UNIT = 16  # rows and columns of a tile of float16 activations, where fragments are read from memory
LANES = 32  # subgroup size of the measured device
LONG_ROW = 192  # blocks per row from which on two subgroups share it
LONG_DENSE_ROW = 1024  # blocks per row from which on four subgroups share a row in the order of lanes
MANY_ROWS = 12288  # rows of a matrix from which on a workgroup takes more of them
HUGE_ROWS = 65536  # rows of an output matrix
LONG_CONTEXT = 4096  # positions
NARROW_MATRIX = 256  # rows of a dense matrix, as of a router, up to which each is a workgroup's: there are few
SHORT_ROW = 64  # maximum blocks per row for which storing int8 is faster than a separate dispatch
PROCESSORS = 128  # concurrent workgroups of a large device
ADDED_ALONE = (
    1 << 21
)  # values of a product from which another dispatch adds the residual stream to them; 0: never does one
CROWD = 16 * PROCESSORS  # query heads of all tokens from which on a workgroup reads all positions of its heads


NARROW = 16  # largest subgroups that have few registers for each lane's part of a tile
NARROW_ROWS = 16  # of a tile of such a subgroup, with twice as many vectors as it has lanes: 32 sums of each lane


def is_narrow(device: Device) -> bool:
    """Return True for Intel's GPUs: subgroups of up to 16 lanes with 128 registers, units of up to 8 rows."""
    shapes = device.description.cooperative_matrices
    return device.subgroup_size <= NARROW and not any(shape.m > NARROW_ROWS // 2 for shape in shapes)


def vector_shape(
    device: Device,
    n_rows: int,
    row_blocks: int,
    n_tokens: int,
    format: Format,
    paired: bool = False,
    crowded: bool = False,
    int8: bool = True,
) -> VectorShape:
    """Return the shape for a product of ``n_rows`` rows of ``row_blocks`` blocks with ``n_tokens`` vectors.

    ``crowded``: there are many passes, so that each needs few workgroups. ``int8``: activations are quantized.
    Within a few percent of the best shape measured on an H200 for Q4_0, Q4_K, Q6_K and Q8_0, and for one vector of
    floats within a quarter of the best measured on an H100 for Q4_0, Q4_K and Q6_K. Several vectors of floats take two
    rows: with four a lane needs all 256 registers of AMD's GPUs, and Mesa's compiler estimates a third more cycles.
    """
    if format.in_lanes and n_tokens <= 2 and not crowded:
        shape = _shape_in_lanes(n_rows, row_blocks, n_tokens)
    elif format.dense:
        shape = _dense_shape(device, n_rows if not paired else MANY_ROWS, row_blocks, n_tokens, crowded)
    elif not int8 and n_tokens == 1:
        shape = _float_shape(n_rows, row_blocks)
    elif row_blocks >= LONG_ROW:
        shape = VectorShape(64, (4, 2, 1)[(n_tokens > 1) + (n_tokens > 4)], 4, prefetch=True)
    elif n_tokens > 4:
        shape = VectorShape(32, 4, 2)
    elif n_rows >= MANY_ROWS or paired:
        shape = VectorShape(32, 8, 4, prefetch=n_tokens > 1)
    elif n_tokens > 1:
        shape = VectorShape(32, 8, 2)
    elif len(format.words) > 1 and row_blocks > LANES:
        shape = VectorShape(64, 4, 4)
    else:
        shape = VectorShape(32, 8, 2, 2 if row_blocks > LANES else 1)
    if not (int8 or format.dense) and n_tokens > 1:
        shape = dataclasses.replace(shape, rows=2)
    lanes = max(shape.lanes, device.subgroup_size)
    return dataclasses.replace(shape, lanes=lanes, groups=max(1, shape.invocations // lanes))


def _shape_in_lanes(n_rows: int, row_blocks: int, n_tokens: int) -> VectorShape:
    """Return the shape for one or two vectors and a matrix in the order of lanes.

    On an H200 within 2 % of the best of 200 for one vector.
    """
    if n_rows < MANY_ROWS or row_blocks >= LONG_DENSE_ROW:
        return VectorShape(128, 1, 4 * n_tokens, prefetch=True)
    return VectorShape(32, 8, 4 * n_tokens, prefetch=True)


def _float_shape(n_rows: int, row_blocks: int) -> VectorShape:
    """Return the shape for one vector of floats: workgroups of 256 invocations took up to five times as long."""
    if row_blocks >= LONG_ROW:
        return VectorShape(64, 2, 4, prefetch=True)
    if n_rows >= MANY_ROWS:
        return VectorShape(32, 4, 4) if row_blocks <= SHORT_ROW else VectorShape(64, 2, 4)
    return VectorShape(64, 2 if row_blocks <= SHORT_ROW else 4, 4)


def of_whole_blocks(device: Device, shape: VectorShape, row_blocks: int) -> VectorShape | None:
    """Return the shape with enough groups for whole blocks of 32 results of two matrices; None if they are too many."""
    if row_blocks > SHORT_ROW:
        return None
    while shape.groups * (shape.rows // 2) % 32:
        shape = dataclasses.replace(shape, groups=2 * shape.groups)
    return shape if shape.invocations <= min(512, device.description.max_threads_per_threadgroup) else None


def _dense_shape(device: Device, n_rows: int, row_blocks: int, n_tokens: int, crowded: bool) -> VectorShape:
    lanes = device.subgroup_size
    if crowded:
        return VectorShape(lanes, max(1, 256 // lanes), 2)
    while 2 * lanes <= min(256, row_blocks // 2):
        lanes *= 2
    unroll = 2 if lanes < row_blocks and n_tokens <= 2 else 1
    if n_rows <= NARROW_MATRIX:
        return VectorShape(lanes, 1, 1, unroll)
    return VectorShape(lanes, max(1, 128 // lanes), 4 if n_tokens <= 4 else 2, unroll)


TILES = [TileShape(128, 128, 2, 2), TileShape(64, 128, 2, 2), TileShape(64, 64, 2, 2), TileShape(64, 32, 4, 1)]
FEW_TILES = [(TileShape(64, 16, 2, 1), 512), (TileShape(128, 32, 4, 1), 256), (TileShape(64, 64, 2, 2), 256)]
"""Tiles for up to 16, 32 and 64 vectors, with the maximum workgroups of a product with split columns."""
SPLIT_TILES = [TileShape(128, 128, 4, 2), TileShape(64, 128, 2, 2)]
MOST_SPLIT_TILES = 1024  # maximum tiles of a product whose columns are split
LEAST_SPLIT_TOKENS = 65  # vectors from which on large tiles with split columns are faster than many small ones


def tile_shape(device: Device, n_rows: int, n_columns: int, n_tokens: int, paired: bool = False) -> TileShape:
    """Return the shape for a product of ``n_rows`` rows with ``n_tokens`` vectors on matrix units.

    The largest tiles that are not mostly empty and numerous enough for the device, if need be with split columns.
    ``paired``: fragments of two matrices alternate in a tile. Their columns are not split: results of such tiles were
    not compared on a device.
    """
    shape = _whole_tiles(device, n_rows, n_tokens)
    if n_tokens >= LEAST_SPLIT_TOKENS and (shape.m, shape.n) != (TILES[0].m, TILES[0].n) and not paired:
        shape = _split_tiles(device, n_rows, n_columns, n_tokens) or shape
    if paired and not is_narrow(device) and shape.m // shape.warps_m % 32:
        shape = dataclasses.replace(shape, warps_m=shape.warps_m // 2)
    return shape


def _whole_tiles(device: Device, n_rows: int, n_tokens: int) -> TileShape:
    for shape in (tile.on(device) for tile in TILES):
        n_tiles = -(-n_rows // shape.m) * -(-n_tokens // shape.n)
        enough = shape.n < 2 * n_tokens and 8 * n_tiles >= 7 * PROCESSORS
        if enough and shape.fits(device):
            return shape
    return TileShape(32, 32, 2, 1).on(device)


def _split_tiles(device: Device, n_rows: int, n_columns: int, n_tokens: int) -> TileShape | None:
    """Return large tiles whose split columns occupy the device, or at least a quarter of it."""
    best = None
    for shape in (tile.on(device) for tile in SPLIT_TILES):
        n_tiles = -(-n_rows // shape.m) * -(-n_tokens // shape.n)
        splits = _splits(n_tiles, n_columns, PROCESSORS)
        if not shape.fits(device) or 4 * n_tiles * splits < PROCESSORS:
            continue
        best = dataclasses.replace(shape, splits=splits)
        if 8 * n_tiles * splits >= 7 * PROCESSORS:
            break
    return best


def _splits(n_tiles: int, n_columns: int, n_workgroups: int) -> int:
    """Return the parts of the columns, a power of two, for up to ``n_workgroups`` workgroups."""
    most = min(n_columns // 512, 8 if n_columns >= 8192 else 4, n_workgroups // n_tiles)
    return 1 << max(most, 1).bit_length() - 1


@dataclass(frozen=True)
class FewShape:
    """Work division of shaders/matmul_few.comp: subgroups along rows and columns, 16 rows and columns of each."""

    parts_m: int
    parts_k: int
    fragments_m: int
    k: int = 64
    depth: int = 1  # columns in flight, in multiples of k
    early: bool = True

    def shared_bytes(self, unit: int) -> int:
        region = max(self.fragments_m * unit * (self.k // 8 + 1), unit * unit // 2)
        return 16 * self.parts_m * self.parts_k * region + 1024


@dataclass(frozen=True)
class LanesShape:
    """Work division of shaders/matmul_lanes.comp: subgroups along rows and columns, fragments and steps of each."""

    parts_m: int
    parts_k: int
    fragments_m: int
    fragments_n: int
    depth: int = 1  # steps in flight
    x_first: bool = False  # all vectors of four columns are loaded before their products

    @property
    def rows(self) -> int:
        """Rows of a workgroup, of both matrices together."""
        return LANES_UNIT * self.parts_m * self.fragments_m


LANES_UNIT = 16  # rows and columns of a fragment of shaders/matmul_lanes.comp
LANES_FRAGMENTS = {
    1: [(1, 1), (2, 1)],
    2: [(2, 2), (1, 2)],
    3: [(2, 3), (1, 3), (2, 2), (1, 2), (1, 1)],
    4: [(2, 4), (1, 4), (2, 2), (1, 2), (1, 1)],
    6: [(2, 6), (2, 4), (1, 4), (2, 2), (1, 2), (1, 1)],
    8: [(2, 8), (2, 4), (1, 4), (2, 2), (1, 2), (1, 1)],
}
"""Fragments of a subgroup along rows and vectors, the best first, by the maximum number of fragments of vectors."""
ONE_WAVE = {2: LanesShape(7, 2, 2, 2), 3: LanesShape(7, 2, 2, 3), 4: LanesShape(4, 2, 4, 4, x_first=True)}
"""The best shapes for two matrices by fragments of vectors, where each processor has about one workgroup."""
SHORT_STEPS = 16  # steps of a row up to which subgroups do not divide the columns of a prompt's product
MOST_IDLE = 0.2  # share of processors that the last workgroups of a prompt's product may leave idle
FEW_TILES_OF_X = 16  # fragments of vectors up to which more subgroups divide long rows of the largest products
NARROW_SUMS = MatrixShape(16, 8, 16, "float16", "float32")


def lanes_width(device: Device) -> int:
    """Return the vectors of a fragment of sums of shaders/matmul_lanes.comp: narrow ones take fewer registers."""
    return 8 if NARROW_SUMS in device.description.cooperative_matrices else LANES_UNIT


@functools.lru_cache(1024)
def lanes_shape(n_rows: int, n_columns: int, n_tokens: int, paired: bool, format: Format, width: int = 8) -> LanesShape:
    """Return the shape for a product of ``n_rows`` rows, of both matrices if ``paired``, with ``n_tokens`` vectors.

    The largest workgroups that are numerous enough for the device and have enough columns for each subgroup. On an H200
    within a few percent of the best measured for Q4_0, Q4_K and Q6_K, 4 to 512 vectors, and for F16 and Q8_0 with more
    than 128. ``width``: as of lanes_width.
    """
    n_tiles, n_steps = -(-n_tokens // LANES_UNIT), n_columns // LANES_STEP
    wave = ONE_WAVE.get(n_tiles) if paired and n_steps > SHORT_STEPS and not format.dense else None
    if wave and 7 * PROCESSORS <= 8 * -(-n_rows // wave.rows) <= 8 * PROCESSORS + 32:
        return wave
    for shape in _lanes_shapes(n_rows, n_steps, n_tiles, paired, format, width):
        n_workgroups = -(-n_rows // shape.rows) * -(-n_tiles // shape.fragments_n)
        least = shape.fragments_m * shape.fragments_n // 2  # steps of a subgroup
        least = max(1, min(4, least) if n_tiles <= shape.fragments_n else least)
        n_waves = -(-n_workgroups // PROCESSORS)
        idle = 1 - n_workgroups / (n_waves * PROCESSORS) if n_tiles > FEW_TILES_OF_X else 0
        if 8 * n_workgroups >= 7 * PROCESSORS and n_steps >= least * shape.parts_k and idle <= MOST_IDLE:
            return shape
    parts_k = 1 << min(16, n_steps).bit_length() - 1
    return LanesShape(1, parts_k, 2 if paired else 1, 2 if n_tiles == 2 else 1)


def _lanes_shapes(
    n_rows: int, n_steps: int, n_tiles: int, paired: bool, format: Format, width: int
) -> Iterator[LanesShape]:
    """Yield the shapes that may be best, the best first if it has enough workgroups."""
    if format.dense and n_tiles > 4:
        for fragments_m in (2,) if paired else (4, 2):
            yield LanesShape(4, 2, fragments_m, 4, x_first=True)
            yield LanesShape(2, 4, fragments_m, 4, x_first=True)
    x_first = format.words[0] == 8 and n_tiles > 6
    if n_tiles == 1 and n_rows >= MANY_ROWS:
        yield LanesShape(1, max(1, min(8, n_steps // 4)), 2, 1) if paired else LanesShape(2, 4, 2, 1, 2)
    if n_tiles > 8 and n_steps <= SHORT_STEPS and n_rows < HUGE_ROWS:
        yield LanesShape(8, 1, 4, 4) if format.type == GGMLType.Q4_0 else LanesShape(8, 1, 2, 8, 1, x_first)
    is_long = n_steps > SHORT_STEPS or (n_tiles <= 8 and not paired)
    if 6 < n_tiles <= FEW_TILES_OF_X and (paired or n_rows >= HUGE_ROWS) and is_long:
        yield LanesShape(2, 4, 2, 8, 1, x_first)
    most = next((most for most in LANES_FRAGMENTS if n_tiles <= most), 8)
    for fragments_m, fragments_n in LANES_FRAGMENTS[most]:
        area = fragments_m * fragments_n
        for parts_m in _row_parts(n_rows, most):
            parts_k = (8 if area >= 6 else 16) // parts_m
            pays = width < LANES_UNIT and n_tiles <= fragments_n and n_steps >= 8 * parts_k  # where measured
            ahead = area <= 2 or (area in (6, 8) and fragments_m == 2 and pays)
            if fragments_m > 1 or not paired:
                depth = 2 if ahead and not paired else 1
                yield LanesShape(parts_m, parts_k, fragments_m, fragments_n, depth, x_first)


def _row_parts(n_rows: int, most: int) -> tuple[int, ...]:
    """Return the subgroups along rows, the best first, for up to ``most`` fragments of vectors."""
    if most == 1:
        return (1,)
    if most in (3, 4, 6) and n_rows >= HUGE_ROWS:
        return (2,)
    return (2, 1) if most == 6 else (4, 2, 1)


def expert_lanes(n_rows: int, n_columns: int, n_tokens: int, paired: bool) -> LanesShape:
    """Return the shape for products of experts with ``n_tokens`` vectors each on average.

    Tiles are so wide that few experts have more vectors, since each tile converts the weights anew; what a tile leaves
    empty is not multiplied. On an H100 with 32 vectors the best of 17 shapes: of Qwen3-30B-A3B's gate and up 182
    microseconds, 264 with two fragments along rows; of down 128, 166 with those and four along vectors.
    """
    many = n_tokens > 20
    fragments_n = 1 if n_tokens <= 8 else 4 if many and paired else 2
    fragments_m = 4 if many else 2
    parts_m = 4
    while parts_m > 1 and n_rows < LANES_UNIT * fragments_m * parts_m:
        parts_m //= 2
    parts_k = 1 << min(8 // parts_m, max(1, n_columns // LANES_STEP)).bit_length() - 1
    return LanesShape(parts_m, parts_k, fragments_m, fragments_n)


def few_shape(device: Device, n_rows: int, n_columns: int, n_tokens: int, paired: bool) -> FewShape | TileShape | None:
    """Return the shape for a product with ``n_tokens`` vectors; None if larger tiles of x in rows are faster.

    Tiles are faster for the most work per vector: pairs of matrices, and long rows with split columns.
    """
    if tile := _few_tiles(device, n_rows, n_columns, n_tokens, paired):
        return tile
    if paired:
        shape = FewShape(2, 2, 2, early=False) if n_tokens <= 16 else FewShape(1, 4, 4, 32)
    elif n_rows >= MANY_ROWS:
        if n_tokens > 16:
            return None
        shape = FewShape(2, 2, 1, early=False)
    elif n_rows <= 2048 and n_columns >= 8192:
        shape = FewShape(1, 16, 1)
    else:
        shape = FewShape(1, 8, 1 if n_tokens <= 32 or n_rows < 4096 else 2)
    most = device.description.max_threads_per_threadgroup // device.subgroup_size // shape.parts_m
    shape = dataclasses.replace(shape, parts_k=max(1, min(shape.parts_k, most)))
    return dataclasses.replace(shape, k=32) if n_columns % shape.k else shape


def _few_tiles(device: Device, n_rows: int, n_columns: int, n_tokens: int, paired: bool) -> TileShape | None:
    pays = (paired or n_columns >= 8192) and (n_tokens > 16 or min(n_rows, n_columns) >= 4096)
    if is_narrow(device):  # there subgroups that divide the columns spill registers if each has more than 16 vectors
        pays = paired or n_tokens > 16
    if not pays:
        return None
    tile, most = FEW_TILES[(n_tokens > 16) + (n_tokens > 32)]
    tile = tile.on(device)
    if not tile.fits(device):
        return None
    n_tiles = -(-n_rows * (2 if paired else 1) // tile.m)
    return dataclasses.replace(tile, splits=_splits(n_tiles, n_columns, most))


class TileNumbers(Enum):
    """The numbers that tiles without matrix units multiply; values are the kernels' names."""

    FLOAT = "matmul"
    HALF = "matmul_half"
    INT8 = "matmul_int8"


@dataclass(frozen=True)
class BlockShape:
    """Work division of shaders/matmul.comp and matmul_int8.comp: invocations, and the rows and vectors of each."""

    rows: int
    vectors: int
    threads_m: int = 16
    threads_n: int = 8
    splits: int = 1  # workgroups that divide the columns
    depth: int = 16  # columns at a time (matmul.comp)
    step: int = 16  # columns of its unrolled loop, and of its sums in float16

    @property
    def sums(self) -> int:
        """Results of an invocation."""
        return self.rows * self.vectors

    @property
    def m(self) -> int:
        """Rows of a workgroup."""
        return self.threads_m * self.rows

    @property
    def n(self) -> int:
        """Vectors of a workgroup."""
        return self.threads_n * self.vectors

    @property
    def threads(self) -> int:
        return self.threads_m * self.threads_n

    def within(self, shared_bytes: int, numbers: TileNumbers) -> BlockShape:
        """Return the shape with so few columns of floats at a time, 16 or more, that they fit shared memory."""
        size, depth = 2 if numbers == TileNumbers.HALF else 4, self.depth
        while depth > 16 and size * depth * (self.m + self.n) >= shared_bytes:
            depth //= 2
        return dataclasses.replace(self, depth=depth, step=min(self.step, depth))


FLOAT_BLOCKS = [BlockShape(8, 8), BlockShape(8, 4, depth=32, step=1), BlockShape(4, 4), BlockShape(4, 4, 32, 4)]
HALF_BLOCKS = [
    *(BlockShape(8, 8, 16, 16, depth=64, step=64), BlockShape(4, 8, 32, 8, depth=64, step=64)),
    *(BlockShape(8, 8, depth=32), BlockShape(8, 4, depth=32), BlockShape(4, 4), BlockShape(4, 4, 32, 4)),
]
INT8_BLOCKS = [BlockShape(4, 8), BlockShape(4, 4), BlockShape(2, 4), BlockShape(4, 2, 32, 8), BlockShape(2, 2)]
"""The largest first; with a depth of 16 all fit into the least shared memory that Vulkan guarantees, the last also into
128 invocations."""
BLOCKS = {TileNumbers.FLOAT: FLOAT_BLOCKS, TileNumbers.HALF: HALF_BLOCKS, TileNumbers.INT8: INT8_BLOCKS}
SMALL_SUMS = 16  # results of an invocation in float32 with which more workgroups share a processor
HALF_THREADS = 256  # invocations of tiles of float16 of which one workgroup for each processor is enough
LEAST_PART = 512  # columns of a workgroup with the largest tiles of floats: with fewer they took three times as long


def block_shape(
    n_rows: int,
    n_columns: int,
    n_tokens: int,
    numbers: TileNumbers,
    max_threads: int = 256,
    shared_bytes: int = 32768,
) -> BlockShape | None:
    """Return the shape for a product of ``n_rows`` rows with ``n_tokens`` vectors without matrix units.

    The largest tiles that are not mostly empty and, if need be with split columns, numerous enough for a large device;
    None if even small ones are too few to occupy it. ``max_threads``, ``shared_bytes``: the device's limits.

    On an H200 within a third of the best of 9 shapes and up to 32 parts for Q4_0 and Q4_K, 16 to 512 vectors; in
    float32 on an H100 within a tenth of the best of 11 shapes and 7 depths for 64 and 512 vectors; in float16 on an
    H200 within a tenth of the best of 30 shapes and up to 6 numbers of parts for 64 and 512.
    """
    int8, blocks = numbers == TileNumbers.INT8, BLOCKS[numbers]
    for shape in blocks:
        n_tiles = -(-n_rows // shape.m) * -(-n_tokens // shape.n)
        splits = _block_splits(n_tiles, n_columns // (512 if int8 else 128), _crowd(shape, numbers))
        fits = shape.threads <= max_threads and shape.n < 2 * n_tokens
        if not int8 and shape is blocks[0] and n_tokens <= shape.n and n_columns < LEAST_PART * splits:
            continue
        if fits and 8 * n_tiles * splits >= 7 * PROCESSORS:
            return dataclasses.replace(shape.within(shared_bytes, numbers), splits=splits)
    return None


def _crowd(shape: BlockShape, numbers: TileNumbers) -> int:
    """Return the workgroups for each processor of a product whose columns are split."""
    if numbers == TileNumbers.HALF and shape.threads >= HALF_THREADS:
        return 1
    return 4 if numbers != TileNumbers.INT8 and shape.sums <= SMALL_SUMS else 2


def _block_splits(n_tiles: int, most: int, n_each: int) -> int:
    """Return the parts of the columns, a power of two up to ``most``, with ``n_each`` workgroups for each processor."""
    return 1 << max(min(most, n_each * PROCESSORS // n_tiles, 32), 1).bit_length() - 1


def expert_blocks(n_tokens: int, numbers: TileNumbers, shared_bytes: int = 32768) -> BlockShape:
    """Return the shape for products of experts with ``n_tokens`` vectors each on average: tiles that these fill."""
    shapes = [shape for shape in BLOCKS[numbers] if shape.threads <= 128]
    return next((shape for shape in shapes if shape.n <= n_tokens), shapes[-1]).within(shared_bytes, numbers)


def expert_shape(device: Device, n_tokens: int) -> TileShape:
    """Return the shape for products of experts with ``n_tokens`` vectors each on average.

    The largest tiles that these fill, since the rest of a tile would be wasted. Many experts give enough tiles.
    """
    shapes = TILES[1:]
    limit = device.threadgroup_memory_bytes
    fitting = (shape for shape in shapes if shape.n <= n_tokens and shape.shared_bytes() <= limit)
    return next(fitting, shapes[-1])


@dataclass(frozen=True)
class DecodeShape:
    """Work division of shaders/attention_decode.comp over a token's positions."""

    threads: int  # invocations per workgroup
    lanes: int  # invocations per position
    unroll: int  # positions loaded at a time
    rounds: int  # minimum loads per part
    heads: int  # query heads per workgroup
    max_parts: int  # maximum workgroups per head
    late: bool = False  # request the next positions only when the registers of the last are free
    units: bool = False  # matrix units multiply: each subgroup has 16 positions at a time

    @property
    def chunk(self) -> int:
        """Positions processed by a workgroup at a time."""
        if self.units:
            return self.threads // LANES * LANES_UNIT
        return self.threads // self.lanes * self.unroll


def fewer_threads(device: Device, threads: int, rounds: int) -> tuple[int, int]:
    """Return the invocations of a small workgroup and the rounds in which it has as many positions in a part."""
    few = min(threads, max(device.subgroup_size, 64))
    return few, rounds * threads // few


def decode_shape(device: Device, dim: int, n_head: int, n_head_kv: int, n_ctx: int, n_tokens: int = 1) -> DecodeShape:
    """Return the shape for tokens with heads of up to ``dim`` values.

    Each query head has its own workgroups; if contexts may be long, two heads with the same keys share them: on an H200
    that costs 0.6 of 5.5 microseconds at depth 60 and saves 2.7 of 21 at depth 8192. With many tokens there are enough
    workgroups, and each key is read once for up to four heads, of wide heads for two (17.1 of 21.0 microseconds for 16
    tokens of Llama 8B at depth 250). For a crowd, small workgroups that load many positions ahead are fastest, without
    parts to merge: 38.9 of 50.3 for 64 tokens.
    """
    lanes = 1
    while lanes < min(-(-dim // 8), device.subgroup_size):
        lanes *= 2
    if n_tokens * n_head >= CROWD and dim <= 8 * lanes:
        threads = max(device.subgroup_size, 64)
        return DecodeShape(threads, lanes, 8 if dim > 64 else 4, 2, min(n_head // n_head_kv, 4), 1, late=True)
    busy = n_tokens * n_head >= 4 * PROCESSORS
    if busy and dim > 64 and device.subgroup_size <= 64:
        unroll, parts = (8, 1) if n_tokens * n_head >= CROWD // 2 else (4, 4)
        return DecodeShape(64, lanes, unroll, 2, min(n_head // n_head_kv, 2), parts)
    most = 256 if not busy else 128 if n_tokens * n_head < 8 * PROCESSORS else 64
    threads = max(device.subgroup_size, min(most, device.description.max_threads_per_threadgroup))
    heads = min(n_head // n_head_kv, 2 if n_ctx > LONG_CONTEXT or n_tokens * n_head >= 2 * PROCESSORS else 1)
    if busy:
        heads = min(n_head // n_head_kv, 4)
    fewest = 2 if n_tokens > 1 and not busy else 4
    max_parts = min(32, max(fewest, 2 * PROCESSORS * heads // (n_head * n_tokens)))
    rounds = 2
    if device.description.software:  # invocations take turns, also those that have no position
        threads, rounds = fewer_threads(device, threads, rounds)
    return DecodeShape(threads, lanes, 4, rounds, heads, max_parts)


UNITS_PART = 512  # positions from which on workgroups of shaders/attention_units.glsl share those of a head


def units_shape(per_key: int, n_groups: int, n_tokens: int) -> DecodeShape | None:
    """Return the shape on matrix units for tokens with ``n_groups`` heads of keys, ``per_key`` heads of queries each.

    None where they were not measured to be faster. On an H200 64 tokens of Llama 8B at depth 130, 250 and 380 take 19,
    26 and 34 microseconds, 27, 39 and 53 without matrix units; at depth 250 128 tokens 48 and 72, 32 17 and 28, 16 14
    and 17. Workgroups are as large as leaves some 1,024 subgroups in all.
    """
    n_workgroups = n_tokens * n_groups
    if n_workgroups < PROCESSORS:
        return None
    threads = 64 if n_workgroups >= 4 * PROCESSORS else 128 if n_workgroups >= 2 * PROCESSORS else 256
    shape = DecodeShape(threads, 1, 1, 1, per_key, 1, units=True)
    if threads == 64:
        return shape
    return dataclasses.replace(shape, rounds=UNITS_PART // shape.chunk, max_parts=4)


@dataclass(frozen=True)
class AttentionShape:
    """Work division of shaders/attention_cooperative.comp."""

    subgroups: int  # subgroups of ``unit`` rows each
    columns: int  # positions at a time

    def shared_bytes(self, k_dim: int, v_dim: int, unit: int) -> int:
        rows = self.subgroups * unit
        tile = max(self.columns * (k_dim + v_dim + 16), rows * (k_dim + 8))
        return 2 * tile + rows * (self.columns + 8) * 6


@dataclass(frozen=True)
class LanesAttentionShape:
    """Work division of shaders/attention_lanes.comp."""

    subgroups: int
    row_tiles: int  # of 16 rows of a subgroup
    columns: int  # positions at a time
    fixed: bool = False  # a variant of the shader has this shape as constants of its text, for float16 caches

    @property
    def rows(self) -> int:
        return self.subgroups * self.row_tiles * LANES_UNIT

    def shared_bytes(self, k_dim: int, v_dim: int) -> int:
        """Return the bytes of keys and values in shared memory."""
        k_words, v_words = k_dim // 8, v_dim // 8
        return 16 * self.columns * (k_words + (12 - k_words % 8) % 8 + v_words + (9 - v_words % 8) % 8)

    def kernel(self, name: str, dim: int) -> str:
        return f"{name}_{dim}_{self.subgroups}_{self.row_tiles}_{self.columns}" if self.fixed else name


LANES_ATTENTION = {
    (64, 64): LanesAttentionShape(4, 1, 64),
    (128, 128): LanesAttentionShape(8, 1, 64, fixed=True),
}
"""Shapes by the dimensions of keys and values, where shaders/attention_lanes.comp was measured to be faster.

On an H200 512 tokens of Llama 1B at depth 4,096 took 118 microseconds (170 before), 19 at depth 0 (25); other shapes
124 to 394 and 20 to 32. Heads of 128 values took 649 or more (342 before), 194 with one shape as constants of
the text, 366 or more with others.
"""


def attention_shape(device: Device, k_dim: int, v_dim: int, unit: int) -> AttentionShape | None:
    """Return the shape for a head dimension and fragments of ``unit`` rows and columns; None if memory is too small.

    On an H200 the first choice took 25 microseconds for 512 tokens of Llama 1B (43 of 8B), 29 with 64 columns, and 33
    (69) with half as many subgroups.
    """
    shapes = (AttentionShape(4, 32), AttentionShape(2, 32))
    fitting = (shape for shape in shapes if shape.shared_bytes(k_dim, v_dim, unit) <= device.threadgroup_memory_bytes)
    return next(fitting, None)
