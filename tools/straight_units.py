"""Products of shaders/persistent.comp as straight-line code: the registers and the code of units of weights.

Each unit of weights (a row's part of a subgroup) has registers with names of its own. The same code as loops over
arrays, which the compiler of NVIDIA's driver unrolls, is larger and slower: see bench/notes/experiments.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pumice_vulkan.persistent.division import Shape
from tools.rolled_quads import Divided, sums

BATCH = 8  # sums over the lanes that are made together


@dataclass(frozen=True)
class Matrix(Divided):
    """A matrix of a layer, or the output's; ``unit``: its first unit in a layer; ``first``: row in ``partial``."""

    place: str
    six: bool
    unit: int
    first: str = "0u"
    stride: str = "STRIDE_X"

    def block(self, i: str) -> str:
        """Return the number of this lane's block in the subgroup's row ``i``."""
        row = f"min({self.slot} * {self.n}u + {i}, {self.of_group - 1}u)"
        return f"(min(wg * {self.of_group}u + {row}, {self.n_rows - 1}u) * {self.blocks}u + {self.lane})"

    @property
    def divides(self) -> bool:
        return self.slots * self.n == self.of_group

    def load(self, unit: int, row: str) -> str:
        """Return the request of a row's unit for the registers of ``unit``."""
        place, total = f"({self.place} & PLACE)", self.total
        number = f"({self.name}_block + {row} * {self.blocks}u)" if self.divides else self.block(row)
        words = f"(4u * ({place} + {total}u){f' + {2 * total}u' if self.six else ''})"
        code = f"w{unit} = a4[{place} + {number}]; s{unit} = uint(a_halves[2u * {words} + {number}]);"
        if self.six:
            code += f" h{unit} = a2[2u * ({place} + {total}u) + {number}];"
            code += f" e{unit} = a1[{words} + {total // 2}u + {number} / 8u];"
        return code

    def product(self, unit: int) -> str:
        rest = f"h{unit}, s{unit}, e{unit}" if self.six else f"uvec2(0u), s{unit}, 0u"
        return f"product({'Q6_K' if self.six else 'Q4_0'}, w{unit}, {rest})"


class Units:
    """The units of a layer and of the output, for a shape with blocks of one scale, in one buffer of weights."""

    def __init__(self, shape: Shape) -> None:
        assert shape.type == "q4_0"
        assert not shape.others
        self.shape = shape
        query, key = shape.heads * shape.dim, shape.kv_heads * shape.dim
        rows = [
            ("q", query, shape.width, "0u", "STRIDE_Q"),
            ("k", key, shape.width, "OF_Q", "STRIDE_Q"),
            ("v", key, shape.width, "OF_Q + OF_K", "STRIDE_Q"),
            ("o", shape.width, query, "0u", "STRIDE_X"),
            ("gate", shape.ffn, shape.width, "0u", "STRIDE_G"),
            ("up", shape.ffn, shape.width, "OF_G", "STRIDE_G"),
            ("down", shape.width, shape.ffn, "0u", "STRIDE_X"),
        ]
        self.matrices: list[Matrix] = []
        for name, n_rows, n_columns, first, stride in rows:
            unit = sum(matrix.n for matrix in self.matrices)
            self.matrices.append(Matrix(name, n_rows, n_columns, shape, f"here_{name}", False, unit, first, stride))
        self.n = sum(matrix.n for matrix in self.matrices)
        self.output = Matrix("output", shape.vocabulary, shape.width, shape, "output_place", shape.output == "q6_k", 0)
        assert shape.ahead <= self.n

    def of(self, unit: int) -> Matrix:
        return next(matrix for matrix in self.matrices if unit < matrix.unit + matrix.n)

    def request(self, unit: int) -> str:
        """Return the request of a unit of this layer, or of what follows: the next layer, or the output."""
        wrapped = unit >= self.n
        own = unit % self.n
        matrix = self.of(own)
        row = f"{own - matrix.unit}u"
        if not wrapped:
            return matrix.load(own, row)
        load = matrix.load(own, row).replace("here_", "there_")
        return f"if (last) {{ {self.output.load(own, f'{own}u')} }} else {{ {load} }}"

    @cached_property
    def text(self) -> str:
        """The GLSL of the family."""
        return "\n".join(
            [
                f"// {self.n} units a layer, {self.shape.ahead} ahead. Made by tools/straight_line.py.",
                *self.registers(),
                *self.first(),
                *(line for matrix in self.matrices for line in self.multiply(matrix)),
                *self.multiply_output(),
                "",
            ]
        )

    def registers(self) -> Iterator[str]:
        for unit in range(self.n):
            more = f" uvec2 h{unit} = uvec2(0u); uint e{unit} = 0u;" if unit < self.shape.ahead else ""
            yield f"uvec4 w{unit} = uvec4(0u); uint s{unit} = 0u;{more}"
        for matrix in self.matrices:
            yield f"uint here_{matrix.name}, there_{matrix.name}, {matrix.name}_block;"
        yield "uint output_place;"

    def first(self) -> Iterator[str]:
        """Yield the functions that begin a token and a layer."""
        yield "void load_places(uint layer) {"
        for index, matrix in enumerate(self.matrices):
            yield f"    there_{matrix.name} = places[places_at + TABLE_ROW * layer + {index}u];"
        yield "}"
        yield "void move_on() {"
        for matrix in self.matrices:
            yield f"    here_{matrix.name} = there_{matrix.name};"
        yield "}"
        yield "void load_first() {"
        yield "    output_place = places[places_at + TABLE_ROW * LAYERS];"
        for matrix in self.matrices:
            yield f"    {matrix.name}_block = {matrix.block('0u')};"
        for unit in range(self.shape.ahead):
            yield f"    {self.request(unit)}"
        yield "}"
        yield from self.again()

    def again(self) -> Iterator[str]:
        """Yield the function that requests again what is ahead after attention, which frees its registers before.

        A sum that the compiler does not know to be zero keeps it from taking the first request.
        """
        first = next(matrix.unit for matrix in self.matrices if matrix.name == "o")
        units = range(first, first + self.shape.ahead)
        yield "void ask_again() {"
        for name in dict.fromkeys(self.of(unit).name for unit in units):
            yield f"    {name}_block += position >> 30u;"
        for unit in units:
            yield f"    {self.request(unit)}"
        yield "}"

    def multiply(self, matrix: Matrix) -> Iterator[str]:
        """Yield the function that multiplies a matrix; behind each unit it requests the one that is ahead."""
        yield f"void multiply_{matrix.name}(bool last) {{"
        for first in range(0, matrix.n, BATCH):
            units = range(matrix.unit + first, matrix.unit + min(first + BATCH, matrix.n))
            steps = [(matrix.product(unit), self.request(unit + self.shape.ahead)) for unit in units]
            yield from _batch(matrix, steps, f"{first}u", matrix.n - first)
        yield "}"

    def multiply_output(self) -> Iterator[str]:
        output, ahead = self.output, self.shape.ahead
        assert ahead % BATCH == 0
        yield "void multiply_output() {"
        yield f"for (uint r = 0u; r < {output.n}u; r += {ahead}u) {{"
        for first in range(0, ahead, BATCH):
            steps = [
                (output.product(unit), output.load(unit, f"min(r + {unit + ahead}u, {output.n - 1}u)"))
                for unit in range(first, first + BATCH)
            ]
            yield from _batch(output, steps, f"r + {first}u", None)
        yield "}"
        yield "}"


def _batch(matrix: Matrix, steps: Sequence[tuple[str, str]], first: str, n: int | None) -> Iterator[str]:
    """Yield the products of some units, and their sums over all lanes; ``n``: how many are real, None if it varies."""
    lanes, size = matrix.shape.lanes, 1 << (len(steps) - 1).bit_length()
    yield "{"
    for i, (product, request) in enumerate(steps):
        yield f"float t{i} = {product}; {request}"
    for i in range(len(steps), size):
        yield f"float t{i} = 0.0;"
    yield from sums(lanes, size)
    share, stride = lanes // size, "STRIDE_L" if n is None else matrix.stride
    real = f"{first} + i < {matrix.n}u" if n is None else f"i < {min(n, len(steps))}u"
    yield f"const uint slot = warp / {matrix.chunks}u, i = lane / {share}u, row = slot * {matrix.n}u + {first} + i;"
    yield f"if (lane % {share}u == 0u && {real} && row < {matrix.of_group}u && slot < {matrix.slots}u)"
    yield f"    partial[warp % {matrix.chunks}u * {stride} + {matrix.first} + row] = t0;"
    yield "}"
