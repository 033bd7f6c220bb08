"""The products of steps with several tokens in shaders/persistent.comp: each unit is multiplied with all of them.

The units and their order are those of a single token (straight_units.py, rolled_quads.py), but fewer are ahead. Those
that are multiplied together stay in their registers while a loop takes x of one token after the other; then the
registers are free for the units that are asked for ahead. So the code does not grow with the tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pumice_vulkan.persistent.division import Shape
from tools.rolled_quads import QUAD, Divided, Planes, Quads, Rows, sums
from tools.straight_units import Matrix, Units

TOKEN, OUTPUT = "t", "j"  # loop variables: a token, and a row of logits
PAIR = 2  # tokens whose products share the unpacked codes of units


def _begin(matrix: Divided) -> Iterator[str]:
    """Yield the beginning of a loop that takes x of each token."""
    gated = str(matrix.name == "down").lower()
    yield f"[[dont_unroll]] for (uint {TOKEN} = 0u; {TOKEN} < TOKENS; {TOKEN}++) {{"
    yield f"take_x_of({TOKEN}, warp % {matrix.chunks}u, {gated});"


def _output(
    output: Divided, products: Sequence[str], requests: Sequence[str], first: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the product of the output matrix, whose step has a row of each slot for every unit that is ahead.

    ``first``: requests of the first step, unless they are made before.
    """
    ahead = len(products)
    yield "void multiply_output() {"
    yield from first
    yield f"[[dont_unroll]] for (uint r = 0u; r < {output.count}; r += {ahead}u) {{"
    yield f"const uint which = r / {ahead}u & 1u;"
    yield f"[[dont_unroll]] for (uint {OUTPUT} = 0u; {OUTPUT} < n_outputs; {OUTPUT}++) {{"
    yield f"take_x_of(output_tokens[{OUTPUT}], warp % {output.chunks}u, false);"
    for i, code in enumerate(products):
        yield f"float t{i} = {code};"
    yield from sums(output.shape.lanes, ahead)
    share = output.shape.lanes // ahead
    yield f"const uint i = lane / {share}u, slot = warp / {output.chunks}u;"
    yield f"if (lane % {share}u == 0u && slot < {output.slots}u)"
    place = f"which * PARTIAL_STEP + warp % {output.chunks}u * OF_STEP + slot * AHEAD + i"
    yield f"    partial[{OUTPUT} * PARTIAL_TOKEN + {place}] = t0;"
    yield "}"
    yield from requests
    yield "give_logits(r, which);"
    yield "}"
    yield "}"


class TokenUnits(Units):
    """Units for several tokens; those of queries, keys and values are multiplied at once.

    Those of the output are requested when its product begins: if they were ahead like others, registers for their six
    bits would be taken through all layers. Behind the last layer its own first units are requested once more.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.few = self.matrices[:3]
        assert sum(matrix.n for matrix in self.few) == QUAD
        assert self.few[1].n == self.few[2].n == 1

    def request(self, unit: int) -> str:
        matrix, own = self.of(unit % self.n), unit % self.n
        load = matrix.load(own, f"{own - matrix.unit}u")
        return load if unit < self.n else load.replace("here_", "there_")

    def multiply(self, matrix: Matrix) -> Iterator[str]:
        yield f"void multiply_{matrix.name}(bool last) {{"
        if matrix is self.few[-1]:
            yield from self.turn(matrix, range(QUAD), self.store_few())
        elif matrix not in self.few:
            for first in range(0, matrix.n, QUAD):
                row = f"slot * {matrix.n}u + {first}u + i"
                units = range(matrix.unit + first, matrix.unit + min(first + QUAD, matrix.n))
                real = f"i < {len(units)}u && {row} < {matrix.of_group}u && slot < {matrix.slots}u"
                yield from self.turn(matrix, units, [f"if ({real})", self.partial(matrix, matrix.first, row)])
        yield "}"

    def partial(self, matrix: Matrix, first: str, row: str) -> str:
        place = f"{TOKEN} * PARTIAL_TOKEN + warp % {matrix.chunks}u * {matrix.stride} + {first} + {row}"
        return f"partial[{place}] = t0;"

    def store_few(self) -> list[str]:
        """Return the code that keeps the sum of a row of queries, keys or values."""
        q, k, v = self.few
        return [
            f"const bool is_query = i < {q.n}u;",
            f"const uint row = is_query ? slot * {q.n}u + i : slot;",
            f"const uint of = is_query ? {q.of_group}u : {k.of_group}u;",
            f"const uint first = is_query ? {q.first} : i == {q.n}u ? {k.first} : {v.first};",
            f"if (slot < {q.slots}u && row < of) {self.partial(q, 'first', 'row')}",
        ]

    def turn(self, matrix: Matrix, units: range, store: Sequence[str]) -> Iterator[str]:
        """Yield the products of some units of matrices of one width, and the requests of those that are ahead.

        A loop takes two tokens, for which codes are unpacked once; with an odd number the last one is computed twice.
        """
        count = 1 << (len(units) - 1).bit_length()
        share = self.shape.lanes // count
        yield "{"
        yield f"[[dont_unroll]] for (uint pair = 0u; pair < TOKENS; pair += {PAIR}u) {{"
        for which in range(PAIR):
            gated = str(matrix.name == "down").lower()
            yield f"take_x_of(min(pair + {which}u, TOKENS - 1u), warp % {matrix.chunks}u, {gated});"
            for i in range(count):
                yield f"float p{which}{i} = {matrix.product(units[i]) if i < len(units) else '0.0'};"
        for which in range(PAIR):
            yield "{"
            yield f"const uint {TOKEN} = min(pair + {which}u, TOKENS - 1u);"
            yield from (f"float t{i} = p{which}{i};" for i in range(count))
            yield from sums(self.shape.lanes, count)
            yield f"const uint slot = warp / {matrix.chunks}u, i = lane / {share}u;"
            yield f"if (lane % {share}u == 0u) {{"
            yield from store
            yield "}"
            yield "}"
        yield "}"
        for unit in units:
            yield self.request(unit + self.shape.ahead)
        yield "}"

    def multiply_output(self) -> Iterator[str]:
        output, ahead = self.output, self.shape.ahead
        products = [output.product(unit) for unit in range(ahead)]
        first = [output.load(unit, f"{unit}u") for unit in range(ahead)]
        loads = [output.load(unit, f"min(r + {unit + ahead}u, {output.last})") for unit in range(ahead)]
        return _output(output, products, loads, first)


class TokenQuads(Quads):
    """Quads for several tokens."""

    def batch(self, matrix: Rows, indices: Sequence[int], planes: Planes, moved: int, row: str) -> Iterator[str]:
        for number, index in enumerate(indices):
            yield "{"
            yield from _begin(matrix)
            yield from self.quad_products(index, planes, 0)
            yield from sums(self.shape.lanes, QUAD)
            share = self.shape.lanes // QUAD
            yield f"const uint slot = warp / {matrix.chunks}u, i = lane / {share}u;"
            place = self.row_of_sum(matrix, f"{row} + {QUAD * number}u")
            yield f"if (lane % {share}u == 0u && slot < {matrix.slots}u)"
            partial = f"{TOKEN} * PARTIAL_TOKEN + warp % {matrix.chunks}u * {matrix.stride} + {place}"
            yield f"    partial[{partial}] = t0;"
            yield "}"
            yield self.requests(index, planes, moved)
            yield "}"

    def multiply_output(self) -> Iterator[str]:
        output, ahead = self.output, self.shape.ahead
        products = [output.types[0].product(unit) for unit in range(ahead)]
        loads = [self.output_load(unit, f"min(r + {unit + ahead}u, {output.last})") for unit in range(ahead)]
        return _output(output, products, loads)
