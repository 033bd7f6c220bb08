"""The device drafts from the text and verifies, several steps per submission: it picks what it picks without drafts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from equal_texts import write_model
from graphs import picked, step_of, table_program
from pumice.backend import Program
from pumice.backend.pick import Ahead, Ask, Pick
from pumice.backend.step import Batch, Limits
from pumice_vulkan import VulkanBackend

LIMITS = Limits(n_ctx=64, n_batch=16, n_outputs=16, n_seqs=2, block_size=8, n_blocks={}, kv_type="f32")
N_VOCAB = 300


def drafted(made: Program, text: list[int], pick: Pick, numbers: np.ndarray) -> Ahead:
    """Return the results of steps with drafts, one per row of ``numbers``."""
    n_rows, n_past = numbers.shape[1], len(text) - 1
    each = np.arange(n_rows, dtype=np.int32)
    tokens = np.full(n_rows, text[-1], np.int32)
    batch = Batch(tokens, n_past + each, each, np.array([0, n_rows], np.int32), np.zeros(1, np.int32), {})
    pasts = [text[-pick.last_n :]] if pick.last_n else []
    ask = Ask([pick], numbers, pick.top_k, pasts or [[]], n_drafted=n_rows - 1, text=np.array(text, np.int32))
    return next(made.submit(step_of(batch, ask)).tokens())


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


def taken_of(found: Ahead) -> list[int]:
    assert found.n_taken is not None
    return [token for row, n in zip(found.picked, found.n_taken, strict=True) for token in row[:n].tolist()]


def test_a_cycle_is_drafted_to_its_end(tmp_path: Path, vulkan: VulkanBackend) -> None:
    """A token follows each; the text has gone around once."""
    table = np.roll(np.eye(N_VOCAB, dtype=np.float32), 1, axis=1)
    table[9] = np.eye(N_VOCAB, dtype=np.float32)[4]
    made = table_program(tmp_path, vulkan, table, LIMITS)
    found = drafted(made, [1, 2, 3, 4, 5, 6, 7, 8, 9, 4, 5], Pick(1, temperature=0), np.zeros((4, 8), np.float32))
    assert found.n_taken is not None
    assert found.n_taken.tolist() == [8, 8, 8, 8]
    assert taken_of(found) == [4 + (2 + i) % 6 for i in range(32)]


def test_nothing_repeats(tmp_path: Path, vulkan: VulkanBackend) -> None:
    made = table_program(tmp_path, vulkan, np.roll(np.eye(N_VOCAB, dtype=np.float32), 1, axis=1), LIMITS)
    found = drafted(made, [1, 2, 3], Pick(1, temperature=0), np.zeros((4, 4), np.float32))
    assert found.n_taken is not None
    assert found.n_taken.tolist() == [1, 1, 1, 1]
    assert taken_of(found) == [4, 5, 6, 7]


def test_the_longest_match_is_continued(tmp_path: Path, vulkan: VulkanBackend) -> None:
    """Of 7, 8 and of 6, 7, 8, which comes earlier."""
    table = np.roll(np.eye(N_VOCAB, dtype=np.float32), 1, axis=1)
    table[8] = np.eye(N_VOCAB, dtype=np.float32)[50]
    made = table_program(tmp_path, vulkan, table, LIMITS)
    text = [6, 7, 8, 50, 51, 52, 3, 7, 8, 90, 91, 6, 7, 8]
    found = drafted(made, text, Pick(1, temperature=0), np.zeros((1, 4), np.float32))
    assert found.n_taken is not None
    assert found.n_taken.tolist() == [4]


@pytest.mark.parametrize("n_rows", [2, 4, 16])
def test_each_token_takes_the_next_number(tmp_path: Path, vulkan: VulkanBackend, n_rows: int) -> None:
    random = np.random.default_rng(n_rows)
    table = np.full((N_VOCAB, N_VOCAB), -9, np.float32)
    for token in range(N_VOCAB):
        table[token, random.integers(12, size=3)] = random.standard_normal(3)  # texts of a few tokens repeat
    made = table_program(tmp_path, vulkan, table, LIMITS)
    pick, numbers = Pick(40, 0.9, 0.05, 0.7), random.random((16, n_rows)).astype(np.float32)
    text = random.integers(12, size=40).tolist()
    tokens = taken_of(drafted(made, text, pick, numbers))
    assert tokens == one_by_one(made, text, pick, numbers)[: len(tokens)]
    assert len(tokens) > 16


@pytest.mark.parametrize("last_n", [3, 12, 256])
def test_penalties_count_drafted_tokens(tmp_path: Path, vulkan: VulkanBackend, last_n: int) -> None:
    """Each drafted token is one of the past of those behind it, and biases hold for all rows."""
    random = np.random.default_rng(last_n)
    table = np.full((N_VOCAB, N_VOCAB), -9, np.float32)
    table[:, :12] = random.standard_normal((N_VOCAB, 12))
    table[:, :12] += 4 * np.roll(np.eye(N_VOCAB, 12, dtype=np.float32), 1, axis=0)
    made = table_program(tmp_path, vulkan, table, LIMITS)
    pick = Pick(
        40,
        temperature=0.3,
        biases=((3, -0.7), (5, 0.9)),
        last_n=last_n,
        repeat_penalty=1.1,
        frequency_penalty=0.02,
        presence_penalty=0.3,
    )
    numbers, text = random.random((8, 8)).astype(np.float32), [*range(11, -1, -1)] * 18
    tokens = taken_of(drafted(made, text, pick, numbers))
    assert tokens == one_by_one(made, text, pick, numbers)[: len(tokens)]
    assert 12 < len(tokens) < 64


def texts(path: Path, **config: Any) -> tuple[list[Any], int, int]:
    """Return what requests give one after the other, and the numbers of drafted and accepted tokens."""
    few: dict[str, Any] = {"top_k": 9, "temperature": 0.3, "seed": 3, "max_tokens": 40}
    requests: list[dict[str, Any]] = [
        {"prompt": "abcabcabcabc", "temperature": 0, "max_tokens": 60},
        {"prompt": "fe fe fe", "temperature": 0, "max_tokens": 40, "stop": ["lsb"]},
        {"prompt": "ab ab ab", "logprobs": 2, "logprobs_sampled": True, **few},
        {"prompt": "abcabc", "n_ctx": 24, "context_shift": True, **few},
        {"prompt": "abcabc", "temperature": 0, "repeat_penalty": 1.1, "max_tokens": 20},
        {"prompt": "fe fe fe", "frequency_penalty": 0.05, "repeat_last_n": 7, "logit_bias": {3: 0.5}, **few},
    ]
    config["vulkan"] = {"batch_invariant": True}  # else GPUs round rows of several tokens differently
    with pumice.load(path, backend="vulkan", config=config, n_ctx=96, n_batch=16, n_parallel=2) as model:
        done = [model.generate(**request) for request in requests]
    found = [(each.text, each.tokens, each.finish_reason, each.logprobs is not None) for each in done]
    return found, sum(each.timings.n_drafted for each in done), sum(each.timings.n_accepted for each in done)


@pytest.mark.usefixtures("vulkan_device")
@pytest.mark.parametrize("name", ["rope-plain", "gemma2"])
def test_texts_are_those_without_drafts(tmp_path: Path, name: str) -> None:
    """Greedily and sampled, with stop strings, log-probabilities, shifts, penalties and biases."""
    path = write_model(name, tmp_path)
    expected, _, _ = texts(path, speculate="off")
    for n_draft in (3, 15):
        found, n_drafted, n_accepted = texts(path, speculate="ngram", n_draft=n_draft)
        assert found == expected
        assert n_drafted >= n_accepted > 20


@pytest.mark.usefixtures("vulkan_device")
def test_lengths_are_measured(tmp_path: Path) -> None:
    """Whatever the clock says, the text is that without drafts."""
    path = write_model("rope-plain", tmp_path)
    assert texts(path, speculate="ngram")[0] == texts(path, speculate="off")[0]
