"""Steps in a row that a program takes by itself: however wrong its guesses, sequences get what they get otherwise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from pumice.backend import Program
from pumice.engine import Engine, Generation, Preparer, Request, lone
from pumice.engine import lookahead as lookahead_module
from pumice.engine.generation import Running
from pumice.engine.kv_cache import KVCache
from pumice.engine.messages import Output
from pumice.pick import Ahead, Ask, Pick, Restriction
from pumice.sampler import Candidates, Sampler, SamplerContext, mask
from pumice.step import Batch, Limits
from pumice_samplers import SAMPLERS

N_VOCAB = 50
BLOCK = 32
PROMPTS = [[5], [7, 8, 9], list(range(10, 30)), [1, 2, 3, 4], [44] * 9]
GREEDY = {"temperature": 0.0}
RANDOM = {"temperature": 1.3, "top_k": 12, "top_p": 0.9, "min_p": 0.01}


class Cells(Program):
    """Logits that depend on all tokens of a sequence, read from the cells of its blocks."""

    def __init__(self, steps: int, wrong: int = 0) -> None:
        self.max_steps_ = steps
        self.wrong = wrong  # every so many guesses
        self.guesses = 0
        self.asked: list[tuple[int, ...]] = []  # sequences, steps, and whether they follow others
        self.cells: dict[int, Any] = {}

    @property
    def memory(self) -> dict[str, int]:
        return {}

    @property
    def max_steps(self) -> int:
        return self.max_steps_

    @property
    def max_best(self) -> int:
        return 16

    def run(self, inputs: Mapping[str, Any], batch: Batch) -> Mapping[str, Any]:
        rows = []
        for s in range(len(batch.slots)):
            for row in range(batch.seq_starts[s], batch.seq_starts[s + 1]):
                rows.append(self.logits(batch, s, batch.tokens[row], batch.positions[row]))
        self.asked.append((len(batch.slots), 0))
        return {"logits": np.stack([rows[i] for i in batch.output_ids]) if len(batch.output_ids) else np.empty((0, 0))}

    def run_ahead(self, batch: Batch, ask: Ask, inputs: Any = None) -> Ahead:
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
            for i, row in enumerate(self.run({}, batch)["logits"])
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
        self.guesses += 1
        if self.wrong and self.guesses % self.wrong == 0:
            return int(ids[-1] + 1) % N_VOCAB
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
    """The same logits, from a recurrent state for each slot: all tokens before."""

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
    """Decides, and takes steps behind those that nobody has looked at."""

    decides = follows = True
    max_added = 40
    last: np.ndarray | None = None

    def submit_ahead(self, batch: Batch, ask: Ask, follows: bool = False) -> Callable[[], Ahead]:
        if follows:
            assert self.last is not None
            batch = replace(batch, tokens=self.last)
        ahead = self.run_ahead(batch, ask)
        self.last = ahead.picked[-1]
        self.asked[-1] = *self.asked[-1], follows
        return lambda: ahead

    def submit_layers(
        self, batch: Batch, ask: Ask, follows: bool = False
    ) -> Callable[[Sequence[Restriction]], Callable[[], Ahead]]:
        return lambda restrictions: self.submit_ahead(batch, replace(ask, restrictions=restrictions), follows)


class SlotsBehind(Slots, Behind):
    """The same with recurrent states, which have seen steps beyond the end of a sequence."""


class Wary(SlotsBehind):
    """Now and then it cannot say which logit is the highest."""

    def submit_ahead(self, batch: Batch, ask: Ask, follows: bool = False) -> Callable[[], Ahead]:
        result = super().submit_ahead(batch, ask, follows)
        if len(self.asked) % 5 == 0:
            result().logits[-1, 0, 0] = np.nan
        return result


@dataclass
class Runner:
    """What the engine uses of one."""

    program: Cells
    limits: Limits
    ahead: Program | None = field(init=False)
    n_in_flight: int = 1

    def __post_init__(self) -> None:
        self.encodes = False
        self.recurrent = self.keeps_states = isinstance(self.program, Slots)
        self.ahead = self.program if self.program.max_steps else None

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.program.copy_slots(pairs)

    def is_ahead(self, batch: Batch) -> bool:
        return self.ahead is not None

    def run(self, batch: Batch) -> np.ndarray:
        return self.program.run({}, batch)["logits"]


def engine(program: Cells, n_ctx: int = 128, n_seqs: int = 5, n_batch: int = 64, n_checkpoints: int = 12) -> Engine:
    n_blocks = {0: n_ctx // BLOCK}
    return Engine(Runner(program, Limits(n_ctx, n_batch, 64, n_seqs, BLOCK, n_blocks, "f32", {}, n_checkpoints)))


def request(prompt: list[int], sampling: Mapping[str, Any], max_tokens: int, **options: Any) -> Request:
    return Request(prompt, max_tokens, {**sampling, "seed": sum(prompt)}, **options)


def add(made: Engine, each: Request) -> Generation:
    prepare = Preparer(made.limits.n_ctx, N_VOCAB, lambda: None, SAMPLERS, list(SAMPLERS))
    (generation,) = prepare([0], each)
    made.add(generation)
    return generation


def generate(made: Engine, requests: list[Request]) -> list[tuple[list[int], str | None]]:
    generations = [add(made, each) for each in requests]
    while made.busy:
        made.step()
    return [(generation.generated, generation.finish_reason) for generation in generations]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of steps does not depend on the clock."""
    monkeypatch.setattr(lookahead_module, "SECONDS", 1e9)


@pytest.mark.parametrize("wrong", [0, 1, 3, 7])
@pytest.mark.parametrize("sampling", [GREEDY, RANDOM], ids=["greedy", "random"])
@pytest.mark.parametrize("n_prompts", [1, 5])
@pytest.mark.parametrize("kind", [Cells, Slots])
def test_wrong_guesses_change_nothing(kind: type[Cells], sampling: dict[str, Any], wrong: int, n_prompts: int) -> None:
    lengths = [40, 13, 1, 29, 2]
    program = kind(steps=8, wrong=wrong)

    def requests() -> list[Request]:
        pairs = zip(PROMPTS[-n_prompts:], lengths, strict=False)
        return [request(prompt, sampling, n) for prompt, n in pairs]

    expected = generate(engine(Cells(steps=0), 256), requests())
    assert generate(engine(program, 256), requests()) == expected
    assert [len(tokens) for tokens, _ in expected] == lengths[:n_prompts]
    assert max(n_steps for _, n_steps in program.asked) >= {0: 8, 1: 1, 3: 2, 7: 4}[wrong]


@pytest.mark.parametrize("sampling", [GREEDY, RANDOM], ids=["greedy", "random"])
@pytest.mark.parametrize("n_ctx", [96, 256])
@pytest.mark.parametrize("kind", [Behind, SlotsBehind, Wary])
def test_steps_behind_others_change_nothing(kind: type[Behind], sampling: dict[str, Any], n_ctx: int) -> None:
    """Sequences end by length and by end tokens, are cancelled, run out of blocks, and come in meanwhile."""
    lengths = [60, 33, 1, 49, 20]

    def run(program: Cells) -> list[tuple[list[int], str | None]]:
        made = engine(program, n_ctx)
        ends = frozenset([11])
        pairs = list(zip(PROMPTS, lengths, strict=True))
        first = [add(made, request(prompt, sampling, n, end_tokens=ends)) for prompt, n in pairs[:3]]
        for _ in range(2):
            made.step()
        later = [add(made, request(prompt, sampling, n, end_tokens=ends)) for prompt, n in pairs[3:]]
        while made.busy:
            made.step()
        with lone.sequence(made) as (_, forward):
            forward([1, 2], 0, [1])
        return [(each.generated, each.finish_reason) for each in [*first, *later]]

    program = kind(steps=8)
    assert run(program) == run(Cells(steps=0))
    assert any(len(asked) == 3 and asked[2] for asked in program.asked)


def test_states_that_have_seen_more_are_no_prefix() -> None:
    """What an ended sequence has of use is found; the state beyond its end is not."""
    program, ends = SlotsBehind(steps=8), frozenset([11])
    made = engine(program, 256)
    first = add(made, request(PROMPTS[2], RANDOM, 60, end_tokens=ends))
    while made.busy:
        made.step()
    assert program.copied <= 1, "nothing is copied to be taken back"
    prompt = [*PROMPTS[2], *first.generated, 3]
    expected = generate(engine(Cells(0), 256), [request(prompt, RANDOM, 20)])
    assert generate(made, [request(prompt, RANDOM, 20)]) == expected


def test_a_cancelled_sequence_is_out_of_steps_on_their_way() -> None:
    program = Behind(steps=4)
    made = engine(program, 256)
    expected = generate(engine(Cells(0), 256), [request([7], GREEDY, 40)])[0]
    gone, other = (add(made, request(prompt, GREEDY, 40)) for prompt in ([5], [7]))
    for _ in range(6):
        made.step()
    gone.finish_reason = "cancelled"
    made.cancel([])
    while made.busy:
        made.step()
    assert gone.finish_reason == "cancelled"
    assert (other.generated, other.finish_reason) == expected


def test_steps_are_saved() -> None:
    program = Cells(steps=8)
    generate(engine(program), [request([5, 6], GREEDY, 1 + 2 + 3 * 8 + 4 + 1)])
    assert program.asked == [(1, 0), (1, 1), (1, 1), (1, 8), (1, 8), (1, 8), (1, 4), (1, 1)]


def test_a_first_token_is_not_kept_waiting() -> None:
    program = Cells(steps=8)
    made = engine(program)
    generate(made, [request([5], GREEDY, 40)])
    generate(made, [request([6], GREEDY, 9)])
    assert program.asked[-2:] == [(1, 1), (1, 8)]


def test_an_end_token_in_the_middle_ends_one_of_several() -> None:
    whole, other = generate(engine(Cells(0)), [request([5], GREEDY, 40), request([7], GREEDY, 40)])
    stopper = whole[0][20]
    expected = whole[0][: whole[0].index(stopper)]
    program = Cells(steps=8)
    requests = [request([5], GREEDY, 40, end_tokens=frozenset([stopper])), request([7], GREEDY, 40)]
    assert generate(engine(program), requests) == [(expected, "stop"), other]
    assert {n_seqs for n_seqs, _ in program.asked} == {1, 2}


def test_tokens_of_one_step_are_one_event() -> None:
    made = engine(Cells(steps=8))
    add(made, request([5], GREEDY, 1 + 1 + 8))
    while made.busy:
        made.step()
    assert [len(event.tokens) for event in made.drain() if isinstance(event, Output)] == [1, 1, 8]


@pytest.mark.parametrize("kind", [Cells, Slots])
@pytest.mark.parametrize("steps", [0, 8])
def test_the_context_ends_or_shifts(kind: type[Cells], steps: int) -> None:
    (ended,) = generate(engine(kind(steps), 64), [request([5], RANDOM, 1000)])
    assert (len(ended[0]), ended[1]) == (64, "context_full")
    (shifted,) = generate(engine(kind(steps), 64), [request([5], RANDOM, 100, context_shift=True)])
    assert shifted == generate(engine(Cells(0), 64), [request([5], RANDOM, 100, context_shift=True)])[0]


@pytest.mark.parametrize("kind", [Cells, Slots])
@pytest.mark.parametrize("sampling", [GREEDY, RANDOM], ids=["greedy", "random"])
def test_running_out_of_blocks_delays_but_changes_nothing(kind: type[Cells], sampling: dict[str, Any]) -> None:
    requests = [request(prompt, sampling, 45) for prompt in PROMPTS]
    alone = [generate(engine(Cells(0)), [each])[0] for each in requests]
    program = kind(steps=16)
    again = [request(prompt, sampling, 45) for prompt in PROMPTS]
    assert generate(engine(program, n_ctx=96), again) == alone
    assert max(n_steps for _, n_steps in program.asked) > 1


@pytest.mark.parametrize("n_checkpoints", [0, 1, 2, 6])
def test_few_slots_for_copies_change_nothing(n_checkpoints: int) -> None:
    requests = [request(prompt, RANDOM, 30) for prompt in PROMPTS]
    alone = [generate(engine(Cells(0)), [each])[0] for each in requests]
    program = Slots(steps=8, wrong=5)
    again = [request(prompt, RANDOM, 30) for prompt in PROMPTS]
    assert generate(engine(program, 256, n_checkpoints=n_checkpoints), again) == alone
    assert (max(n_steps for _, n_steps in program.asked) > 0) == (n_checkpoints > 0)


def test_an_equal_prefix_is_shared_after_wrong_guesses() -> None:
    made = engine(Cells(steps=8, wrong=3), 256)
    ((first, _),) = generate(made, [request([5], GREEDY, 70)])
    again = add(made, request([5, *first[:69]], GREEDY, 1))
    while made.busy:
        made.step()
    assert again.timings.prompt_cached == 69
    assert again.generated == first[69:]


def test_what_the_program_cannot_pick_from_its_candidates_runs_as_before() -> None:
    refused = [{"top_k": 17}, {"top_k": 0}, {"top_k": 50}, {"top_k": 9, "repeat_penalty": 0.8}, {"typical_p": 0.5}]
    for sampling in refused:
        program = Cells(steps=8)
        generate(engine(program), [request([5], sampling, 9)])
        assert {n_steps for _, n_steps in program.asked} == {0}, sampling


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.0, "logit_bias": {token: -float("inf") for token in range(0, N_VOCAB, 2)}},
        {"temperature": 0.9, "top_k": 9, "repeat_penalty": 1.5, "repeat_last_n": 20},
        {"temperature": 0.9, "top_k": 16, "frequency_penalty": 1.0, "dry_multiplier": 1.0},
    ],
)
@pytest.mark.parametrize("kind", [Cells, Slots])
def test_lowered_logits_keep_the_program_going(kind: type[Cells], sampling: dict[str, Any]) -> None:
    """Where the highest logits do not suffice, a step gives all of them."""
    program = kind(steps=8)
    requests = [request(prompt, sampling, 40) for prompt in PROMPTS]
    assert generate(engine(program, 512), requests) == generate(engine(Cells(0), 512), requests)
    ahead = sum(n_seqs * n_steps for n_seqs, n_steps in program.asked)
    assert ahead > 100
    assert len(program.asked) < 200


def test_rare_right_guesses_make_runs_short() -> None:
    program = Cells(steps=16, wrong=2)
    generate(engine(program), [request([5], GREEDY, 60)])
    assert sum(n_steps for _, n_steps in program.asked) < 16 + 60 * 2.5


@dataclass
class Grammar(Sampler):
    """Every third token is any below ``width``, the two after it follow from it; ``length`` tokens in all; 0: off."""

    length: int = 0
    width: int = 20
    knows: bool = False  # what comes next in any case

    @property
    def is_neutral(self) -> bool:
        return self.length == 0

    @property
    def lowers(self) -> bool:
        return True

    def start(self, context: SamplerContext) -> None:
        self.n_prompt, self.seen = 0, []

    def accept(self, token: int) -> None:
        self.seen.append(token)

    def mask(self) -> np.ndarray:
        written = self.seen[3:]
        if len(written) == self.length:
            return mask.from_tokens([], N_VOCAB)
        allowed = [written[-1] + 1] if len(written) % 3 else range(self.width)
        return mask.from_tokens(allowed, N_VOCAB)

    def forced(self) -> Sequence[int]:
        written = self.seen[3:]
        left = min(-len(written) % 3, self.length - len(written)) if self.knows else 0
        return [written[-1] + 1 + i for i in range(left)]

    def guess(self, pick: Pick) -> Pick:
        return pick

    def apply(self, candidates: Candidates) -> None:
        pass


@pytest.mark.parametrize(
    "sampling", [GREEDY, RANDOM, {**RANDOM, "dry_multiplier": 2.0}], ids=["greedy", "random", "dry"]
)
@pytest.mark.parametrize(("length", "knows"), [(0, False), (31, False), (31, True)])
def test_restrictions_are_found_while_the_program_computes(
    sampling: dict[str, Any], length: int, knows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same tokens as where the host chooses; steps go on behind others until a mask forces many."""
    monkeypatch.setitem(SAMPLERS, "grammar", Grammar)
    order = ["grammar", *(name for name in SAMPLERS if name != "grammar")]
    results = []
    for program in (Cells(0), Behind(8)):
        made = engine(program, 256)
        prepare = Preparer(made.limits.n_ctx, N_VOCAB, lambda: None, SAMPLERS, order)
        lengths = [length, 0, length]
        asked = [
            request(p, {**sampling, "length": n, "knows": knows}, 60)
            for p, n in zip(PROMPTS[1:], lengths, strict=False)
        ]
        generations = [generation for each in asked for generation in prepare([0], each)]
        for generation in generations:
            made.add(generation)
        while made.busy:
            made.step()
        results.append([(each.generated, each.finish_reason) for each in generations])
    assert results[1] == results[0]
    if length or "dry_multiplier" in sampling:
        assert any(len(asked) == 3 and asked[2] for asked in program.asked)


@pytest.mark.parametrize("steps", [0, 8])
@pytest.mark.parametrize("sampling", [GREEDY, RANDOM], ids=["greedy", "random"])
def test_what_a_mask_forces_is_read_like_a_prompt(
    steps: int, sampling: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SAMPLERS, "grammar", Grammar)
    program = Cells(steps)
    made = engine(program)
    order = ["grammar", *(name for name in SAMPLERS if name != "grammar")]
    prepare = Preparer(made.limits.n_ctx, N_VOCAB, lambda: None, SAMPLERS, order)
    generations = prepare([0], request(PROMPTS[1], {**sampling, "length": 30}, 50))
    for generation in generations:
        made.add(generation)
    while made.busy:
        made.step()
    for generation in generations:
        assert (len(generation.generated), generation.finish_reason) == (30, "stop")
        firsts = generation.generated[::3]
        assert all(first < 20 for first in firsts)
        assert len(set(firsts)) > 1
        assert generation.generated == [first + i for first in firsts for i in range(3)]
    assert len(program.asked) <= 1 + 10, "one step for three tokens"


def test_one_such_sequence_is_enough() -> None:
    program = Cells(steps=8)
    requests = [request([5], GREEDY, 40), request([7], {"top_k": 0}, 9)]
    expected = [generate(engine(Cells(0)), [each])[0] for each in requests]
    assert generate(engine(program), [request([5], GREEDY, 40), request([7], {"top_k": 0}, 9)]) == expected
    assert program.asked[:9] == [(2, 0)] * 9
    assert program.asked[-1][1] > 0


def test_prompts_come_first() -> None:
    """Until all members of a batch generate it is computed a step at a time."""
    program = Cells(steps=8)
    generate(engine(program, n_batch=8), [request([5], GREEDY, 20), request(PROMPTS[2], GREEDY, 20)])
    n_alone = next(i for i, (_, n_steps) in enumerate(program.asked) if n_steps)
    assert [n_steps for _, n_steps in program.asked[:n_alone]] == [0] * n_alone
    assert n_alone == 3


@pytest.mark.parametrize(("seconds", "steps"), [(0.001, 16), (0.002, 8), (0.009, 2), (0.011, 1), (1.0, 1)])
def test_as_many_steps_as_a_moment_allows(monkeypatch: pytest.MonkeyPatch, seconds: float, steps: int) -> None:
    monkeypatch.setattr(lookahead_module, "SECONDS", 0.02)
    made = engine(Cells(steps=16))
    lookahead = made.multistep.lookahead if made.multistep else None
    assert lookahead is not None
    generation = add(made, request([5], GREEDY, 1000))
    generation.accept(6)
    tables, _ = KVCache(made.limits).begin([])
    running = Running(0, tables, generation=generation, n_past=1)
    assert lookahead.steps([(running, 1)]) == 1
    lookahead.took(1, 1, 1e-9)
    assert lookahead.steps([(running, 1)]) == 1, "the first time may have prepared something"
    lookahead.took(1, 1, seconds)
    assert lookahead.steps([(running, 1)]) == steps
    other = [(Running(i, tables, generation=generation, n_past=1), 1) for i in range(2)]
    assert lookahead.steps(other) == 1, "the time of one sequence says nothing about two"
