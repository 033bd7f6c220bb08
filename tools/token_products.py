"""Products of shaders/persistent.comp, which tools/compile_shaders.py includes where it compiles the shader.

    python tools/token_products.py

prints them: those of single tokens, then those of steps with several, for each combination of types. A matrix is a loop
over quads, four units of weights with registers of their own, whose bounds are specialization constants. A quad's
products leave the registers free for the quad behind it, of the same matrix or of the next. Short loops keep the code
of a layer small enough for the processors' instruction caches: bench/notes/experiments.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pumice_vulkan.formats import BY_NAME
from pumice_vulkan.persistent.division import ADDRESS_FLAGS, AHEAD, FLAGS, OF_EXPERTS, Shape
from pumice_vulkan.persistent.families import FAMILIES
from pumice_vulkan.persistent.pattern import MATRICES

QUAD = AHEAD
PAIR = 2  # tokens whose products share the unpacked codes of units
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
class Planes:
    """The planes of a type's matrix (shaders/formats.glsl), by which its units are asked for."""

    type: str

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
        return f"product({self.type.upper()}, w{unit}, {high}, s{unit}, {super})"

    def point(self, plane: Callable[[int], str]) -> str:
        """Return the assignments of the pointers to block ``number`` of a matrix at ``at``.

        ``plane``: offset of the plane behind so many bytes of each block.
        """
        low, high = 4 * self.low, 4 * self.high
        code = f"p_low = at + {low}u * number; p_scale = at + {plane(low + high)} + 2u * number;"
        code += f" p_high = at + {plane(low)} + {high}u * number;" if high else ""
        return code + (f" p_super = at + {plane(low + high + 2)} + number / 8u * 4u;" if self.has_super else "")

    def advance(self, blocks: str) -> str:
        """Return the code that moves the pointers by four rows of so many blocks, a multiple of eight if it matters."""
        sizes = {"low": 4 * self.low, "scale": 2, "high": 4 * self.high}
        code = [f"p_{name} += uint64_t({QUAD * size}u * {blocks});" for name, size in sizes.items() if size]
        return " ".join(code) + (f" p_super += uint64_t({QUAD // 2}u * {blocks});" if self.has_super else "")


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
    is_stacked: bool = False  # rows are those of the chosen experts, one matrix of a stack each

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
            flag = FLAGS.index(planes.type)
            text = f"if (flag_{self.name} == {flag}u) {{ {code(planes)} }} else {{ {text} }}"
        return text

    def aim(self, address: str) -> str:
        """Return the code that points at this lane's block of the subgroup's first row."""
        n = f"CEIL({self.blocks}, {self.chunks})"
        block = f"min(warp % {self.chunks} * {n} + min(lane, {n} - 1u), {self.blocks} - 1u)"
        row = f"chosen_row(row_{self.name}())" if self.is_stacked else f"row_{self.name}()"
        code = (
            f"{{ const uint number = {row} * {self.blocks} + {block}; uint64_t at = {address}; {self.find_flag('at')} "
        )
        n_rows = "EXPERTS * OF_EXPERT" if self.is_stacked else self.rows
        return f"{code} {self.point(n_rows, self.blocks)} }}"

    def find_flag(self, at: str) -> str:
        """Return the code that takes the flag of the matrix's type from its address."""
        if len(self.types) == 1:
            return ""
        return f"flag_{self.name} = uint({at}) & {ADDRESS_FLAGS}u; {at} &= ~{ADDRESS_FLAGS}ul;"

    def point(self, rows: str, blocks: str) -> str:
        """Return the assignments of the pointers to block ``number`` of a matrix or a stack of so many rows."""
        plane = f"ul * uint64_t({rows} * {blocks})".join
        return self.each(lambda planes: planes.point(lambda n: plane((str(n), ""))))

    def load(self, planes: Planes, left: str) -> str:
        """Return the requests of a quad, of which ``left`` rows are there; others repeat the last one."""
        return " ".join(self.load_unit(planes, unit, row) for unit, row in enumerate(self.units(left)))

    def units(self, left: str) -> list[str]:
        """Return the rows of a quad's units behind the pointers."""
        return [f"({self.n} % {QUAD}u == 0u ? {unit}u : min({unit}u, {left} - 1u))" for unit in range(QUAD)]

    def load_unit(self, planes: Planes, unit: int, row: str) -> str:
        return planes.load(unit, f"({row} * {self.blocks})", f"{row} * {self.blocks} / 8u")

    def row(self) -> str:
        """Return the first row of a subgroup; the last workgroups repeat the matrix's last rows."""
        row = f"wg * {self.of_group} + min(warp / {self.chunks}, {self.slots} - 1u) * {self.n}"
        return f"uint row_{self.name}() {{ return min({row}, {self.rows} - {self.n}); }}"

    def store(self, unit: str) -> str:
        """Return the code that keeps the sum of a unit, as far as it is a row of this workgroup."""
        local = f"row_{self.name}() + {unit} - wg * {self.of_group}"  # of rows before this workgroup's it wraps
        real = f"{unit} < {self.n} && {local} < {self.of_group} && warp / {self.chunks} < {self.slots}"
        return f"if ({real}) partial[PARTIAL_OF warp % {self.chunks} * {self.stride} + {self.first} + {local}] = t0;"


class Loops:
    """The products of a layer and of the output, for the types of a shape."""

    n_units = QUAD  # with registers

    def __init__(self, shape: Shape) -> None:
        self.lanes, self.output = shape.lanes, Planes(shape.output)
        self.is_mixed = bool(shape.others)
        self.sites = {name: Site(name, tuple(map(Planes, shape.types_of(name))), *SITES[name]) for name in MATRICES}

    @property
    def text(self) -> str:
        """The GLSL of the family."""
        lines = ["// Made by tools/token_products.py.", *self.state(), *self.layer()]
        return "\n".join([*lines, *self.again(), *self.multiply_output(), ""])

    def layer(self) -> Iterator[str]:
        """Yield the products of a layer's matrices."""
        for site, following in pairwise([*self.sites.values(), None]):
            assert site is not None
            yield from self.multiply(site, self.request(following, "here") if following else self.request_next())

    def multiply(self, site: Site, request: str) -> Iterator[str]:
        """Yield the product of a matrix; ``request`` asks for what follows it."""
        yield f"void multiply_{site.name}(bool last) {{"
        yield from self.common(site.name)
        yield site.each(lambda planes: "\n".join(self.products(site, planes, request)))
        yield "}"

    def state(self) -> Iterator[str]:
        """Yield the registers, and the functions that begin a token and a layer."""
        planes = {self.output, *(planes for site in self.sites.values() for planes in site.types)}
        for unit in range(self.n_units):
            yield f"uvec4 w{unit} = uvec4(0u); uint s{unit} = 0u, e{unit} = 0u; uvec2 h{unit} = uvec2(0u);"
            if any(each.low == 8 for each in planes):
                yield f"uvec4 m{unit} = uvec4(0u);"
        yield "uint64_t p_low, p_high, p_scale, p_super; // into the matrix whose quads are asked for"
        yield "uint64_t at_ahead, at_k, at_v; // addresses of the matrix behind it, and of keys and values"
        yield f"uint {', '.join(f'flag_{name} = 0u' for name in self.sites)};"
        yield "uint here, there; // layers"
        yield "uint64_t address(uint layer, uint i) {"
        yield "    return packUint2x32(addresses[places_at / 2u + TABLE_ROW * layer + i]);"
        yield "}"
        yield "float norm_number(uint at) { return norms[at / 4u][at & 3u]; }"
        yield "void load_places(uint layer) { there = layer; }"
        yield "void move_on() { here = there; }"
        yield "const bool FEW = LARGER(N_Q, 2u * N_K) <= 2u; // queries, keys and values are one quad"
        yield "const bool JOINT = N_K <= 2u; // keys and values are one, at least"
        yield from (site.row() for site in self.sites.values())
        first = self.addresses("down", "-1")
        yield f"void load_first() {{ {first} {self.request(self.sites['q'], '0u')} }}"

    def addresses(self, name: str, layer: str) -> str:
        """Return the code that looks up what is behind a matrix: the next one; behind the last layer the output."""
        at = "at_{} = address({}, {}u);".format
        if name == "down":
            keys = f"if (FEW) {{ {at('k', f'{layer} + 1u', 1)} {at('v', f'{layer} + 1u', 2)} }}"
            return f"{at('ahead', f'{layer} + 1u', 0)} {keys}"
        if name == "q":
            return f"{at('ahead', layer, 1)} {at('v', layer, 2)}"
        return at("ahead", layer, MATRICES.index(name) + 1)

    def request(self, site: Site, layer: str) -> str:
        """Return the code that aims at a matrix and requests its first quad, and the address behind it."""
        load = f"{site.aim('at_ahead')} {self.addresses(site.name, layer)} "
        load += site.each(lambda planes: site.load(planes, site.n))
        q, k, v = (self.sites[name] for name in "qkv")
        behind = self.addresses("v", layer)
        if site is q:
            few = f"{self.units(q, 0, 'at_ahead')} {self.units(k, 2, 'at_k', 1)} {self.units(v, 3, 'at_v', 1)} {behind}"
            return f"if (FEW) {{ {few} }} else {{ {load} }}"
        if site is k:
            both = f"{self.units(k, 0, 'at_ahead')} {self.units(v, 2, 'at_v')} {behind}"
            rest = f"{k.aim('at_ahead')} at_ahead = at_v; {k.each(lambda planes: k.load(planes, k.n))}"
            return f"if (JOINT) {{ {both} }} else {{ {rest} }}"
        return load

    def units(self, site: Site, first: int, address: str, n: int = 2) -> str:
        """Return the code that aims at a matrix and requests up to two units, which are not all of their quad."""
        rows = ["0u", f"min(1u, {site.n} - 1u)"][:n]

        def load(planes: Planes) -> str:
            return " ".join(site.load_unit(planes, first + i, row) for i, row in enumerate(rows))

        return f"{site.aim(address)} {site.each(load)}"

    def request_next(self) -> str:
        """Return the request behind a layer: of the next one's first quad, or of the output's."""
        output = " ".join(self.output_load(unit, f"{unit}u", "0u") for unit in range(QUAD))
        aim = f"const uint64_t at = at_ahead; const uint number = 0u; {self.output_point()}"
        return f"if (last) {{ {aim} {output} }} else {{ {self.request(self.sites['q'], 'here + 1u')} }}"

    def common(self, name: str) -> Iterator[str]:
        """Yield the products of a quad that has units of several matrices, in place of those of its matrices."""
        q, k, v = (self.sites[name] for name in "qkv")
        if name == "q":
            yield f"if (FEW) {{ {self.mixed([(q, 0), (q, 1), (k, 0), (v, 0)])} return; }}"
        if name == "k":
            yield f"if (FEW) return; if (JOINT) {{ {self.mixed([(k, 0), (k, 1), (v, 0), (v, 1)])} return; }}"
        if name == "v":
            yield "if (JOINT) return;"

    def mixed(self, units: Sequence[tuple[Site, int]]) -> str:
        """Return the products of a quad with these units of matrices, and the request of what follows it."""
        products = [
            site.each(lambda planes, number=number: f"t{number} = {planes.product(number)};")
            for number, (site, _) in enumerate(units)
        ]
        store = [f"if (i == {number}u) {{ {site.store(f'{unit}u')} }}" for number, (site, unit) in enumerate(units)]
        return "\n".join([*self.turn(units[0][0], products, store, QUAD), self.request(self.sites["o"], "here")])

    def turn(self, site: Site, products: Sequence[str], store: Sequence[str], count: int) -> Iterator[str]:
        """Yield products of up to ``count`` units, and what keeps their sums: unit i's is t0 of some lanes."""
        yield "{"
        yield f"float {', '.join(f't{i} = 0.0' for i in range(count))};"
        yield from products
        yield from stored_sums(self.lanes, count, store)
        yield "}"

    def products(self, site: Site, planes: Planes, request: str) -> Iterator[str]:
        """Yield a loop over pairs of quads, what is left of a matrix's rows, and the request of what follows it."""
        n, both = site.n, 2 * QUAD
        advance, store = planes.advance(site.blocks), [f"const uint unit = r + i; {site.store('unit')}"]
        last_rows = site.units(f"({n} - r - {both}u)")
        quads = [
            f"t{first + unit} = {planes.product(unit)}; {site.load_unit(planes, unit, row)}"
            for first, rows in ((0, [f"{unit}u" for unit in range(QUAD)]), (QUAD, last_rows))
            for unit, row in enumerate(rows)
        ]
        yield f"const uint turns = ({n} - 1u) / {both}u;"
        yield f"[[dont_unroll]] for (uint r = 0u; r < {both}u * turns; r += {both}u)"
        yield from self.turn(site, [advance, *quads[:QUAD], advance, *quads[QUAD:]], store, both)
        yield f"const uint r = {both}u * turns;"
        last = [self.only(unit, site, planes, unit) for unit in range(QUAD)]
        last += [f"if ({n} - r > {QUAD}u) {{ {advance} {site.load(planes, f'({n} - r - {QUAD}u)')}"]
        last += [*(self.only(unit, site, planes, QUAD + unit) for unit in range(QUAD)), "}"]
        yield from self.turn(site, [*last, request], store, both)

    def only(self, unit: int, site: Site, planes: Planes, number: int) -> str:
        """Return the product of a unit of what is left, where there is a row for it."""
        return f"if ({number}u < {site.n} - r) t{number} = {planes.product(unit)};"

    def again(self) -> Iterator[str]:
        """Yield the function that requests again what is ahead after attention, which frees its registers before.

        A sum that the compiler does not know to be zero keeps it from taking the first request.
        """
        o = self.sites["o"]
        yield "void ask_again() {"
        yield "    const uint64_t zero = uint64_t(position >> 30u);"
        yield "    p_low += zero; p_scale += zero; p_super += zero; p_high += zero;"
        yield f"    {o.each(lambda planes: o.load(planes, o.n))}"
        yield "}"

    def output_point(self) -> str:
        return self.output.point(lambda n: f"{n}ul * uint64_t(BLOCKS_X) * VOCAB")

    def output_load(self, unit: int, row: str, chunk: str) -> str:
        """Return the request of a unit of the output; ``chunk``: that of a subgroup which takes whole rows."""
        n = "CEIL(BLOCKS_X, CHUNKS_X)"
        inside = (
            f"min(wg * OF_L + min(min(warp / CHUNKS_L, WARPS / CHUNKS_L - 1u) * N_L + {row}, OF_L - 1u), VOCAB - 1u)"
        )
        block = f"min((CHUNKS_L == 1u ? {chunk} : warp % CHUNKS_L) * {n} + min(lane, {n} - 1u), BLOCKS_X - 1u)"
        number = f"({inside} * BLOCKS_X + {block})"
        return self.output.load(unit, number, f"{number} / 8u")

    def multiply_output(self) -> Iterator[str]:
        """Yield the product of the output matrix, whose rows a subgroup takes whole, or a chunk of each."""
        yield "void multiply_output() {"
        yield f"[[dont_unroll]] for (uint r = 0u; r < N_L; r += {QUAD}u)"
        whole = "(CHUNKS_L == 1u ? CHUNKS_X : 1u)"
        products = [
            f"[[dont_unroll]] for (uint c = 0u; c < {whole}; c++) {{",
            "if (CHUNKS_L == 1u) take_narrow(c, CHUNKS_X, BLOCKS_X);",
            f"const uint next = c + 1u < {whole} ? c + 1u : 0u, first = next == 0u ? r + {QUAD}u : r;",
        ]
        for unit in range(QUAD):
            ask = self.output_load(unit, f"min(first + {unit}u, N_L - 1u)", "next")
            products.append(f"t{unit} += {self.output.product(unit)}; {ask}")
        row = "const uint row = warp / CHUNKS_L * N_L + r + i;"
        real = "r + i < N_L && row < OF_L && warp / CHUNKS_L < WARPS / CHUNKS_L"
        store = [row, f"if ({real}) partial[warp % CHUNKS_L * STRIDE_L + row] = t0;"]
        yield from self.turn(self.sites["q"], [*products, "}"], store, QUAD)
        yield "}"


class TokenLoops(Loops):
    """Products of several tokens: a quad stays in its registers while loops take x of two tokens after the other.

    The requests of what follows it come behind them, so the code does not grow with the tokens. With an odd number of
    tokens the last one is computed twice.
    """

    def turn(self, site: Site, products: Sequence[str], store: Sequence[str], count: int) -> Iterator[str]:
        names = [f"t{i}" for i in range(count)]
        take = f"warp % {site.chunks}, {site.chunks}, {site.blocks}, {str(site.name == 'down').lower()}"
        yield f"[[dont_unroll]] for (uint pair = 0u; pair < TOKENS; pair += {PAIR}u) {{"
        for which in range(PAIR):
            yield f"float {', '.join(f'p{which}{i} = 0.0' for i in range(count))};"
            yield f"{{ take_x_of(min(pair + {which}u, TOKENS - 1u), {take});"
            yield f"float {', '.join(f'{name} = 0.0' for name in names)};"
            yield from products
            yield from (f"p{which}{i} = {name};" for i, name in enumerate(names))
            yield "}"
        for which in range(PAIR):
            yield f"{{ partial_from = min(pair + {which}u, TOKENS - 1u) * PARTIAL_TOKEN;"
            yield from (f"float {name} = p{which}{i};" for i, name in enumerate(names))
            yield from stored_sums(self.lanes, count, store)
            yield "}"
        yield "}"

    def products(self, site: Site, planes: Planes, request: str) -> Iterator[str]:
        n, every = site.n, [f"t{unit} = {planes.product(unit)};" for unit in range(QUAD)]
        store = [f"const uint unit = r + i; {site.store('unit')}"]
        if self.is_mixed:  # of some matrices there is code for each type, so it should be short
            yield f"[[dont_unroll]] for (uint r = 0u; r < {n}; r += {QUAD}u) {{"
            units = [f"if ({n} % {QUAD}u == 0u || {i}u < {n} - r) {code}" for i, code in enumerate(every)]
            yield from self.turn(site, units, store, QUAD)
            load = site.load(planes, f"({n} - r - {QUAD}u)")
            yield f"if (r + {QUAD}u < {n}) {{ {planes.advance(site.blocks)} {load} }} else {{ {request} }}"
            yield "}"
            return
        yield f"const uint turns = ({n} - 1u) / {QUAD}u;"
        yield f"[[dont_unroll]] for (uint r = 0u; r < {QUAD}u * turns; r += {QUAD}u) {{"
        yield from self.turn(site, every, store, QUAD)
        yield f"{planes.advance(site.blocks)} {site.load(planes, f'({n} - r - {QUAD}u)')}"
        yield "}"
        yield f"const uint r = {QUAD}u * turns;"
        yield from self.turn(site, [self.only(unit, site, planes, unit) for unit in range(QUAD)], store, QUAD)
        yield request

    def multiply_output(self) -> Iterator[str]:
        """Yield the product of the output matrix, whose step has a row of each slot for every unit that is ahead."""
        share = self.lanes // QUAD
        yield "void multiply_output() {"
        yield f"[[dont_unroll]] for (uint r = 0u; r < N_L; r += {QUAD}u) {{"
        yield f"const uint which = r / {QUAD}u & 1u;"
        yield "[[dont_unroll]] for (uint j = 0u; j < n_outputs; j++) {"
        yield "take_x_of(output_tokens[j], warp % CHUNKS_X, CHUNKS_X, BLOCKS_X, false);"
        yield from (f"float t{i} = {self.output.product(i)};" for i in range(QUAD))
        yield from sums(self.lanes, QUAD)
        yield f"const uint i = lane / {share}u, slot = warp / CHUNKS_X;"
        yield f"if (lane % {share}u == 0u && slot < WARPS / CHUNKS_X)"
        place = "which * PARTIAL_STEP + warp % CHUNKS_X * OF_STEP + slot * AHEAD + i"
        yield f"    partial[j * PARTIAL_TOKEN + {place}] = t0;"
        yield "}"
        yield from (self.output_load(unit, f"min(r + {unit + QUAD}u, N_L - 1u)", "0u") for unit in range(QUAD))
        yield "give_logits(r, which);"
        yield "}"
        yield "}"


class ExpertLoops(Loops):
    """Products of layers with experts, whose units are requested as a whole: ``Shape`` limits their number."""

    n_units = QUAD + 2 * OF_EXPERTS

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        stacked = {name: replace(self.sites[name], is_stacked=True) for name in ("gate", "up")}
        self.sites |= stacked

    def layer(self) -> Iterator[str]:
        q, k, v, o, gate, up, down = self.sites.values()
        for site, following in pairwise([q, k, v, o]):
            yield from self.multiply(site, self.request(following, "here"))
        yield from self.multiply(o, "")
        yield "const uint ROWS_D = CEIL(OF_X, WARPS), CHUNKS_E = CEIL(BLOCKS_D, LANES); // of a subgroup; of a row"
        yield from self.multiply_gate_and_up(gate, up, down)
        yield from self.multiply_down(down)

    def state(self) -> Iterator[str]:
        yield from super().state()
        yield "uint64_t at_up, at_down;"

    def addresses(self, name: str, layer: str) -> str:
        if name == "o":
            return f"{super().addresses(name, layer)} at_up = address({layer}, 5u); at_down = address({layer}, 6u);"
        return super().addresses(name, layer)

    def multiply_gate_and_up(self, gate: Site, up: Site, down: Site) -> Iterator[str]:
        """Yield the products of rows of gate and up, which one expert has, and the request of down's units."""
        yield "void multiply_gate_and_up() {"
        places = {gate: ("at_ahead", QUAD), up: ("at_up", QUAD + OF_EXPERTS)}
        for site, (address, first) in places.items():
            yield site.aim(address)
            for i in range(OF_EXPERTS):
                yield f"if ({i}u < {site.n}) {{ {site.load_unit(site.types[0], first + i, f'{i}u')} }}"
        yield "find_shares();"
        for site, (_, first) in places.items():
            products = [f"if ({i}u < {site.n}) t{i} = {site.types[0].product(first + i)};" for i in range(OF_EXPERTS)]
            yield from self.turn(site, products, [site.store("i")], OF_EXPERTS)
        yield f"{self.addresses('down', 'here')} {down.find_flag('at_down')}"
        blocks = "CEIL(BLOCKS_D, CHUNKS_E)"
        for i in range(OF_EXPERTS):
            yield f"if ({i}u < ROWS_D * CHUNKS_E) {{ const uint64_t at = at_down;"
            yield f"const uint row = wg * OF_X + min(warp * ROWS_D + {i}u / CHUNKS_E, OF_X - 1u);"
            yield f"const uint block = min({i}u % CHUNKS_E * {blocks} + min(lane, {blocks} - 1u), BLOCKS_D - 1u);"
            yield "const uint number = (chosen[block / BLOCKS_E] * WIDTH + min(row, WIDTH - 1u)) * BLOCKS_E"
            yield f"+ block % BLOCKS_E; {down.point('EXPERTS * WIDTH', 'BLOCKS_E')}"
            yield down.each(lambda planes, unit=QUAD + i: planes.load(unit, "0u", "0u")) + " }"
        yield "}"

    def multiply_down(self, down: Site) -> Iterator[str]:
        """Yield the products of down's rows, each of which a subgroup has as a whole."""
        yield "void multiply_down(bool last) { float sum = 0.0;"
        for i in range(OF_EXPERTS):
            product = down.each(lambda planes, unit=QUAD + i: f"sum += {planes.product(unit)};")
            yield f"if ({i}u < ROWS_D * CHUNKS_E) {{ take_narrow({i}u % CHUNKS_E, CHUNKS_E, BLOCKS_D); {product} }}"
            yield f"if ({i}u < ROWS_D * CHUNKS_E && {i + 1}u % CHUNKS_E == 0u) {{ sum = subgroupAdd(sum);"
            yield f"const uint row = warp * ROWS_D + {i}u / CHUNKS_E;"
            yield "if (lane == 0u && row < OF_X) partial[row] = sum; sum = 0.0; }"
        yield f"{self.request_next()} }}"


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


def stored_sums(lanes: int, count: int, store: Sequence[str]) -> Iterator[str]:
    """Yield the sums of ``count`` values, and what stores value i, which is t0 of its lane."""
    share = lanes // count
    yield from sums(lanes, count)
    yield f"const uint i = lane / {share}u;"
    yield f"if (lane % {share}u == 0u) {{"
    yield from store
    yield "}"


def texts() -> dict[str, str]:
    """Return GLSL by the name by which shaders include it."""
    units = {f"persistent_{'token_' * several}units.glsl": text(several) for several in (False, True)}
    return {**units, "persistent_constants.glsl": constants()}


def constants() -> str:
    """Return the specialization constants of families, whose values are those of an example."""
    lines, example = [], next(shape for shape in FAMILIES.values() if shape.experts)  # of which no size is 0
    for number, (name, value) in enumerate(example.numbers.items()):
        kind = type(value).__name__.replace("int", "uint")
        literal = str(value).lower() + "u" * (kind == "uint")
        lines.append(f"layout(constant_id = {number}) const {kind} {name} = {literal};\n")
    return "".join(lines)


def text(several: bool) -> str:
    """Return a part for each family."""
    parts = []
    for name, shape in FAMILIES.items():
        loops = TokenLoops(shape) if several else ExpertLoops(shape) if shape.experts else Loops(shape)
        parts.append(f"#ifdef {name}\n{loops.text}#endif\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(*texts().values(), sep="\n", end="")
