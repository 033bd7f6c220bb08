"""Steps that a program takes by itself under a grammar: masks are found while it computes, forced tokens are read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from guessing_programs import GREEDY, IDS, N_VOCAB, PROMPTS, RANDOM, Behind, Cells, engine, request, run
from pumice.engine import Engine, Generation, Preparer, Request
from pumice.sampler import MaskSampler, SamplerContext, mask
from pumice_samplers import SAMPLERS

Add = Callable[[Engine, Request], Generation]
pytestmark = pytest.mark.usefixtures("patient")


@dataclass
class Grammar(MaskSampler):
    """Every third token is any below ``width``, the two after it follow from it; ``length`` tokens in all; 0: off."""

    length: int = 0
    width: int = 20
    knows: bool = False  # what comes next in any case

    def start(self, context: SamplerContext) -> None:
        self.n_prompt, self.seen = 0, []

    def accept(self, token: int) -> None:
        self.seen.append(token)

    def mask(self) -> np.ndarray | None:
        if not self.length:
            return None
        written = self.seen[3:]
        if len(written) == self.length:
            return mask.from_tokens([], N_VOCAB)
        allowed = [written[-1] + 1] if len(written) % 3 else range(self.width)
        return mask.from_tokens(allowed, N_VOCAB)

    def forced(self) -> Sequence[int]:
        written = self.seen[3:]
        left = min(-len(written) % 3, self.length - len(written)) if self.knows else 0
        return [written[-1] + 1 + i for i in range(left)]


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Add:
    """Adds a sequence, whose chain begins with the grammar."""
    monkeypatch.setitem(SAMPLERS, "grammar", Grammar)
    order = ["grammar", *(name for name in SAMPLERS if name != "grammar")]

    def add(made: Engine, each: Request) -> Generation:
        prepare = Preparer(made.limits.n_ctx, N_VOCAB, lambda: None, SAMPLERS, order)
        (generation,) = prepare.generations([next(IDS)], each)
        made.add(generation)
        return generation

    return add


@pytest.mark.parametrize(
    "sampling", [GREEDY, RANDOM, {**RANDOM, "dry_multiplier": 2.0}], ids=["greedy", "random", "dry"]
)
@pytest.mark.parametrize(("length", "knows"), [(0, False), (31, False), (31, True)])
def test_restrictions_are_found_while_the_program_computes(
    add: Add, sampling: dict[str, Any], length: int, knows: bool
) -> None:
    """Tokens are those of the host's choice; steps are queued behind others until a mask forces several tokens."""
    results = []
    for program in (Cells(0), Behind(8)):
        made = engine(program, 256)
        asked = [
            request(prompt, {**sampling, "length": n, "knows": knows}, 60)
            for prompt, n in zip(PROMPTS[1:4], [length, 0, length], strict=True)
        ]
        generations = [add(made, each) for each in asked]
        run(made)
        results.append([(each.generated, each.finish_reason) for each in generations])
    assert results[1] == results[0]
    if length or "dry_multiplier" in sampling:
        assert any(len(asked) == 3 and asked[2] for asked in program.asked)


@pytest.mark.parametrize("steps", [0, 8])
@pytest.mark.parametrize("sampling", [GREEDY, RANDOM], ids=["greedy", "random"])
def test_forced_tokens_are_computed_like_a_prompt(add: Add, steps: int, sampling: dict[str, Any]) -> None:
    program = Cells(steps)
    made = engine(program)
    generation = add(made, request(PROMPTS[1], {**sampling, "length": 30}, 50))
    run(made)
    assert (len(generation.generated), generation.finish_reason) == (30, "stop")
    firsts = generation.generated[::3]
    assert all(first < 20 for first in firsts)
    assert len(set(firsts)) > 1
    assert generation.generated == [first + i for first in firsts for i in range(3)]
    assert len(program.asked) <= 1 + 10, "one step for three tokens"
