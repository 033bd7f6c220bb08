"""The chain: which samplers it runs, which parameters they get, and what it refuses. No bundled sampler is used."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
import pytest
from annotated_types import Ge, Interval

from pumice.errors import BackendError, PluginError, RequestError
from pumice.sampler import (
    Candidates,
    Chain,
    MaskSampler,
    Plan,
    PlannedSampler,
    Sampler,
    SamplerContext,
    Selector,
    parameters,
)
from pumice.sampler.mask import from_tokens
from pumice.sampler.random import make_rng

KNOWN = {*parameters.ARGUMENTS, "scale", "shift", "wild", "words"}


@dataclass
class Shift(PlannedSampler):
    """Move every logit one token up, ``shift`` times."""

    shift: Annotated[int, Interval(ge=0, le=9)] = 0
    scale: Annotated[float, Ge(0)] = 1.0
    words: list[str] = field(default_factory=list)

    def plan(self) -> Plan:
        return Plan(neutral=self.shift == 0)

    def start(self, context: SamplerContext) -> None:
        self.seen: list[int] = []

    def accept(self, token: int) -> None:
        self.seen.append(token)

    def apply(self, candidates: Candidates) -> None:
        candidates.logits = np.roll(candidates.logits, self.shift)


@dataclass
class Best(Selector):
    def apply(self, candidates: Candidates) -> None:
        candidates.select(int(candidates.logits.argmax()))


@dataclass
class Any_(PlannedSampler, Selector):
    """At random, whatever the logits, if switched on; only what was not truncated before matters."""

    wild: bool = False

    def plan(self) -> Plan:
        return Plan(neutral=not self.wild)

    def relevant(self, before: Sequence[Sampler]) -> Sequence[Sampler]:
        return [s for s in before if not Plan.of(s).truncates]

    def start(self, context: SamplerContext) -> None:
        self.rng = context.rng

    def apply(self, candidates: Candidates) -> None:
        candidates.select(int(self.rng.integers(len(candidates))))


@dataclass
class Nothing(PlannedSampler):
    def plan(self) -> Plan:
        return Plan(truncates=True)

    def apply(self, candidates: Candidates) -> None:
        candidates.keep(np.zeros(len(candidates), bool))


SAMPLERS: dict[str, type[Sampler]] = {"shift": Shift, "best": Best, "any": Any_, "nothing": Nothing}
LOGITS = np.array([0, 5, 1, 2], np.float32)


def build(order: Sequence[str] = ("shift", "any", "best"), **params: Any) -> Chain:
    return Chain.build(SAMPLERS, order, params, SamplerContext(len(LOGITS), seed=3))


def kinds(chain: Chain) -> list[type]:
    return [type(sampler) for sampler in chain.samplers]


def test_the_first_active_selecting_sampler_ends_the_chain() -> None:
    assert kinds(build(wild=True)) == [Any_]
    assert kinds(build(["shift", "any"])) == [Any_], "the last one stands in when none is active"
    assert kinds(build(["nothing", "any", "best"], wild=True)) == [Any_], "it says what before it is relevant"
    assert kinds(build(["nothing", "any", "best"])) == [Nothing, Best]


def test_one_seed_gives_one_sequence_of_tokens() -> None:
    def tokens(**params: Any) -> list[int]:
        chain = build(wild=True, **params)
        return [chain.sample(LOGITS) for _ in range(40)]

    assert tokens(seed=7) == tokens(seed=7) == tokens(seed=np.int64(7))
    assert tokens(seed=7) != tokens(seed=8)
    assert tokens() == tokens(seed=3), "without one, the context's"


@pytest.mark.parametrize("kind", ["pcg64", "mt19937"])
def test_numbers_that_were_skipped_are_those_that_would_have_been_drawn(kind: str) -> None:
    rng = make_rng(kind, 3)
    numbers = rng.random(200).astype(np.float32)
    chain = build(wild=True, rng=kind)
    for at in range(0, 150, 3):  # more than are looked at at once
        assert chain.peek(2).tolist() == numbers[at : at + 2].tolist()
        assert chain.peek(1, 2).tolist() == [numbers[at + 2]]
        chain.skip(3)
    one, other = make_rng(kind, 3), make_rng(kind, 3)
    one.random(150)
    other.random(149)
    drawn = [chain.sample(LOGITS) for _ in range(40)]
    assert drawn == [one.integers(len(LOGITS)) for _ in range(40)] != [other.integers(len(LOGITS)) for _ in range(40)]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"shift": 10}, "shift must be an integer, at least 0 and at most 9, not 10"),
        ({"shift": 1.5}, "shift must be an integer, at least 0 and at most 9, not 1.5"),
        ({"shift": True}, "shift must be an integer, at least 0 and at most 9, not True"),
        ({"scale": -1}, "scale must be a number, at least 0, not -1"),
        ({"scale": "1"}, "scale must be a number, at least 0, not '1'"),
        ({"scale": float("nan")}, "scale must be a number, at least 0, not nan"),
        ({"scale": float("inf")}, "scale must be a finite number, not inf"),
        ({"wild": 1}, "wild must be true or false, not 1"),
        ({"words": "ab"}, "words must be a list of strings, not 'ab'"),
        ({"words": ["a", 2]}, "words must be a list of strings, not ['a', 2]"),
        ({"seed": -2}, "seed must be an integer, 0 or more, or -1 for a fresh one, not -2"),
        ({"seed": "x"}, "seed must be an integer, 0 or more, or -1 for a fresh one, not 'x'"),
        ({"shfit": 1}, "unknown option 'shfit'; did you mean 'shift'?"),
        ({"zzz": 1}, f"unknown option 'zzz' (known: {', '.join(sorted(KNOWN))})"),
    ],
)
def test_wrong_parameters(params: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as error:
        build(**params)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("order", "message"),
    [(["shfit", "best"], "did you mean 'shift'"), (["shift"], "none that selects"), ([], "none that selects")],
)
def test_wrong_orders(order: list[str], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        build(order)


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (np.array([0, np.nan, 1, 2]), "contain NaN"),
        (np.array([np.inf, np.nan, 1, 2]), "contain NaN"),
        (np.array([0, np.inf, 1, 2]), "contain infinity"),
        (np.full(4, -np.inf), "are all -inf"),
        (np.zeros(3), r"expected logits of shape \(4,\), not \(3,\)"),
        (np.zeros((1, 4)), r"not \(1, 4\)"),
    ],
)
def test_logits_that_cannot_be_sampled(logits: np.ndarray, message: str) -> None:
    with pytest.raises(BackendError, match=message):
        build().sample(logits.astype(np.float32))


def fail(*_: object) -> None:
    raise OSError("no such\ntable")


@pytest.mark.parametrize(
    ("problem", "method", "act"),
    [
        ("apply: ValueError: keep: the mask has 2 values for 4", "apply", lambda c: c.keep(np.ones(2, bool))),
        ("apply: AttributeError", "apply", lambda c: setattr(c, "logits", None)),
        ("apply: left the id 1000, which is no token of 4", "apply", lambda c: c.ids.__setitem__(0, 1000)),
        ("apply: left NaN in the logits", "apply", lambda c: setattr(c, "logits", c.logits * np.float32("nan"))),
        ("apply: assigned 4 x 1 logits to 4 candidates", "apply", lambda c: setattr(c, "logits", c.logits[:, None])),
        ("apply: left no candidates", "apply", lambda c: c.keep(np.zeros(len(c), bool))),
        ("apply: selected 1000, which is no token of 4", "choose", lambda c: setattr(c, "selected", 1000)),
        ("apply: selected no token", "choose", lambda c: None),
        ("apply: SystemExit: 3", "apply", lambda c: sys.exit(3)),
        ("__init__: OSError: no such table$", "__init__", fail),
    ],
)
def test_a_sampler_that_breaks_the_contract_is_named(problem: str, method: str, act: Callable[..., None]) -> None:
    members: dict[str, Any] = {"apply": lambda self, candidates: act(candidates)}
    if method == "__init__":
        members[method] = act
    broken = type("Broken", (Selector if method == "choose" else Sampler,), members)
    with pytest.raises(PluginError, match=f"Broken: {problem}"):
        Chain.build({"broken": broken, "best": Best}, ["broken", "best"], {}, SamplerContext(4)).sample(LOGITS)


def test_a_sampler_without_a_plan_or_a_finite_logit_is_named() -> None:
    drop = type("Drop", (Sampler,), {"apply": lambda self, c: setattr(c, "logits", c.logits - np.float32("inf"))})
    end = type("End", (Selector,), {"apply": lambda self, c: c.peak()})
    with pytest.raises(
        RequestError, match="Drop: apply: the sampling parameters leave no token to choose: the highest logit is -inf"
    ):
        Chain.build({"drop": drop, "end": end}, ["drop", "end"], {}, SamplerContext(4)).sample(LOGITS)
    absent = type("Absent", (PlannedSampler,), {"apply": lambda self, c: None, "plan": lambda self: None})
    with pytest.raises(PluginError, match="Absent: plan: expected a Plan, not None"):
        Chain.build({"absent": absent, "best": Best}, ["absent", "best"], {}, SamplerContext(4))


@pytest.mark.parametrize("act", [lambda c: c.ids.__setitem__(0, 1000), lambda c: sys.exit(3)])
def test_a_planned_sampler_that_leaves_nan_is_named_before_the_next(act: Callable[..., None]) -> None:
    class Trusted(PlannedSampler):
        """Divides zero by zero, which the chain does not look for."""

        def plan(self) -> Plan:
            return Plan()

        def apply(self, candidates: Candidates) -> None:
            candidates.logits = candidates.logits * np.float32("nan")

    samplers = {"trusted": Trusted, "next": type("Next", (Sampler,), {"apply": lambda self, c: act(c)}), "best": Best}
    with pytest.raises(PluginError, match="Trusted: apply: left NaN in the logits"):
        Chain.build(samplers, list(samplers), {}, SamplerContext(4)).sample(LOGITS)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_is_not_blamed_on_logits(error: type[BaseException]) -> None:
    def interrupt(_sampler: Sampler, _candidates: Candidates) -> None:
        raise error

    drop = type("Drop", (Sampler,), {"apply": lambda self, c: setattr(c, "logits", c.logits - np.float32("inf"))})
    end = type("End", (Selector,), {"apply": interrupt})
    with pytest.raises(error):
        Chain.build({"drop": drop, "end": end}, ["drop", "end"], {}, SamplerContext(4)).sample(LOGITS)


@dataclass
class Masked(MaskSampler):
    """Allows some tokens, and changes nothing."""

    tokens: list[int] = field(default_factory=list)

    def start(self, context: SamplerContext) -> None:
        self._mask = from_tokens(self.tokens, context.n_vocab)

    def mask(self) -> Any:
        return self._mask


class Panic(BaseException):
    """What libraries in Rust raise when they panic."""


@dataclass
class Wrong(MaskSampler):
    """Returns what it is told, or raises it."""

    is_mask: bool
    value: Any

    def mask(self) -> Any:
        return self._result() if self.is_mask else None

    def forced(self) -> Any:
        return () if self.is_mask else self._result()

    def n_allowed(self, tokens: Sequence[int]) -> int:
        self._result()
        return len(tokens)

    def _result(self) -> Any:
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (np.ones(4, bool), r"mask: expected uint32 \[1\] or None, not bool \[4\]"),
        (np.zeros(2, np.uint32), r"mask: expected uint32 \[1\] or None, not uint32 \[2\]"),
        (np.zeros(1), r"mask: expected uint32 \[1\] or None, not float64 \[1\]"),
        ([1], r"mask: expected uint32 \[1\] or None, not list"),
        (Panic("out of bounds"), "mask: Panic: out of bounds"),
    ],
)
def test_what_is_no_mask_is_named(value: object, problem: str) -> None:
    with pytest.raises(PluginError, match=f"Wrong: {problem}"):
        Chain([Wrong(True, value), Few()], SamplerContext(4)).sample(LOGITS)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([4], "forced: 4 is no token of 4"),
        ([-1], "forced: -1 is no token of 4"),
        (None, "forced: TypeError"),
        ("ab", "forced: TypeError"),
        (Panic("out of bounds"), "forced: Panic: out of bounds"),
    ],
)
def test_what_are_no_forced_tokens_is_named(value: object, problem: str) -> None:
    with pytest.raises(PluginError, match=f"Wrong: {problem}"):
        _ = Chain([Wrong(False, value), Few()], SamplerContext(4)).forced


def test_errors_of_counting_drafts_are_named() -> None:
    with pytest.raises(PluginError, match="Wrong: n_allowed: Panic: out of bounds"):
        Chain([Wrong(False, Panic("out of bounds")), Few()], SamplerContext(4)).n_allowed([1, 2])


@dataclass
class Few(PlannedSampler, Selector):
    """Keeps the highest, at most so many."""

    k: int = 3

    def plan(self) -> Plan:
        return Plan(pick=lambda pick: replace(pick, top_k=self.k, temperature=0.0))

    def apply(self, candidates: Candidates) -> None:
        candidates.keep_top(self.k)
        candidates.select(0)


@pytest.mark.parametrize("n_allowed", [1, 2, 5, 40, 380, 400])
@pytest.mark.parametrize("k", [1, 3, 20])
def test_masked_tokens_do_not_influence_the_chain(n_allowed: int, k: int) -> None:
    rng = np.random.default_rng(n_allowed * k)
    for _ in range(20):
        logits = rng.integers(-9, 9, 400).astype(np.float32)  # many equal ones
        tokens = np.sort(rng.permutation(400)[:n_allowed])
        left = Chain([Masked(tokens.tolist()), Few(k)], SamplerContext(400)).apply(logits)
        best = tokens[np.argsort(-logits[tokens], kind="stable")[:k]]
        assert left is not None
        assert left.ids.tolist() == best.tolist()
