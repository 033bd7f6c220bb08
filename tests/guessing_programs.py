"""Programs that take steps by themselves, and an engine around one, for tests of lookahead."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from drafting import PROPOSERS
from pumice.architecture import MAIN
from pumice.backend import Capabilities, Program
from pumice.backend.pick import Ahead, Ask, Pick, PickLimits, Restriction
from pumice.backend.step import LATEST, Batch, Limits, Pending, Step
from pumice.engine import Engine, Generation, Preparer, Request
from pumice.engine.drafts.speculation import Speculation
from pumice.engine.placement.programs import SegmentProgram
from pumice.sampler import mask
from pumice_samplers import SAMPLERS

N_VOCAB = 50
IDS = count()  # of requests
BLOCK = 32
PROMPTS = [[5], [7, 8, 9], list(range(10, 30)), [1, 2, 3, 4], [44] * 9]
GREEDY = {"temperature": 0.0}
RANDOM = {"temperature": 1.3, "top_k": 12, "top_p": 0.9, "min_p": 0.01}


class Picked(Pending):
    """Steps whose tokens are known."""

    def __init__(self, ahead: Ahead) -> None:
        self._ahead = ahead

    def tokens(self) -> Iterator[Ahead]:
        yield self._ahead


class Cells(Program):
    """Logits that depend on all tokens of a sequence, read from the cells of its blocks."""

    more: ClassVar[dict[str, Any]] = {}  # that it can

    def __init__(self, steps: int) -> None:
        self.capabilities = Capabilities(max_steps=steps, picks=PickLimits(16, added=40), **self.more)
        self.asked: list[tuple[int, ...]] = []  # sequences, steps, and whether they follow others
        self.cells: dict[int, Any] = {}

    @property
    def memory(self) -> dict[str, int]:
        return {}

    def run(self, step: Step) -> Mapping[str, Any]:
        rows, batch = [], step.batch
        for s in range(len(batch.slots)):
            for row in range(batch.seq_starts[s], batch.seq_starts[s + 1]):
                rows.append(self.logits(batch, s, batch.tokens[row], batch.positions[row]))
        self.asked.append((len(batch.slots), 0))
        return {"logits": np.stack([rows[i] for i in batch.output_ids]) if len(batch.output_ids) else np.empty((0, 0))}

    def submit(self, step: Step) -> Pending:
        return Picked(self.pick_all(step.batch, step.ask)) if step.ask else super().submit(step)

    def pick_all(self, batch: Batch, ask: Ask) -> Ahead:
        (n_steps, n_seqs), n_best, restrictions = ask.numbers.shape, ask.n_best, ask.restrictions
        self.asked.append((n_seqs, n_steps))
        if len(batch.tokens) > n_seqs:
            return self.read(batch, ask)
        ids, logits = np.empty((n_steps, n_seqs, n_best), np.int32), np.empty((n_steps, n_seqs, n_best), np.float32)
        picked = np.empty((n_steps, n_seqs), np.int32)
        tokens = batch.tokens
        for step in range(n_steps):
            for s in range(n_seqs):
                row = self.logits(batch, s, tokens[s], batch.positions[s] + step)
                row = restricted(row, restrictions[s]) if restrictions else row
                ids[step, s] = np.argsort(-row, kind="stable")[:n_best]
                logits[step, s] = row[ids[step, s]]
                picked[step, s] = self.pick(ask.picks[s], logits[step, s], ids[step, s], ask.numbers[step, s])
            tokens = picked[step]
        return Ahead(ids, logits, picked)

    def read(self, batch: Batch, ask: Ask) -> Ahead:
        """One step of any batch."""
        rows = [
            restricted(row, ask.restrictions[i]) if ask.restrictions else row
            for i, row in enumerate(self.run(Step(batch))["logits"])
        ]
        self.asked.pop()
        ids = np.array([np.argsort(-row, kind="stable")[: ask.n_best] for row in rows], np.int32)
        logits = np.array([row[best] for row, best in zip(rows, ids, strict=True)])
        picked = [self.pick(*each) for each in zip(ask.picks, logits, ids, ask.numbers[0], strict=True)]
        return Ahead(ids[None], logits[None], np.array([picked], np.int32))

    def logits(self, batch: Batch, s: int, token: int, position: int) -> np.ndarray:
        table = batch.block_tables[0][s]
        blocks = table[: position // BLOCK + 1]
        assert (blocks >= 0).all()
        self.cells[blocks[-1] * BLOCK + position % BLOCK] = int(token)
        past = [self.cells[blocks[p // BLOCK] * BLOCK + p % BLOCK] for p in range(position + 1)]
        return np.random.default_rng(past).standard_normal(N_VOCAB).astype(np.float32)

    def pick(self, pick: Pick, logits: np.ndarray, ids: np.ndarray, number: float) -> int:
        if pick.temperature == 0:
            return int(ids[0])
        p = np.exp(logits[: pick.top_k].astype(np.float64) - logits[0])
        n = int(np.searchsorted(np.cumsum(p) / p.sum(), pick.top_p)) + 1
        n = min(n, int((p >= pick.min_p).sum()))
        sums = np.cumsum(p[:n] ** (1 / pick.temperature))
        return int(ids[np.searchsorted(sums, number * sums[-1], side="right")])


def restricted(logits: np.ndarray, restriction: Restriction) -> np.ndarray:
    logits = logits.copy()
    for token, value in restriction.biases:
        logits[token] += np.float32(value)
    if restriction.mask is not None:
        logits[~mask.allows(restriction.mask, np.arange(N_VOCAB))] = -np.inf
    return logits


class Slots(Cells):
    """Give the same logits from a recurrent state for each slot: all earlier tokens."""

    copied = 0

    def logits(self, batch: Batch, s: int, token: int, position: int) -> np.ndarray:
        slot = int(batch.slots[s])
        past = [] if position == 0 else self.cells[slot]
        assert len(past) == position, "the state is that of another position"
        self.cells[slot] = [*past, int(token)]
        return np.random.default_rng(self.cells[slot]).standard_normal(N_VOCAB).astype(np.float32)

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        assert len({slot for pair in pairs for slot in pair}) == 2 * len(pairs)
        self.copied += len(pairs)
        for source, target in pairs:
            self.cells[target] = self.cells.get(source, [])


class Behind(Cells):
    """Takes steps behind those that nobody has looked at."""

    more: ClassVar[dict[str, Any]] = {"registers": True}

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.latest: dict[int, int] = {}  # tokens of slots
        self.last_slots: list[int] = []
        self.taken: list[int] = []  # tokens of slots, of each step with others than the step before

    def submit(self, step: Step) -> Pending:
        if not step.ask:
            pending = super().submit(replace(step, batch=self.known(step.batch)))
            return Read(pending.outputs())
        if any(pick.restricted for pick in step.ask.picks) and not step.ask.restrictions:
            return Waiting(self, step)
        return Picked(self.go_on(step, step.ask))

    def known(self, batch: Batch) -> Batch:
        """The batch with the latest tokens of its slots."""
        tokens, rows = batch.tokens.copy(), np.flatnonzero(batch.tokens == LATEST)
        if len(tokens) > len(batch.slots) or self.last_slots != batch.slots.tolist():
            self.taken += [len(rows)] if len(rows) else []
        self.last_slots = batch.slots.tolist()
        for row, slot in zip(rows, batch.slots[_sequences(batch, rows)].tolist(), strict=True):
            tokens[row] = self.latest[slot]
        return replace(batch, tokens=tokens)

    def go_on(self, step: Step, ask: Ask) -> Ahead:
        batch = self.known(step.batch)
        ahead = self.pick_all(batch, ask)
        slots = batch.slots[_sequences(batch, batch.output_ids)].tolist()
        self.latest |= zip(slots, ahead.picked[-1].tolist(), strict=True)
        self.asked[-1] = *self.asked[-1], bool((step.batch.tokens == LATEST).all())
        return ahead


def _sequences(batch: Batch, rows: np.ndarray) -> np.ndarray:
    return np.searchsorted(batch.seq_starts, rows, side="right") - 1


class Read(Pending):
    """A step that was computed when it was submitted."""

    def __init__(self, outputs: Mapping[str, Any]) -> None:
        self._outputs = outputs

    def outputs(self) -> Mapping[str, Any]:
        return self._outputs


class Waiting(Pending):
    """A step whose restrictions are still to come."""

    def __init__(self, program: Behind, step: Step) -> None:
        self._program, self._step = program, step

    def restrict(self, restrictions: Sequence[Restriction]) -> None:
        assert self._step.ask is not None
        self._ahead = self._program.go_on(self._step, replace(self._step.ask, restrictions=restrictions))

    def tokens(self) -> Iterator[Ahead]:
        yield self._ahead


class SlotsBehind(Slots, Behind):
    """Have recurrent states, which steps beyond the end of a sequence have changed."""


class WaryBehind(Behind):
    """Now and then it cannot say which logit is the highest."""

    def go_on(self, step: Step, ask: Ask) -> Ahead:
        ahead = super().go_on(step, ask)
        if len(self.asked) % 5 == 0:
            ahead.logits[-1, 0, 0] = np.nan
        return ahead


class Wary(WaryBehind, SlotsBehind):
    """Have states, too."""


@dataclass
class Runner:
    """The part of a runner that the engine uses."""

    program: Cells
    limits: Limits

    def __post_init__(self) -> None:
        self.lost = False
        self.has_registers = self.program.capabilities.registers
        self.keeps_states = isinstance(self.program, Slots)
        self.model = SimpleNamespace(encodes=False, whole=frozenset(), recurrent=self.keeps_states)
        self.cache = SegmentProgram(self.program)
        self.capabilities = self.program.capabilities

    def prepare_drafts(self) -> None:
        self.program.prepare_drafts()

    @property
    def prepares_drafts(self) -> bool:
        return self.program.prepares_drafts

    def outputs(self, batch: Batch) -> Mapping[str, Any]:
        return self.submit(batch).outputs()

    def picks(self, batch: Batch) -> bool:
        return self.capabilities.max_steps > 0

    def submit(self, batch: Batch, ask: Ask | None = None, graph: str = MAIN) -> Pending:
        assert graph == MAIN
        return self.program.submit(Step(batch, {}, ask))


def engine(
    program: Cells,
    n_ctx: int = 128,
    n_seqs: int = 5,
    n_batch: int = 64,
    n_checkpoints: int = 12,
    lookahead: int = -1,
    speculation: Speculation | None = None,
) -> Engine:
    limits = Limits(n_ctx, n_batch, 64, n_seqs, BLOCK, {0: n_ctx // BLOCK}, "f32", {}, n_checkpoints)
    return Engine(Runner(program, limits), lookahead=lookahead, speculation=speculation)


def request(prompt: list[int], sampling: Mapping[str, Any], max_tokens: int, **options: Any) -> Request:
    return Request(prompt, max_tokens, {**sampling, "seed": sum(prompt)}, **options)


def add(made: Engine, each: Request) -> Generation:
    prepare = Preparer(made.limits.n_ctx, N_VOCAB, lambda: None, SAMPLERS, list(SAMPLERS), proposers=PROPOSERS)
    (generation,) = prepare.generations([next(IDS)], each)
    made.add(generation)
    return generation


def run(made: Engine) -> None:
    """Step until nothing is left to do."""
    while made.busy:
        made.step()


def generate(made: Engine, requests: list[Request]) -> list[tuple[list[int], str | None]]:
    generations = [add(made, each) for each in requests]
    run(made)
    return [(generation.generated, generation.finish_reason) for generation in generations]
