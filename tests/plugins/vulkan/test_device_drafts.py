"""The device verifies drafts of the host: it picks what it picks without drafts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from equal_texts import GRAMMARS, write_model
from graphs import picked, step_of, table_program
from pumice.backend import Program
from pumice.backend.pick import Ahead, Ask, Pick, Restriction
from pumice.backend.step import Batch, Limits
from pumice.engine.loop.flight import Flight
from pumice.engine.loop.flights import Flights
from pumice.sampler import mask
from pumice_vulkan import VulkanBackend

pytestmark = pytest.mark.usefixtures("vulkan_device", "kept_pipelines")

LIMITS = Limits(n_ctx=64, n_batch=16, n_outputs=16, n_seqs=2, block_size=8, n_blocks={}, kv_type="f32")
N_VOCAB = 300


def drafted(
    made: Program, texts: list[list[int]], drafts: list[list[int]], picks: list[Pick], numbers: np.ndarray
) -> list[list[int]]:
    """Return the tokens that a step with these drafts gives each sequence. ``numbers``: ``[n_seqs, rows of each]``."""
    n_seqs, n_rows = numbers.shape
    each = np.arange(n_rows, dtype=np.int32)
    tokens = np.array([[text[-1], *draft] for text, draft in zip(texts, drafts, strict=True)], np.int32).ravel()
    positions = np.concatenate([len(text) - 1 + each for text in texts]).astype(np.int32)
    rows, slots = np.arange(n_seqs * n_rows, dtype=np.int32), np.arange(n_seqs, dtype=np.int32)
    batch = Batch(tokens, positions, rows, np.arange(0, len(rows) + 1, n_rows, dtype=np.int32), slots, {})
    pasts = [text[-pick.last_n :] if pick.last_n else [] for text, pick in zip(texts, picks, strict=True)]
    n_best = max(pick.top_k for pick in picks)
    ask = Ask(picks, numbers.reshape(1, -1), n_best, pasts, n_drafted=n_rows - 1)
    found = next(made.submit(step_of(batch, ask)).tokens())
    return [taken_of(found, i) for i in range(n_seqs)]


def one_by_one(made: Program, text: list[int], pick: Pick, numbers: np.ndarray) -> list[int]:
    """Return the tokens that steps without drafts pick with these numbers."""
    tokens = list(text)
    for number in numbers.ravel():
        each = np.zeros(1, np.int32)
        batch = Batch(np.array(tokens[-1:], np.int32), each, each, np.array([0, 1], np.int32), each, {})
        pasts = [tokens[-pick.last_n :]] if pick.last_n else [[]]
        ask = Ask([pick], np.array([[number]], np.float32), pick.top_k, pasts)
        tokens.append(int(picked(made, batch, ask).picked[0, 0]))
    return tokens[len(text) :]


def taken_of(found: Ahead, sequence: int = 0) -> list[int]:
    """Return the tokens of a sequence."""
    assert found.n_taken is not None
    first = sequence * (found.picked.shape[1] // found.n_taken.shape[1])
    pairs = zip(found.picked, found.n_taken[:, sequence], strict=True)
    return [token for row, n in pairs for token in row[first : first + n].tolist()]


@pytest.mark.parametrize(("n_seqs", "n_rows"), [(1, 2), (1, 16), (2, 8), (3, 4), (4, 2), (11, 2), (13, 4)])
def test_drafts_are_taken_up_to_the_first_wrong_one(
    tmp_path: Path, vulkan: VulkanBackend, n_seqs: int, n_rows: int
) -> None:
    """Each sequence by its own rule and its own numbers; drafted tokens are of the past of those behind them."""
    random = np.random.default_rng(n_seqs)
    table = np.full((N_VOCAB, N_VOCAB), -9, np.float32)
    for token in range(N_VOCAB):
        table[token, random.integers(12, size=3)] = 2 * random.standard_normal(3)
    limits = replace(LIMITS, n_seqs=max(4, n_seqs), n_batch=64, n_outputs=64)
    made = table_program(tmp_path, vulkan, table, limits)
    penalized = Pick(40, temperature=0.4, last_n=5, repeat_penalty=1.2, biases=((2, 1.0), (3, -0.7)))
    counted = replace(penalized, last_n=256, frequency_penalty=0.02, presence_penalty=0.3)
    picks = (4 * [counted, Pick(40, 0.9, 0.05, 0.5), penalized, Pick(1, temperature=0)])[:n_seqs]
    picks = [replace(pick, top_k=40) for pick in picks]
    texts = [random.integers(12, size=n).tolist() for n in (4 * (40, 3, 61, 20))[:n_seqs]]
    for n_right in range(0, n_rows, 3):
        numbers = random.random((n_seqs, n_rows)).astype(np.float32)
        chosen = [one_by_one(made, *each) for each in zip(texts, picks, numbers, strict=True)]
        drafts = [[*tokens[:n_right], *[299] * (n_rows - 1 - n_right)] for tokens in chosen]
        assert drafted(made, texts, drafts, picks, numbers) == [tokens[: n_right + 1] for tokens in chosen]


@pytest.mark.parametrize("pick", [Pick(1, temperature=0), Pick(40, 0.9, 0.02, 0.8, last_n=9, repeat_penalty=1.2)])
def test_each_row_has_its_restriction(tmp_path: Path, vulkan: VulkanBackend, pick: Pick) -> None:
    """Drafts of the host, of which the first tokens are right; a second sequence has no restrictions."""
    random = np.random.default_rng(int(pick.top_k))
    table = random.standard_normal((N_VOCAB, N_VOCAB)).astype(np.float32)
    made, n_rows = table_program(tmp_path, vulkan, table, LIMITS), 8
    texts = [random.integers(N_VOCAB, size=20).tolist() for _ in range(2)]
    numbers = random.random((2, n_rows)).astype(np.float32)
    masks = [mask.from_tokens(random.permutation(N_VOCAB)[:n].tolist(), N_VOCAB) for n in (1, 2, 20, 150, 1, 9, 30, 2)]
    restrictions = [Restriction(allowed) for allowed in masks]
    picks = [replace(pick, restricted=True), pick]
    expected = []
    for sequence, (text, own) in enumerate(zip(texts, numbers, strict=True)):
        tokens, each = list(text), np.zeros(1, np.int32)
        for number, restriction in zip(own, restrictions, strict=True):
            batch = Batch(np.array(tokens[-1:], np.int32), each, each, np.array([0, 1], np.int32), each, {})
            given = [restriction] if not sequence else ()
            number = np.array([[number]], np.float32)
            ask = Ask([picks[sequence]], number, 40, [tokens[-pick.last_n :]], restrictions=given)
            tokens.append(int(picked(made, batch, ask).picked[0, 0]))
        expected.append(tokens[len(text) :])
    drafts = [[*expected[0][:5], 299, 299], [*expected[1][:2], *[298] * 5]]
    tokens = np.array([[text[-1], *draft] for text, draft in zip(texts, drafts, strict=True)], np.int32).ravel()
    positions = np.concatenate([np.arange(19, 19 + n_rows)] * 2).astype(np.int32)
    slots = np.arange(2, dtype=np.int32)
    rows, starts = np.arange(2 * n_rows, dtype=np.int32), np.array([0, n_rows, 2 * n_rows], np.int32)
    batch = Batch(tokens, positions, rows, starts, slots, {})
    pasts = [text[-pick.last_n :] if pick.last_n else [] for text in texts]
    given = [*restrictions, *[Restriction()] * n_rows]
    ask = Ask(picks, numbers.reshape(1, -1), 40, pasts, restrictions=given, n_drafted=n_rows - 1)
    for _ in range(2):  # the second time with the recorded commands
        found = next(made.submit(step_of(batch, ask)).tokens())
        assert taken_of(found, 0)[:6] == expected[0][:6]
        assert taken_of(found, 1)[:3] == expected[1][:3]
        assert found.n_taken is not None
        assert found.n_taken[0].tolist() == [6 + (expected[0][5] == 299), 3 + (expected[1][2] == 298)]


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.9, "top_k": 9, "repeat_penalty": 1.1}])
def test_texts_with_grammars_are_those_without_drafts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampling: dict[str, Any]
) -> None:
    """Alone and at once, beside a text without a grammar; the device verifies the drafts."""
    verify, restricted = Flights._verified, []

    def noted(*args: Any) -> Flight | None:
        flight = verify(*args)
        if flight and flight.ask:
            restricted.append(bool(flight.ask.restrictions))
        return flight

    monkeypatch.setattr(Flights, "_verified", noted)
    path = write_model("rope-plain", tmp_path)
    config = {"vulkan": {"batch_invariant": True}, "n_draft": 7}
    each = [{**grammar, **sampling, "seed": i, "max_tokens": 40} for i, grammar in enumerate([*GRAMMARS, {}])]
    with pumice.load(path, backend="vulkan", config=config, n_ctx=96, n_batch=16, n_parallel=2) as model:
        prompts = ["abab"] * len(each)
        plain = model.generate_many(prompts, each=each, speculate="off")
        wanted = [{**one, "prediction": done.text} for one, done in zip(each, plain, strict=True)]
        drafted = model.generate_many(prompts, each=wanted, speculate="ngram")
        alone = [model.generate("abab", **one) for one in wanted[:2]]
    assert [one.tokens for one in drafted] == [one.tokens for one in plain]
    assert [one.tokens for one in alone] == [one.tokens for one in plain[:2]]
    assert sum(restricted) > 3
    assert sum(one.timings.n_accepted for one in drafted) > 9
