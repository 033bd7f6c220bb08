"""Drafts are verified: whatever is proposed, sequences get the tokens that they get without."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

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
from nightly import variants
from pumice.engine import Engine, Request
from pumice.engine.drafts.drafts import possible_tokens
from pumice.engine.drafts.speculation import Speculation
from pumice.engine.messages import Failed
from pumice.errors import RequestError
from pumice.proposers import Proposal, Proposer

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


@pytest.mark.parametrize("n_draft", [1, 7])
@pytest.mark.parametrize("sampling", [GREEDY, RANDOM], ids=["greedy", "random"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_drafts_change_nothing(kind, name, sampling, n_draft, texts):
    expected = learn(texts, requests(sampling), engine(kind(0), 256))
    program = kind(0)
    assert generate(engine(program, 256, speculation=drafting(name, n_draft)), requests(sampling)) == expected
    if name == "oracle":
        assert len(program.asked) < max(LENGTHS) / (1.5 if n_draft == 1 else 3)


@pytest.mark.parametrize("sampling", [GREEDY, RANDOM], ids=["greedy", "random"])
@pytest.mark.parametrize("name", ["oracle", "liar", "erring"])
@pytest.mark.parametrize("kind", [Cells, Slots, Behind, SlotsBehind, Wary])
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


def test_steps_that_no_proposer_waits_for_are_submitted_together(texts):
    program = Behind(8)
    made = engine(program, 512, speculation=Speculation(PROPOSERS, default="off", n_draft=7))
    generate(made, [request([5], GREEDY, 200)])
    assert any(asked[1:] == (8, True) for asked in program.asked)


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", variants(range(4), range(2)))
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


def test_timings_count_drafts(texts):
    wanted = [request([5], GREEDY, 30)]
    learn(texts, wanted, engine(Cells(0)))
    made = engine(Cells(0), speculation=drafting("oracle", 7))
    generation = add(made, wanted[0])
    run(made)
    assert (generation.timings.n_drafted, generation.timings.n_accepted) == (25, 25)
    made = engine(Cells(0), speculation=drafting("liar", 7))
    generation = add(made, wanted[0])
    run(made)
    assert generation.timings.n_drafted > 25
    assert generation.timings.n_accepted == 0


def test_a_request_chooses_its_proposers(texts):
    learn(texts, [request([5], GREEDY, 30)], engine(Cells(0)))
    for default, choice, drafts in [
        ("off", "oracle", True),
        ("oracle", "off", False),
        ("oracle", None, True),
        ("oracle", False, False),
    ]:
        made = engine(Cells(0), speculation=drafting(default))
        generation = add(made, request([5], GREEDY, 30, speculate=choice))
        run(made)
        assert (generation.timings.n_drafted > 0) == drafts


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

    def __init__(self, method: str) -> None:
        if method == "__init__":
            raise ValueError("no idea")
        setattr(self, method, self._raise)

    def _raise(self, *_: object) -> None:
        raise ValueError("no idea")

    def propose(self, n: int) -> Proposal:
        return Proposal([1] * n)


class Saying(Proposer):
    """Proposes what it is told."""

    def __init__(self, proposal: object) -> None:
        self._proposal = proposal

    def propose(self, n: int) -> Proposal:
        return self._proposal  # type: ignore[return-value]


@pytest.mark.parametrize("method", ["__init__", "start", "accept", "propose", "judge", "close"])
def test_a_proposer_that_fails_is_dropped_and_named(method, texts, monkeypatch, caplog):
    expected = learn(texts, requests(RANDOM), engine(Cells(0)))
    monkeypatch.setitem(PROPOSERS, "broken", lambda: Broken(method))
    made = engine(Cells(0), speculation=drafting("broken,oracle"))
    generations = [add(made, each) for each in requests(RANDOM)]
    run(made)
    assert [(each.generated, each.finish_reason) for each in generations] == expected
    warnings = [record.message for record in caplog.records]
    assert set(warnings) == {
        f"proposer 'broken': {method}: ValueError: no idea; the request goes on without its drafts"
    }
    assert len(warnings) == len([each for each in generations if each.timings.n_drafted])  # one for each sequence
    assert sum(each.timings.n_accepted for each in generations) > 50  # the oracle's


@pytest.mark.parametrize(
    ("proposal", "error"),
    [
        (Proposal(["a"]), "TypeError: 'str' object cannot be interpreted as an integer"),  # type: ignore[list-item]
        (Proposal([1], [2]), "TypeError: 'list' object cannot be interpreted as an integer"),  # type: ignore[arg-type]
        (Proposal(None), "TypeError: 'NoneType' object is not subscriptable"),  # type: ignore[arg-type]
        (Proposal([1, 2], 0, [0.5]), "ValueError: expected a probability between 0 and 1 for each token, not [0.5]"),
        (Proposal([1], 0, [1.5]), "ValueError: expected a probability between 0 and 1 for each token, not [1.5]"),
        ([1, 2], "expected a Proposal, not [[1, 2]]"),
    ],
)
def test_invalid_proposals_are_named(proposal, error, monkeypatch, caplog):
    monkeypatch.setitem(PROPOSERS, "saying", lambda: Saying(proposal))
    wanted = [request([5], GREEDY, 30)]
    assert generate(engine(Cells(0), speculation=drafting("saying")), wanted) == generate(engine(Cells(0)), wanted)
    [warning] = [record.message for record in caplog.records]
    assert warning == f"proposer 'saying': propose: {error}; the request goes on without its drafts"


@pytest.mark.parametrize("tokens", [[-1, 10**9], [1, 10**9, -1]])
def test_tokens_outside_the_vocabulary_are_left_out_and_named_once(tokens, monkeypatch, caplog):
    monkeypatch.setitem(PROPOSERS, "saying", lambda: Saying(Proposal(tokens)))
    wanted = [request([5], GREEDY, 30), request([6], GREEDY, 30)]
    made = engine(Cells(0), speculation=drafting("saying"))
    assert generate(made, wanted) == generate(engine(Cells(0)), wanted)
    wrong = next(token for token in tokens if token != 1)
    message = f"token {wrong} is not in the vocabulary of 50 tokens; drafts end before such tokens"
    assert [record.message for record in caplog.records] == [f"proposer 'saying': propose: {message}"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


class Watched(Oracle):
    """Notes what it was told when it was closed."""

    closed: ClassVar[list[int]] = []

    def close(self) -> None:
        self.closed.append(self._n)


@pytest.mark.parametrize("end", ["length", "cancel", "late", "fail", "fail all"])
def test_proposers_are_closed_when_their_sequence_ends(end, texts, monkeypatch):
    """At once, and with all tokens, not when another request comes."""
    monkeypatch.setattr(Watched, "closed", [])
    monkeypatch.setitem(PROPOSERS, "watched", Watched)
    learn(texts, [request([5], GREEDY, 30)], engine(Cells(0)))
    made = engine(Cells(0), speculation=drafting("watched", 3))
    generation = add(made, request([5], GREEDY, 30))
    for _ in range(3):
        made.step()
    assert Watched.closed == []
    if end == "length":
        run(made)
    elif end == "cancel":
        made.cancel(generation.id)
    elif end == "late":
        made.scheduler.stop(generation.id, "timeout")
    elif end == "fail":
        made.scheduler.fail(made.scheduler.running, ValueError("no memory"))
    else:
        made.fail(ValueError("no memory"))
    assert Watched.closed == [len(generation.generated)]
    assert generation.timings.n_accepted > 0


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


@pytest.mark.parametrize(("tokens", "kept"), [([1, 2, 3], [1, 2]), ([1, 9, 2], [1]), ([50, 1], []), ([-1], [])])
def test_masks_and_end_tokens_cut_drafts_before_they_are_computed(tokens, kept):
    chain = SimpleNamespace(n_vocab=50, n_allowed=lambda tokens: min(2, len(tokens)))
    assert possible_tokens(SimpleNamespace(chain=chain, end_tokens={9}), tokens) == kept


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


def test_a_proposer_that_is_always_right_is_used(texts):
    n_steps, n_drafted, n_accepted = drafted_rows("oracle", texts)
    assert n_accepted == n_drafted
    assert n_steps < 512 / 8


def test_right_and_wrong_drafts_are_counted(texts):
    _, n_drafted, n_accepted = drafted_rows("erring", texts)
    assert 0.3 < n_accepted / n_drafted < 0.95


class Turncoat(Oracle):
    """Is wrong at first, and right from a number of tokens on."""

    def propose(self, n: int) -> Proposal:
        self.wrong = 1.0 if self._n < 200 else 0.0
        return super().propose(n)


def test_a_proposer_that_becomes_right_is_used_again(texts):
    learn(texts, [request([5], GREEDY, 400)], engine(Cells(0), 1024))
    made = engine(Cells(0), 1024, speculation=Speculation({"turncoat": Turncoat}, default="turncoat"))
    generation = add(made, request([5], GREEDY, 400))
    run(made)
    assert generation.timings.n_accepted > 130


class Counted(Oracle):
    """Counts how often it is told or asked something."""

    n_calls: ClassVar[int] = 0

    def accept(self, tokens: Sequence[int]) -> None:
        Counted.n_calls += 1
        super().accept(tokens)

    def propose(self, n: int) -> Proposal:
        Counted.n_calls += 1
        return Proposal()


def test_proposers_that_rest_are_not_told_what_is_written(texts, monkeypatch):
    """A new sequence asks its own at once."""
    monkeypatch.setattr(Counted, "n_calls", 0)
    speculation = Speculation({"counted": Counted}, default="counted", is_invariant=True)
    made = engine(Cells(0), 512, speculation=speculation)
    first = add(made, request([5], GREEDY, 200))
    while len(first.generated) < 130:
        made.step()
    assert Counted.n_calls < 60
    n_calls = Counted.n_calls
    add(made, request([6], GREEDY, 20))
    for _ in range(3):
        made.step()
    assert Counted.n_calls > n_calls + 1
    run(made)
    assert first.timings.n_drafted == 0


def test_a_sequence_that_missed_steps_drafts_again(texts):
    """It waits for cache blocks, while another one computes that never drafts."""
    longer = request([5] * 60, GREEDY, 60)
    learn(texts, [longer], engine(Cells(0), 128))
    made = engine(Cells(0), 128, speculation=Speculation(PROPOSERS, default="oracle", n_draft=3))
    add(made, request([6] * 34, GREEDY, 27, speculate="off"))
    waiting = add(made, longer)
    run(made)
    assert waiting.timings.n_drafted > 30
