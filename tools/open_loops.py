"""The products of shaders/persistent.comp for open families: loops whose bounds are specialization constants.

Like the quads of families (rolled_quads.py), four units have registers of their own and are asked for one quad ahead,
but a matrix is one loop over its quads, and queries, keys and values have quads of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from pumice_vulkan.persistent.division import ADDRESS_FLAGS, FLAGS, Shape
from pumice_vulkan.persistent.pattern import MATRICES
from tools.rolled_quads import QUAD, Planes, sums, whole_rows

SITES = {
    "q": ("QUERY", "BLOCKS_X", "CHUNKS_X", "OF_Q", "0u", "STRIDE_Q"),
    "k": ("KEY", "BLOCKS_X", "CHUNKS_X", "OF_K", "OF_Q", "STRIDE_Q"),
    "v": ("KEY", "BLOCKS_X", "CHUNKS_X", "OF_K", "OF_Q + OF_K", "STRIDE_Q"),
    "o": ("WIDTH", "BLOCKS_O", "CHUNKS_O", "OF_X", "0u", "STRIDE_X"),
    "gate": ("FFN", "BLOCKS_X", "CHUNKS_X", "OF_G", "0u", "STRIDE_G"),
    "up": ("FFN", "BLOCKS_X", "CHUNKS_X", "OF_G", "OF_G", "STRIDE_G"),
    "down": ("WIDTH", "BLOCKS_D", "CHUNKS_D", "OF_X", "0u", "STRIDE_X"),
}
"""Rows, blocks and chunks of a row, rows of a workgroup, and the place in ``partial``, by matrix."""


@dataclass(frozen=True)
class Site:
    """A matrix of a layer; all but its name and types are expressions of the shader."""

    name: str
    types: tuple[Planes, ...]
    rows: str
    blocks: str
    chunks: str
    of_group: str
    first: str
    stride: str

    @property
    def slots(self) -> str:
        return f"(WARPS / {self.chunks})"

    @property
    def n(self) -> str:
        """Units of a subgroup."""
        return f"({self.of_group} / {self.slots})"

    def each(self, code: Callable[[Planes], str]) -> str:
        """Return the code for the matrix's type, which a flag of its address told."""
        usual, *others = self.types
        text = code(usual)
        for planes in others:
            text = f"if (flag_{self.name} == {_flag(planes)}u) {{ {code(planes)} }} else {{ {text} }}"
        return text

    def aim(self) -> str:
        """Return the code that points at this lane's block of the subgroup's first row."""
        n = f"({self.blocks} / {self.chunks})"
        block = f"warp % {self.chunks} * {n} + min(lane, {n} - 1u)"
        code = f"{{ const uint number = row_{self.name}() * {self.blocks} + {block}; uint64_t at = at_ahead; "
        if len(self.types) > 1:
            code += f"flag_{self.name} = uint(at) & {ADDRESS_FLAGS}u; at &= ~{ADDRESS_FLAGS}ul; "
        plane = f"ul * uint64_t({self.rows} * {self.blocks})".join
        return code + self.each(lambda planes: planes.point("number", lambda n: plane((str(n), "")))) + " }"

    def load(self, planes: Planes, left: str) -> str:
        """Return the requests of a quad, of which ``left`` rows are there."""
        rows = [f"({self.n} % {QUAD}u == 0u ? {i}u : min({i}u, {left} - 1u)) * {self.blocks}" for i in range(QUAD)]
        return " ".join(planes.load(unit, f"({row})", f"({row}) / 8u") for unit, row in enumerate(rows))

    def advance(self, planes: Planes) -> str:
        """Return the code that moves the pointers by a quad."""
        sizes = {"low": 4 * planes.low, "scale": 2, "high": 4 * planes.high}
        code = [f"p_{name} += uint64_t({QUAD * size}u * {self.blocks});" for name, size in sizes.items() if size]
        return " ".join(code) + (f" p_super += uint64_t({QUAD // 2}u * {self.blocks});" if planes.has_super else "")


def _flag(planes: Planes) -> int:
    return FLAGS.index(planes.type)


class Loops:
    """The products of a layer and of the output, for the types of a shape."""

    def __init__(self, shape: Shape) -> None:
        assert shape.ahead == QUAD
        assert shape.whole_output
        self.shape, self.output = shape, Planes(shape.output)
        self.sites = [Site(name, tuple(map(Planes, shape.types_of(name))), *SITES[name]) for name in MATRICES]

    @property
    def text(self) -> str:
        """The GLSL of the family."""
        lines = ["// Made by tools/straight_line.py.", *self.state()]
        for site, following in pairwise([*self.sites, None]):
            assert site is not None
            lines += self.multiply(site, following)
        return "\n".join([*lines, *self.again(), *self.multiply_output(), ""])

    def state(self) -> Iterator[str]:
        """Yield the registers, and the functions that begin a token and a layer."""
        for unit in range(QUAD):
            yield f"uvec4 w{unit} = uvec4(0u); uint s{unit} = 0u, e{unit} = 0u; uvec2 h{unit} = uvec2(0u);"
        yield "uint64_t p_low, p_high, p_scale, p_super; // into the matrix whose quads are asked for"
        yield "uint64_t at_ahead; // address of the matrix behind it"
        yield f"uint {', '.join(f'flag_{site.name} = 0u' for site in self.sites)};"
        yield "uint here, there; // layers"
        yield "uint64_t address(uint layer, uint i) {"
        yield "    return packUint2x32(addresses[places_at / 2u + TABLE_ROW * layer + i]);"
        yield "}"
        yield "float norm_number(uint at) { return norms[at / 4u][at & 3u]; }"
        yield "void load_places(uint layer) { there = layer; }"
        yield "void move_on() { here = there; }"
        for site in self.sites:
            yield f"uint row_{site.name}() {{"
            row = f"wg * {site.of_group} + min(warp / {site.chunks}, {site.slots} - 1u) * {site.n}"
            yield f"    return min({row}, {site.rows} - {site.n});"
            yield "}"
        yield f"void load_first() {{ at_ahead = address(0u, 0u); {self.request(self.sites[0], '0u')} }}"

    def request(self, site: Site, layer: str) -> str:
        """Return the code that aims at a matrix and requests its first quad."""
        index = (MATRICES.index(site.name) + 1) % len(MATRICES)
        follows = f"at_ahead = address({layer}{' + 1u' * (index == 0)}, {index}u);"  # that of the output behind all
        return f"{site.aim()} {follows} {site.each(lambda planes: site.load(planes, site.n))}"

    def multiply(self, site: Site, following: Site | None) -> Iterator[str]:
        """Yield the function that multiplies a matrix, and requests what follows it."""
        if following:
            request = self.request(following, "here")
        else:
            output = " ".join(self.output_load(unit, f"{unit}u", "0u") for unit in range(QUAD))
            request = (
                f"if (last) {{ {self.aim_output()} {output} }} else {{ {self.request(self.sites[0], 'here + 1u')} }}"
            )
        yield f"void multiply_{site.name}(bool last) {{"
        yield site.each(lambda planes: "\n".join(self.products(site, planes, request)))
        yield "}"

    def products(self, site: Site, planes: Planes, request: str) -> Iterator[str]:
        share, load = self.shape.lanes // QUAD, site.load(planes, f"({site.n} - r - {QUAD}u)")
        yield f"[[dont_unroll]] for (uint r = 0u; r < {site.n}; r += {QUAD}u) {{"
        yield from (f"float t{unit} = {planes.product(unit)};" for unit in range(QUAD))
        yield f"if (r + {QUAD}u < {site.n}) {{ {site.advance(planes)} {load} }}"
        yield f"else {{ {request} }}"
        yield from sums(self.shape.lanes, QUAD)
        yield f"const uint i = r + lane / {share}u, local = row_{site.name}() + i - wg * {site.of_group};"
        real = f"i < {site.n} && local < {site.of_group} && warp / {site.chunks} < {site.slots}"
        yield f"if (lane % {share}u == 0u && {real})"
        yield f"    partial[warp % {site.chunks} * {site.stride} + {site.first} + local] = t0;"
        yield "}"

    def again(self) -> Iterator[str]:
        """Yield the function that requests again what is ahead after attention, as rolled_quads.py does."""
        o = next(site for site in self.sites if site.name == "o")
        yield "void ask_again() {"
        yield "    const uint64_t zero = uint64_t(position >> 30u);"
        yield "    p_low += zero; p_scale += zero; p_super += zero; p_high += zero;"
        yield f"    {o.each(lambda planes: o.load(planes, o.n))}"
        yield "}"

    def aim_output(self) -> str:
        point = self.output.point("number", lambda n: f"{n}ul * uint64_t(BLOCKS_X) * VOCAB")
        return f"const uint64_t at = at_ahead; const uint number = 0u; {point}"

    def output_load(self, unit: int, row: str, chunk: str) -> str:
        n = "(BLOCKS_X / CHUNKS_X)"
        inside = f"min(wg * OF_L + min(warp * N_L + {row}, OF_L - 1u), VOCAB - 1u)"
        number = f"({inside} * BLOCKS_X + {chunk} * {n} + min(lane, {n} - 1u))"
        return self.output.load(unit, number, f"{number} / 8u")

    def multiply_output(self) -> Iterator[str]:
        """Yield the product of the output matrix, of which a subgroup takes whole rows."""
        share = self.shape.lanes // QUAD
        yield "void multiply_output() {"
        yield f"[[dont_unroll]] for (uint r = 0u; r < N_L; r += {QUAD}u) {{"
        products = [self.output.product(unit) for unit in range(QUAD)]
        asks = [self.output_load(unit, f"min(first + {unit}u, N_L - 1u)", "next") for unit in range(QUAD)]
        yield from whole_rows("CHUNKS_X", "(BLOCKS_X / CHUNKS_X)", products, asks)
        yield from sums(self.shape.lanes, QUAD)
        yield f"const uint i = r + lane / {share}u, row = warp * N_L + i;"
        yield f"if (lane % {share}u == 0u && i < N_L && row < OF_L) partial[row] = t0;"
        yield "}"
        yield "}"
