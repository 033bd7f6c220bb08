"""A draft model proposes what it would write itself, whatever became of its earlier proposals."""

from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from guessing_programs import BLOCK, GREEDY, N_VOCAB, PROMPTS, RANDOM, Cells, Runner, Slots, add, engine, request, run
from nightly import variants
from pumice.backend.step import Limits
from pumice.engine.drafts.drafter import DraftLimits
from pumice.engine.drafts.model import DraftModel, OtherVocabulary, SameVocabulary, other_vocabulary
from pumice.engine.drafts.speculation import Speculation
from pumice.errors import ModelError

KINDS = [Cells, Slots]


def model(
    kind: type[Cells], n_ctx: int = 512, n_seqs: int = 3, n_batch: int = 16, longest: int = 0, **limits: Any
) -> DraftModel:
    n_copies = n_seqs if kind is Slots else 0
    sizes = Limits(n_ctx, n_batch, 64, n_seqs, BLOCK, {0: n_ctx // BLOCK}, "f32", {}, n_copies)
    bounds = DraftLimits(**{"most": 5, "least": 0, "p_min": 0.0, "n_ctx": longest or n_ctx, **limits})
    return DraftModel(Runner(kind(0), sizes), SameVocabulary(N_VOCAB, N_VOCAB), bounds)  # type: ignore[arg-type]


class Sequence(SimpleNamespace):
    """The part of a sequence that the draft model reads."""

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


def begun(made: DraftModel, prompt: list[int]) -> Any:
    running = Sequence(spoken=prompt, generated=[], salt=b"")
    read(made, running)
    return running


def read(made: DraftModel, running: Any) -> None:
    """Read the text in as many steps as it takes."""
    for _ in range(len(text_of(running)) // made.runner.limits.n_batch + 1):
        made.read([running])


def text_of(running: Any) -> list[int]:
    return [*running.spoken, *running.generated]


def proposed(made: DraftModel, running: Any, n: int) -> list[int]:
    read(made, running)
    return list(made.propose([running], [n])[0])


def written(text: list[int], n: int) -> list[int]:
    """Return the text that the model writes after another one."""
    for _ in range(n):
        logits = np.random.default_rng(text).standard_normal(N_VOCAB).astype(np.float32)
        text = [*text, int(logits.argmax())]
    return text[len(text) - n :]


@pytest.mark.parametrize("kind", KINDS)
def test_proposals_follow_the_text(kind):
    """Several sequences in random turns, of which more take part than there are slots."""
    random = np.random.default_rng(0)
    made = model(kind, 1024)
    texts = [random.integers(N_VOCAB, size=size).tolist() for size in (1, 3, 40, 33, 64)]
    sequences = [begun(made, list(text)) for text in texts]
    for _ in range(60):
        chosen = random.choice(5, size=random.integers(1, 4), replace=False).tolist()
        most = [int(random.integers(0, 7)) for _ in chosen]
        for _ in range(20):  # those that were displaced
            made.read([sequences[i] for i in chosen])
        proposals = made.propose([sequences[i] for i in chosen], most)
        for i, n, proposal in zip(chosen, most, proposals, strict=True):
            assert list(proposal) == written(texts[i], min(n, 5))
            if random.random() < 0.2:
                continue  # the step failed
            right = list(proposal[: random.integers(len(proposal) + 1)])
            new = [*right, *written([*texts[i], *right], 1)] if random.random() < 0.5 else [*right, 7]
            texts[i] += new
            sequences[i].generated += new
    for running in sequences:
        made.close(running)
    assert made._cache.available == 1024 // BLOCK


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_text_is_continued_from_its_end(kind):
    made = model(kind, 256, longest=64)
    running = begun(made, list(range(40)))
    for _ in range(30):
        for _ in range(3):  # a text whose beginning left is read again first
            made.read([running])
            if tokens := list(made.propose([running], [3])[0]):
                break
        first = made._texts[running].first
        assert tokens == written(text_of(running)[first:], 3)
        assert len(text_of(running)) - first + 3 <= 64
        running.generated += [*tokens, 7]
    assert first > 0


def test_a_step_that_fails_costs_the_drafts_alone(monkeypatch):
    made = model(Cells)
    first, second = begun(made, [1] * 40), begun(made, [2] * 40)
    with monkeypatch.context() as patch:
        patch.setattr(made.runner, "outputs", lambda batch: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            made.propose([first], [3])
    assert proposed(made, second, 3) == written([2] * 40, 3)
    assert proposed(made, first, 3) == written([1] * 40, 3)


DAILY = [(Cells, Slots, GREEDY), (Slots, Cells, RANDOM)]


@pytest.mark.parametrize(("target", "kind", "sampling"), variants(product(KINDS, KINDS, [GREEDY, RANDOM]), DAILY))
def test_drafts_change_nothing(target, kind, sampling):
    """Prefixes that are shared, contexts that shift, blocks that run out, more sequences than slots."""

    def results(speculation: Speculation | None) -> tuple[list[Any], int]:
        made = engine(target(0), 96, n_seqs=3, speculation=speculation)
        lengths = [70, 110, 1, 49, 20]
        pairs = zip([*PROMPTS, *PROMPTS], [*lengths, *lengths], strict=True)
        wanted = [request(prompt, sampling, n, context_shift=n == 110) for prompt, n in pairs]
        generations = [add(made, each) for each in wanted]
        run(made)
        n_accepted = sum(each.timings.n_accepted for each in generations)
        return [(each.generated, each.finish_reason) for each in generations], n_accepted

    expected, _ = results(None)
    draft = model(kind, 256)
    found, n_accepted = results(Speculation({}, default="draft", n_draft=4, model=draft))
    assert found == expected
    assert n_accepted > (150 if sampling is GREEDY else 20)
    assert draft._cache.available == 256 // BLOCK


class Words:
    """A tokenizer of known pieces; the first token begins texts."""

    bos, eos = 0, None

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = [b"", *pieces]
        self.n_vocab = len(self.pieces)

    def token_bytes(self, token: int) -> bytes:
        return self.pieces[token]

    def tokenize_following(self, text: str) -> list[int]:
        return [self.pieces.index(character.encode()) for character in text]


def test_tokens_of_another_vocabulary_are_read_by_their_text():
    ours, theirs = Words(b"a", b"bc", b"d", "é".encode()), Words(b"d", b"b", b"c", b"a", b"\xc3", b"\xa9")
    vocabulary = OtherVocabulary(ours, theirs, 5, 7)  # type: ignore[arg-type]
    assert vocabulary.read([0, 1, 2, 3]) == [0, 4, 2, 3, 1]
    assert [vocabulary.written(token) for token in range(7)] == [0, 3, None, None, 1, None, None]


def test_vocabularies_with_nothing_in_common_are_refused():
    with pytest.raises(ModelError, match="only 0% of the draft's tokens are in the model's vocabulary"):
        other_vocabulary(Words(b"a"), Words(b"b", b"c"), 2, 3)  # type: ignore[arg-type]
