"""The products of shaders/persistent.comp as loops over quads: four units of weights with registers of their own.

For shapes whose weights are found by address. One or two sets of registers hold the quads that are asked for ahead;
a quad's products leave its set free for the quad that is one or two behind it, of the same matrix or of the next.
The loops keep the code of a layer small enough for the processors' instruction caches: bench/notes/experiments.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from pumice_vulkan.formats import BY_NAME
from pumice_vulkan.persistent.division import ADDRESS_FLAGS, FLAGS, Shape
from pumice_vulkan.persistent.pattern import MATRICES

QUAD = 4


@dataclass(frozen=True)
class Planes:
    """The planes of a type's matrix (shaders/formats.glsl), by which its units are asked for."""

    type: str

    @property
    def name(self) -> str:
        """Name of the type in the shader."""
        return self.type.upper()

    @property
    def low(self) -> int:
        """Words per block of the low bits of codes."""
        return BY_NAME[self.type].words[0]

    @property
    def high(self) -> int:
        """Words per block of the high bits."""
        return sum(BY_NAME[self.type].words[1:])

    @property
    def has_super(self) -> bool:
        return BY_NAME[self.type].scales == "SUPER"

    def load(self, unit: int, at: str, eighth: str) -> str:
        """Return the requests of a unit, whose block is ``at`` behind the pointers."""
        code = {
            2: f"w{unit}.xy = BITS(p_low, {at});",
            4: f"w{unit} = CODES(p_low, {at});",
            8: f"w{unit} = CODES(p_low, 2u * {at}); m{unit} = CODES(p_low, 2u * {at} + 1u);",
        }[self.low]
        code += {0: "", 1: f" h{unit}.x = SUPERS(p_high, {at});", 2: f" h{unit} = BITS(p_high, {at});"}[self.high]
        code += f" s{unit} = SCALES(p_scale, {at});"
        return code + (f" e{unit} = SUPERS(p_super, {eighth});" if self.has_super else "")

    def product(self, unit: int) -> str:
        if self.low == 8:
            return f"product_{self.type}(w{unit}, m{unit}, s{unit})"
        high, super = (f"h{unit}" if self.high else "uvec2(0u)"), (f"e{unit}" if self.has_super else "0u")
        return f"product({self.name}, w{unit}, {high}, s{unit}, {super})"

    def point(self, number: str, plane: Callable[[int], str]) -> str:
        """Return the assignments of the pointers into a matrix at ``at``; ``plane``: offset behind bytes of a block."""
        low, high = 4 * self.low, 4 * self.high
        lines = [f"p_low = at + {low}u * {number};"]
        if high:
            lines.append(f"p_high = at + {plane(low)} + {high}u * {number};")
        lines.append(f"p_scale = at + {plane(low + high)} + 2u * {number};")
        if self.has_super:
            lines.append(f"p_super = at + {plane(low + high + 2)} + {number} / 8u * 4u;")
        return " ".join(lines)

    def advance(self, blocks: int) -> str:
        """Return the code that moves the pointers by a multiple of eight blocks."""
        high = f" p_high += {4 * self.high * blocks}ul;" if self.high else ""
        supers = f" p_super += {blocks // 2}ul;" if self.has_super else ""
        return f"p_low += {4 * self.low * blocks}ul; p_scale += {2 * blocks}ul;{supers}{high}"


@dataclass(frozen=True)
class Divided:
    """A matrix whose rows are divided among workgroups, and a row among the lanes of subgroups."""

    name: str
    n_rows: int
    n_columns: int
    shape: Shape

    @property
    def blocks(self) -> int:
        return self.n_columns // 32

    @property
    def chunks(self) -> int:
        return self.shape.chunks(self.n_columns)

    @property
    def slots(self) -> int:
        return self.shape.threads // self.shape.lanes // self.chunks

    @property
    def of_group(self) -> int:
        return -(-self.n_rows // self.shape.groups)

    @property
    def is_padded(self) -> bool:
        """True if the last workgroups have fewer rows, or none."""
        return self.of_group * self.shape.groups != self.n_rows

    @property
    def n(self) -> int:
        """Units of a subgroup, each a row's part."""
        return -(-self.of_group // self.slots)

    @property
    def total(self) -> int:
        return self.n_rows * self.blocks

    @property
    def count(self) -> str:
        """``n`` in GLSL."""
        return f"{self.n}u"

    @property
    def last(self) -> str:
        """The number of the last unit of a subgroup, in GLSL."""
        return f"{self.n - 1}u"

    @property
    def slot(self) -> str:
        return f"min(warp / {self.chunks}u, {self.slots - 1}u)"

    @property
    def lane(self) -> str:
        """The block of a row that a lane has, in GLSL; lanes behind the last block of a chunk have this one, too."""
        n = self.blocks // self.shape.chunks(self.n_columns)
        if n == self.shape.lanes:
            return f"warp % {self.chunks}u * LANES + lane"
        return f"warp % {self.chunks}u * {n}u + min(lane, {n - 1}u)"


@dataclass(frozen=True)
class Rows(Divided):
    """A matrix; ``index``: its address in the table of a layer; ``first``: row in ``partial``."""

    index: int
    types: tuple[Planes, ...]
    first: str
    stride: str
    site: str = ""  # name of the rows of a workgroup in ``Shape.rows_of_group``

    @property
    def of_group(self) -> int:
        return self.shape.rows_of_group[self.site]

    @property
    def first_row(self) -> str:
        """The subgroup's first row, in GLSL; where rows lack, the last rows of the matrix are computed again."""
        row = f"wg * {self.of_group}u + {self.slot} * {self.n}u"
        return f"min({row}, {self.n_rows - self.n}u)" if self.is_padded else f"({row})"

    def aim(self, address: str) -> str:
        """Return the code that points at this lane's block of the subgroup's first row."""
        number = f"{self.first_row} * {self.blocks}u + {self.lane}"
        code = f"{{ const uint number = {number}; uint64_t at = {address}; "
        if len(self.types) > 1:
            code += f"flag_{self.name} = uint(at) & {ADDRESS_FLAGS}u; at &= ~{ADDRESS_FLAGS}ul; "
        return code + f"{self.each(self.point)} }}"

    def point(self, planes: Planes) -> str:
        """Return the assignments of the pointers into a matrix at ``at``."""
        return planes.point("number", self.plane)

    def each(self, code: Callable[[Planes], str], known: Planes | None = None) -> str:
        """Return the code for the matrix's type: ``known``, or what a flag of its address told."""
        if known or len(self.types) == 1:
            return code(known or self.types[0])
        usual, *others, last = self.types
        text = f"if (flag_{self.name} != 0u) {{ {code(last)} }} else {{ {code(usual)} }}"
        for planes in others:
            text = f"if (flag_{self.name} == {FLAGS.index(planes.type)}u) {{ {code(planes)} }} else {text}"
        return text

    def plane(self, n_bytes: int) -> str:
        """Return the offset of a plane behind ``n_bytes`` of each block."""
        return f"{n_bytes * self.total}ul"

    def load(self, unit: int, row: int, planes: Planes) -> str:
        at = row * self.blocks
        return planes.load(unit, f"{at}u", f"{at // 8}u")


@dataclass(frozen=True)
class OutputRows(Rows):
    """The output matrix, whose rows are a constant of the shader."""

    @property
    def chunks(self) -> int:
        """Chunks of a row that subgroups divide: none if each takes whole rows."""
        return 1 if self.shape.whole_output else super().chunks

    @property
    def of_group(self) -> int:
        return -(-self.n_rows // self.shape.groups)

    @property
    def count(self) -> str:
        return "N_L"

    @property
    def last(self) -> str:
        return "N_L - 1u"

    def plane(self, n_bytes: int) -> str:
        return f"{n_bytes * self.blocks}ul * VOCAB"


@dataclass(frozen=True)
class Quad:
    """Four units of a matrix, or what is left of it; ``set``: the registers that hold them."""

    matrix: Rows
    number: int  # of the matrix
    set: int
    n: int

    @property
    def units(self) -> range:
        return range(QUAD * self.set, QUAD * self.set + self.n)


class Quads:
    """The quads of a layer and of the output, for a shape. Two units of keys are one quad with two of values."""

    def __init__(self, shape: Shape) -> None:
        assert shape.ahead % QUAD == 0
        self.shape, self.sets = shape, shape.ahead // QUAD
        query, key = shape.heads * shape.dim, shape.kv_heads * shape.dim

        def rows(index: int, site: str, n_rows: int, n_columns: int, first: str, stride: str) -> Rows:
            name = MATRICES[index]
            types = tuple(map(Planes, shape.types_of(name)))
            return Rows(name, n_rows, n_columns, shape, index, types, first, stride, site)

        self.q = rows(0, "Q", query, shape.width, "0u", "STRIDE_Q")
        self.k = rows(1, "K", key, shape.width, "OF_Q", "STRIDE_Q")
        self.v = rows(2, "K", key, shape.width, "OF_Q + OF_K", "STRIDE_Q")
        self.o = rows(3, "X", shape.width, query, "0u", "STRIDE_X")
        self.gate = rows(4, "G", shape.ffn, shape.width, "0u", "STRIDE_G")
        self.up = rows(5, "G", shape.ffn, shape.width, "OF_G", "STRIDE_G")
        self.down = rows(6, "X", shape.width, shape.ffn, "0u", "STRIDE_X")
        types = (Planes(shape.output),)
        self.output = OutputRows("output", shape.vocabulary, shape.width, shape, 0, types, "0u", "STRIDE_L")
        self.joint = self.k if self.k.n == QUAD // 2 else None
        assert not (self.joint and self.k.is_padded)
        values = [] if self.joint else [self.v]
        self.matrices = [self.q, self.k, *values, self.o, self.gate, self.up, self.down]
        assert all(matrix.slots * matrix.n == matrix.of_group for matrix in self.matrices)
        units = {matrix.name: QUAD if matrix is self.joint else matrix.n for matrix in self.matrices}
        order = [(matrix, first) for matrix in self.matrices for first in range(0, units[matrix.name], QUAD)]
        self.quads = [
            Quad(matrix, first // QUAD, i % self.sets, min(QUAD, units[matrix.name] - first))
            for i, (matrix, first) in enumerate(order)
        ]

    @property
    def has_bytes(self) -> bool:
        """True if a matrix may have codes of eight bits."""
        return any(planes.low == 8 for matrix in (*self.all, self.output) for planes in matrix.types)

    @property
    def all(self) -> list[Rows]:
        """All matrices of a layer, values last."""
        return [*(matrix for matrix in self.matrices if matrix is not self.v), self.v]

    @cached_property
    def text(self) -> str:
        """The GLSL of the family."""
        lines = [
            f"// {len(self.quads)} quads a layer, {self.sets} ahead. Made by tools/straight_line.py.",
            *self.state(),
        ]
        for matrix in self.matrices:
            lines += self.multiply(matrix)
        lines += ["void multiply_v(bool last) {}"] if self.joint else []
        return "\n".join([*lines, *self.again(), *self.multiply_output(), ""])

    def again(self) -> Iterator[str]:
        """Yield the function that requests again what is ahead after attention, which frees its registers before.

        A sum that the compiler does not know to be zero keeps it from taking the first request.
        """
        first = next(index for index, quad in enumerate(self.quads) if quad.matrix is self.o)
        ahead = self.quads[first : first + self.sets]
        assert all(quad.matrix is self.o for quad in ahead)
        yield "void ask_again() {"
        yield "    const uint64_t zero = uint64_t(position >> 30u);"
        yield "    p_low += zero; p_scale += zero; p_super += zero;"
        if any(planes.high for planes in self.o.types):
            yield "    p_high += zero;"
        for quad in ahead:
            yield f"    {self.request(quad, False, 'here')}"
        yield "}"

    def state(self) -> Iterator[str]:
        """Yield the registers, and the functions that begin a token and a layer."""
        for unit in range(QUAD * self.sets):
            yield f"uvec4 w{unit} = uvec4(0u); uint s{unit} = 0u, e{unit} = 0u; uvec2 h{unit} = uvec2(0u);"
            if self.has_bytes:
                yield f"uvec4 m{unit} = uvec4(0u);"
        yield "uint64_t p_low, p_high, p_scale, p_super; // into the matrix whose quads are asked for"
        yield f"uint64_t {', '.join(f'at_{name}' for name in MATRICES)};"
        for matrix in self.all:
            if len(matrix.types) > 1:
                yield f"uint flag_{matrix.name} = 0u;"
        yield "uint here, there; // layers"
        yield "uint64_t address(uint layer, uint i) {"
        yield "    return packUint2x32(addresses[places_at / 2u + TABLE_ROW * layer + i]);"
        yield "}"
        yield "void load_places(uint layer) { there = layer; }"
        yield "void move_on() { here = there; }"
        yield "void load_first() {"
        yield "    at_q = address(0u, 0u);"
        names: list[str] = []
        for quad in self.quads[: self.sets]:
            yield f"    {self.request(quad, quad.matrix.name not in names, 'here')}"
            names.append(quad.matrix.name)
        yield "}"

    def followers(self) -> dict[str, str]:
        """Return what is looked up when a matrix is aimed at, by its name: addresses of the next."""
        at = "at_{0} = address({1}, {2}u);".format
        return {
            "q": at("k", "{layer}", 1) + " " + at("v", "{layer}", 2),
            "k": at("o", "{layer}", 3),
            "v": "",
            "o": at("gate", "{layer}", 4),
            "gate": at("up", "{layer}", 5),
            "up": at("down", "{layer}", 6),
            "down": at("q", "{layer} + 1u", 0),  # or the output
        }

    def request(self, quad: Quad, aims: bool, layer: str, planes: Planes | None = None, moved: int = 0) -> str:
        """Return the requests of a quad, whose rows count from ``moved``; ``planes``: None if a flag tells them."""
        matrix, code = quad.matrix, ""
        if aims:
            code += f"{matrix.aim(f'at_{matrix.name}')} {self.followers()[matrix.name].format(layer=layer)} "
        if matrix is self.joint:
            units = list(quad.units)
            code += f"{_loads(matrix, units[:2], range(2), matrix.types[0])} {self.v.aim('at_v')} "
            return code + self.v.each(partial(_loads, self.v, units[2:], range(2)))
        rows = range(QUAD * quad.number - moved, QUAD * quad.number - moved + len(quad.units))
        return code + matrix.each(partial(_loads, matrix, quad.units, rows), planes)

    def next_of(self, index: int) -> tuple[Quad, bool]:
        """Return the quad that takes the registers of a quad, and whether it is of the next layer."""
        after = index + self.sets
        if after < len(self.quads):
            return self.quads[after], False
        return self.quads[self.quads[index].set], True

    @cached_property
    def aims(self) -> set[int]:
        """The quads behind whose products a matrix is asked for the first time."""
        seen = {(quad.matrix.name, False) for quad in self.quads[: self.sets]}
        found = set()
        for index in range(len(self.quads)):
            quad, wraps = self.next_of(index)
            if (quad.matrix.name, wraps) not in seen:
                seen.add((quad.matrix.name, wraps))
                found.add(index)
        return found

    def requests(self, index: int, planes: Planes | None, moved: int) -> str:
        """Return the requests that follow a quad's products."""
        quad, wraps = self.next_of(index)
        aims = index in self.aims
        if wraps:
            own = self.request(quad, aims, "here + 1u")
            first = [f"if (last) {{ {self.aim_output()} }}"] if quad.set == self.first_wrapped else []
            load = " ".join(self.output_load(unit, f"{unit}u") for unit in quad.units)
            return " ".join([*first, f"if (last) {{ {load} }} else {{ {own} }}"])
        same = quad.matrix is self.quads[index].matrix
        return self.request(quad, aims, "here", planes if same else None, moved if same else 0)

    @property
    def first_wrapped(self) -> int:
        return self.next_of(len(self.quads) - self.sets)[0].set

    def multiply(self, matrix: Rows) -> Iterator[str]:
        yield f"void multiply_{matrix.name}(bool last) {{"
        yield matrix.each(lambda planes: "\n".join(self.products(matrix, planes)))
        yield "}"

    def products(self, matrix: Rows, planes: Planes) -> Iterator[str]:
        """Yield the products of a matrix: a loop over pairs of quads, and what is left."""
        mine = [index for index, quad in enumerate(self.quads) if quad.matrix is matrix]
        turns = (matrix.n // QUAD - self.sets) // 2  # all quads that they request are whole
        if turns < 2:
            turns = 0
        if turns:
            yield f"[[dont_unroll]] for (uint r = 0u; r < {turns}u; r++) {{"
            yield from self.batch(matrix, mine[:2], planes, 0, f"{2 * QUAD}u * r")
            yield planes.advance(2 * QUAD * matrix.blocks)
            yield "}"
        moved = 2 * QUAD * turns
        for i in range(2 * turns, len(mine), 2):
            yield from self.batch(matrix, mine[i : i + 2], planes, moved, f"{QUAD * i}u")

    def batch(self, matrix: Rows, indices: Sequence[int], planes: Planes, moved: int, row: str) -> Iterator[str]:
        yield "{"
        for number, index in enumerate(indices):
            yield from self.quad_products(index, planes, QUAD * number)
            yield self.requests(index, planes, moved)
        total = sum(self.quads[index].n for index in indices)
        count = 1 << (total - 1).bit_length()
        yield from (f"float t{i} = 0.0;" for i in range(total, count))
        yield from sums(self.shape.lanes, count)
        share = self.shape.lanes // count
        yield f"const uint slot = warp / {matrix.chunks}u, i = lane / {share}u;"
        real = f" && i < {total}u" if total < count else ""
        if matrix.is_padded:
            yield f"const uint local = {matrix.first_row} + {row} + i - wg * {matrix.of_group}u;"
            real += f" && local < {matrix.of_group}u"  # rows before this workgroup's wrap
        yield f"if (lane % {share}u == 0u && slot < {matrix.slots}u{real})"
        yield f"    partial[warp % {matrix.chunks}u * {matrix.stride} + {self.row_of_sum(matrix, row)}] = t0;"
        yield "}"

    def quad_products(self, index: int, planes: Planes, count: int) -> Iterator[str]:
        """Yield the products of a quad, from t``count`` on."""
        quad = self.quads[index]
        first = list(enumerate(quad.units, count))
        of_values = [first.pop() for _ in range(QUAD // 2)][::-1] if quad.matrix is self.joint else []
        yield from (f"float t{i} = {planes.product(unit)};" for i, unit in first)
        for i, unit in of_values:
            yield f"float t{i};"
            yield self.v.each(partial(_product, i, unit))

    def row_of_sum(self, matrix: Rows, row: str) -> str:
        """Return the row in ``partial`` of sum ``i`` of a batch whose first row is ``row``."""
        if matrix.is_padded:
            return f"{matrix.first} + local"
        if matrix is self.joint:
            return f"(i < 2u ? {matrix.first} : {self.v.first} - 2u) + slot * {matrix.n}u + i"
        return f"{matrix.first} + slot * {matrix.n}u + {row} + i"

    def aim_output(self) -> str:
        return f"const uint64_t at = at_q; const uint number = 0u; {self.output.point(self.output.types[0])}"

    def output_load(self, unit: int, row: str, chunk: str = "") -> str:
        """Return the request of a unit of the output; ``chunk``: that of a subgroup with whole rows (default: 0)."""
        output = self.output
        inside = f"min({output.slot} * N_L + {row}, OF_L - 1u)"
        number = f"(min(wg * OF_L + {inside}, VOCAB - 1u) * {output.blocks}u + {chunk}{output.lane})"
        return self.output.types[0].load(unit, number, f"{number} / 8u")

    def multiply_output(self) -> Iterator[str]:
        output, ahead = self.output, self.shape.ahead
        products = [output.types[0].product(unit) for unit in range(ahead)]
        yield "void multiply_output() {"
        yield f"[[dont_unroll]] for (uint r = 0u; r < {output.count}; r += {ahead}u) {{"
        if self.shape.whole_output:
            n = self.shape.chunks(output.n_columns)
            chunk = f"next * {output.blocks // n}u + "
            asks = [self.output_load(unit, f"min(first + {unit}u, {output.last})", chunk) for unit in range(ahead)]
            yield from whole_rows(f"{n}u", f"{output.blocks // n}u", products, asks)
        else:
            for unit, product in enumerate(products):
                ask = self.output_load(unit, f"min(r + {unit + ahead}u, {output.last})")
                yield f"float t{unit} = {product}; {ask}"
        yield from sums(self.shape.lanes, ahead)
        share = self.shape.lanes // ahead
        yield f"const uint i = lane / {share}u, row = warp / {output.chunks}u * N_L + r + i;"
        real = f"r + i < N_L && row < OF_L && warp / {output.chunks}u < {output.slots}u"
        yield f"if (lane % {share}u == 0u && {real}) partial[warp % {output.chunks}u * STRIDE_L + row] = t0;"
        yield "}"
        yield "}"


def whole_rows(n_chunks: str, n_blocks: str, products: Sequence[str], requests: Sequence[str]) -> Iterator[str]:
    """Yield the products of rows that a subgroup takes whole, chunk by chunk of so many blocks.

    ``requests``: those of the next units, of the chunk ``next`` of rows from ``first`` on.
    """
    yield from (f"float t{unit} = 0.0;" for unit in range(len(products)))
    yield f"[[dont_unroll]] for (uint c = 0u; c < {n_chunks}; c++) {{"
    yield f"take_narrow(c, {n_blocks});"
    yield f"const uint next = c + 1u < {n_chunks} ? c + 1u : 0u, first = next == 0u ? r + {len(products)}u : r;"
    yield from (f"t{unit} += {product}; {requests[unit]}" for unit, product in enumerate(products))
    yield "}"


def _product(sum: int, unit: int, planes: Planes) -> str:
    return f"t{sum} = {planes.product(unit)};"


def _loads(matrix: Rows, units: Sequence[int], rows: Iterable[int], planes: Planes) -> str:
    return " ".join(matrix.load(unit, row, planes) for unit, row in zip(units, rows, strict=True))


def sums(lanes: int, count: int) -> Iterator[str]:
    """Yield the sums over all lanes of ``count`` values; t0 of lanes i * lanes / count on has that of value i."""
    mask, half = lanes // 2, count // 2
    while half:
        for i in range(half):
            kept, gone = f"up ? t{i + half} : t{i}", f"up ? t{i} : t{i + half}"
            yield f"{{ const bool up = (lane & {mask}u) != 0u; const float kept = {kept}, gone = {gone};"
            yield f"t{i} = kept + subgroupShuffleXor(gone, {mask}); }}"
        mask, half = mask // 2, half // 2
    while mask:
        yield f"t0 += subgroupShuffleXor(t0, {mask});"
        mask //= 2
