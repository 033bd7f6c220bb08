"""The products of steps with several tokens in shaders/persistent.comp: each unit is multiplied with all of them.

The units and their order are those of a single token (straight_line.py, rolled_quads.py). Those that are multiplied
together stay in their registers while a loop takes x of one token after the other; then the registers are free for the
units that are asked for ahead. So the code does not grow with the tokens, and half of the units ahead are under way
meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tools.rolled_quads import QUAD, Divided, Quads, Rows, product, sums
from tools.straight_line import Matrix, Units

TOKEN, OUTPUT = "t", "j"  # loop variables: a token, and a row of logits


def _begin(matrix: Divided) -> Iterator[str]:
    """Yield the beginning of a loop that takes x of each token."""
    gated = str(matrix.name == "down").lower()
    yield f"[[dont_unroll]] for (uint {TOKEN} = 0u; {TOKEN} < TOKENS; {TOKEN}++) {{"
    yield f"take_x_of({TOKEN}, warp % {matrix.chunks}u, {gated});"


def _output(output: Divided, products: Sequence[str], requests: Sequence[str]) -> Iterator[str]:
    """Yield the product of the output matrix, whose step has a row of each slot for every unit that is ahead."""
    ahead = len(products)
    yield "void multiply_output() {"
    yield f"[[dont_unroll]] for (uint r = 0u; r < {output.n}u; r += {ahead}u) {{"
    yield f"const uint which = r / {ahead}u & 1u;"
    yield f"[[dont_unroll]] for (uint {OUTPUT} = 0u; {OUTPUT} < n_outputs; {OUTPUT}++) {{"
    yield f"take_x_of(token_of_output({OUTPUT}), warp % {output.chunks}u, false);"
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
    """Units for several tokens."""

    def multiply(self, matrix: Matrix) -> Iterator[str]:
        yield f"void multiply_{matrix.name}(bool last) {{"
        for first in range(0, matrix.n, QUAD):
            units = range(matrix.unit + first, matrix.unit + min(first + QUAD, matrix.n))
            count = 1 << (len(units) - 1).bit_length()
            yield "{"
            yield from _begin(matrix)
            for i in range(count):
                yield f"float t{i} = {matrix.product(units[i]) if i < len(units) else '0.0'};"
            yield from sums(self.shape.lanes, count)
            share = self.shape.lanes // count
            yield f"const uint slot = warp / {matrix.chunks}u, i = lane / {share}u;"
            yield f"const uint row = slot * {matrix.n}u + {first}u + i;"
            mine = f"lane % {share}u == 0u && i < {len(units)}u && row < {matrix.of_group}u && slot < {matrix.slots}u"
            place = f"warp % {matrix.chunks}u * {matrix.stride} + {matrix.first} + row"
            yield f"if ({mine}) partial[{TOKEN} * PARTIAL_TOKEN + {place}] = t0;"
            yield "}"
            for unit in units:
                yield self.request(unit + self.shape.ahead)
            yield "}"
        yield "}"

    def multiply_output(self) -> Iterator[str]:
        output, ahead = self.output, self.shape.ahead
        products = [output.product(unit) for unit in range(ahead)]
        loads = [output.load(unit, f"min(r + {unit + ahead}u, {output.n - 1}u)") for unit in range(ahead)]
        return _output(output, products, loads)


class TokenQuads(Quads):
    """Quads for several tokens."""

    def batch(self, matrix: Rows, indices: Sequence[int], six: bool, moved: int, row: str) -> Iterator[str]:
        for number, index in enumerate(indices):
            yield "{"
            yield from _begin(matrix)
            yield from self.quad_products(index, six, 0)
            yield from sums(self.shape.lanes, QUAD)
            share = self.shape.lanes // QUAD
            yield f"const uint slot = warp / {matrix.chunks}u, i = lane / {share}u;"
            place = self.row_of_sum(matrix, f"{row} + {QUAD * number}u")
            yield f"if (lane % {share}u == 0u && slot < {matrix.slots}u)"
            partial = f"{TOKEN} * PARTIAL_TOKEN + warp % {matrix.chunks}u * {matrix.stride} + {place}"
            yield f"    partial[{partial}] = t0;"
            yield "}"
            yield self.requests(index, six, moved)
            yield "}"

    def multiply_output(self) -> Iterator[str]:
        output, ahead = self.output, self.shape.ahead
        products = [product(unit, True) for unit in range(ahead)]
        loads = [self.output_load(unit, f"min(r + {unit + ahead}u, {output.n - 1}u)") for unit in range(ahead)]
        return _output(output, products, loads)
