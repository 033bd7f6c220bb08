"""Drafts are verified: whatever is proposed, sequences get the tokens that they get without."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from drafting import PROPOSERS, Oracle, drafting
from guessing_programs import (
    GREEDY,
    N_VOCAB,
    PROMPTS,
    RANDOM,
    Behind,
    Cells,
    Slots,
    SlotsBehind,
    Wary,
    add,
    engine,
    generate,
    request,
    run,
)
from nightly import crossed, variants
from pumice.engine import Engine, Request
from pumice.engine.drafts.speculation import Speculation
from pumice.engine.messages import Failed
from pumice.errors import RequestError
from pumice.proposers import Proposer

LENGTHS = [40, 23, 1, 29, 20]
NAMES = list(PROPOSERS)
KINDS = [Cells, Slots]


def requests(sampling: dict[str, Any], **options: Any) -> list[Request]:
    return [request(prompt, sampling, n, **options) for prompt, n in zip(PROMPTS, LENGTHS, strict=True)]


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, ...], list[int]]:
    """Return the texts that the oracle predicts."""
    known: dict[tuple[int, ...], list[int]] = {}
    monkeypatch.setattr(Oracle, "texts", known)
    return known


def learn(texts: dict[tuple[int, ...], list[int]], wanted: list[Request], made: Engine) -> list[Any]:
    """Generate without drafts, and add the tokens to ``texts``."""
    found = generate(made, wanted)
    texts.update({tuple(each.prompt): tokens for each, (tokens, _) in zip(wanted, found, strict=True)})
    return found


@pytest.mark.parametrize(("name", "kind", "sampling", "n_draft"), crossed(NAMES, KINDS, [GREEDY, RANDOM], [7, 1]))
def test_drafts_change_nothing(kind, name, sampling, n_draft, texts):
    expected = learn(texts, requests(sampling), engine(kind(0), 256))
    program = kind(0)
    assert generate(engine(program, 256, speculation=drafting(name, n_draft)), requests(sampling)) == expected
    if name == "oracle":
        assert len(program.asked) < max(LENGTHS) / (1.5 if n_draft == 1 else 3)


@pytest.mark.parametrize(
    ("kind", "name", "sampling"),
    crossed([Cells, Slots, Behind, SlotsBehind, Wary], ["oracle", "liar", "erring"], [GREEDY, RANDOM]),
)
def test_programs_that_pick_tokens_verify_drafts(kind, name, sampling, texts):
    """Steps with drafts, and steps that pick tokens by themselves, by turns."""
    expected = learn(texts, requests(sampling), engine(Cells(0), 256))
    program = kind(8)
    assert generate(engine(program, 256, speculation=drafting(name)), requests(sampling)) == expected
    if name == "oracle":
        assert len(program.asked) < max(LENGTHS) / 2
    made = engine(kind(8), 256, speculation=Speculation(PROPOSERS, default="off", n_draft=7))
    first, *others = requests(sampling)
    assert generate(made, [replace(first, speculate=name), *others]) == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_sequences_that_end_shift_and_wait_get_the_same(kind, name, texts):
    """End tokens, full contexts, blocks that run out, and sequences that come in or are cancelled meanwhile."""

    def results(speculation) -> list[Any]:
        made = engine(kind(0), 96, speculation=speculation)
        ends = frozenset([11])
        pairs = list(zip(PROMPTS, [70, 110, 1, 49, 20], strict=True))
        wanted = [request(prompt, RANDOM, n, end_tokens=ends, context_shift=n == 110) for prompt, n in pairs]
        generations = [add(made, each) for each in wanted[:3]]
        gone = add(made, request([3, 3], RANDOM, 90))
        for _ in range(6):
            made.step()
        made.cancel(gone.id)
        generations += [add(made, each) for each in wanted[3:]]
        run(made)
        texts.update({tuple(each.request.prompt): each.generated for each in generations})
        return [(each.generated, each.finish_reason) for each in generations]

    expected = results(None)
    assert {reason for _, reason in expected} >= {"stop", "length"}
    assert results(drafting(name)) == expected


@pytest.mark.parametrize(("kind", "seed"), variants(product(KINDS, range(4)), zip(KINDS, range(2), strict=True)))
def test_random_requests_get_the_same(kind, seed, texts):
    """Penalties, log-probabilities, forks, prompts in parts, two rounds that share prefixes."""
    random = np.random.default_rng(seed)
    wanted = []
    for _ in range(5):
        prompt = random.integers(N_VOCAB, size=random.integers(1, 40)).tolist()
        sampling = [GREEDY, RANDOM, {**RANDOM, "repeat_penalty": 1.3}, {"dry_multiplier": 1.0, "temperature": 0}][
            random.integers(4)
        ]
        options = {"logprobs": 2} if random.random() < 0.3 else {}
        options["priority"] = int(random.integers(2))
        wanted.append(request(prompt, sampling, int(random.integers(1, 30)), **options))

    def results(speculation) -> list[Any]:
        made = engine(kind(0), 96, n_seqs=3, n_batch=24, n_checkpoints=4, speculation=speculation)
        found = []
        for _ in range(2):
            generations = [add(made, each) for each in wanted]
            run(made)
            found += [(each.generated, each.finish_reason) for each in generations]
            texts.update({tuple(each.request.prompt): each.generated for each in generations})
        return found

    expected = results(None)
    for name in NAMES:
        assert results(drafting(name, int(random.integers(1, 20)))) == expected


def test_a_request_chooses_its_proposers(texts):
    learn(texts, [request([5], GREEDY, 30)], engine(Cells(0)))
    for default, choice in [("off", "oracle"), ("oracle", "off"), ("oracle", None), ("oracle", False)]:
        made = engine(Cells(0), speculation=drafting(default))
        generation = add(made, request([5], GREEDY, 30, speculate=choice))
        run(made)
        assert (generation.timings.n_drafted > 0) == (choice in ("oracle", None))


def test_texts_of_other_requests_are_proposed_within_a_salt():
    def accepted(salt: str) -> int:
        generation = add(made, request([5], GREEDY, 30, cache_salt=salt))
        run(made)
        return generation.timings.n_accepted

    made = engine(Cells(0), speculation=drafting("ngram"))
    assert accepted("mine") < 5
    assert accepted("mine") > 20
    assert accepted("yours") < 5


class Broken(Proposer):
    """Raises an error in one method."""

    def __init__(self, method: str, error: type[BaseException]) -> None:
        self._error = error
        if method == "__init__":
            self._raise()
        setattr(self, method, self._raise)

    def _raise(self, *_: object) -> None:
        raise self._error("no idea")

    def propose(self, n: int) -> Sequence[int]:
        return [1] * n


class Saying(Proposer):
    """Proposes what it is told."""

    def __init__(self, proposal: object) -> None:
        self._proposal = proposal

    def propose(self, n: int) -> Sequence[int]:
        return self._proposal  # type: ignore[return-value]


@pytest.mark.parametrize("method", ["__init__", "start", "accept", "propose", "judge", "close"])
@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_proposer_that_fails_is_dropped_and_named(method, error, texts, monkeypatch, caplog):
    expected = learn(texts, requests(RANDOM), engine(Cells(0)))
    monkeypatch.setitem(PROPOSERS, "broken", lambda: Broken(method, error))
    made = engine(Cells(0), speculation=drafting("broken,oracle"))
    generations = [add(made, each) for each in requests(RANDOM)]
    run(made)
    assert [(each.generated, each.finish_reason) for each in generations] == expected
    warnings = [record.message for record in caplog.records if "proposer" in record.message]
    problem = f"{method}: {error.__name__}: no idea"
    assert set(warnings) == {f"proposer 'broken': {problem}; the request goes on without its drafts"}
    assert len(warnings) == len([each for each in generations if each.timings.n_drafted])  # one for each sequence
    assert sum(each.timings.n_accepted for each in generations) > 50  # the oracle's


@pytest.mark.parametrize(
    ("proposal", "error"),
    [
        (["a"], "TypeError: 'str' object cannot be interpreted as an integer"),
        (None, "TypeError: 'NoneType' object is not subscriptable"),
    ],
)
def test_invalid_proposals_are_named(proposal, error, monkeypatch, caplog):
    monkeypatch.setitem(PROPOSERS, "saying", lambda: Saying(proposal))
    wanted = [request([5], GREEDY, 30)]
    assert generate(engine(Cells(0), speculation=drafting("saying")), wanted) == generate(engine(Cells(0)), wanted)
    [warning] = [record.message for record in caplog.records]
    assert warning == f"proposer 'saying': propose: {error}; the request goes on without its drafts"


def test_a_sequence_that_fails_at_a_drafted_token_says_why(texts, monkeypatch):
    learn(texts, [request([5], GREEDY, 30)], engine(Cells(0)))
    made = engine(Cells(0), speculation=drafting("oracle"))
    generation, other = (add(made, request([5], GREEDY, 30)) for _ in range(2))
    accept = generation.accept

    def failing(token: int) -> None:
        if len(generation.generated) == 10:
            raise RequestError("the mask is too large")
        accept(token)

    monkeypatch.setattr(generation, "accept", failing)
    run(made)
    assert [str(event.error) for event in made.drain() if isinstance(event, Failed)] == ["the mask is too large"]
    assert other.finish_reason == "length"
    assert generation.timings.n_drafted > 0


# --- how many


def drafted_rows(name: str, texts: dict[tuple[int, ...], list[int]], n: int = 512) -> tuple[int, int, int]:
    """Return the steps, and the drafted and accepted tokens, of a text of ``n`` tokens."""
    learn(texts, [request([5], GREEDY, n)], engine(Cells(0), 1024))
    program = Cells(0)
    made = engine(program, 1024, speculation=Speculation(PROPOSERS, default=name, is_invariant=True))
    generation = add(made, request([5], GREEDY, n))
    run(made)
    assert generation.generated == texts[(5,)]
    assert generation.timings.drafts_exact
    return len(program.asked), generation.timings.n_drafted, generation.timings.n_accepted


def test_a_proposer_that_is_always_wrong_costs_few_rows(texts):
    _, n_drafted, n_accepted = drafted_rows("liar", texts)
    assert n_accepted == 0
    assert n_drafted <= 40
