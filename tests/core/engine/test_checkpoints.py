"""Recurrent states that are kept: sequences that begin alike go on from them, and get what they get otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import pumice
from nightly import variants
from pumice.engine.cache.blocks import Checkpoints
from tiny_zoo import ZOO

RECURRENT = ["mamba", "lfm2-window", "qwen35", "qwen4exp-blocks"]
IDS = [(11 * i + i // 7) % 32 for i in range(230)]
OPTIONS: dict[str, Any] = {"backend": "numpy", "kv_type": "f32", "n_ctx": 256, "n_batch": 64}


@pytest.fixture(params=RECURRENT)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return ZOO[request.param].write(tmp_path / "model.gguf")


def alone(path: Path, prompt: Sequence[int], n: int = 12) -> list[int]:
    with pumice.load(path, **OPTIONS) as model:
        return list(model.generate(prompt, max_tokens=n, temperature=0).tokens)


def test_a_prompt_is_read_once(path: Path) -> None:
    with pumice.load(path, **OPTIONS) as model:
        found = [model.generate(IDS[:100], max_tokens=12, temperature=0, cache_salt=salt) for salt in "aaba"]
    assert [each.timings.prompt_cached for each in found] == [0, 96, 0, 96]
    assert [list(each.tokens) for each in found] == [list(found[0].tokens)] * 4


def test_a_conversation_goes_on_at_its_last_token(path: Path) -> None:
    prompt = IDS[:50]
    with pumice.load(path, **OPTIONS) as model:
        for n_cached in (0, 50 + 12 - 1, 79 + 12 - 1):
            found = model.generate(prompt, max_tokens=12, temperature=0)
            assert found.timings.prompt_cached == n_cached
            assert list(found.tokens) == alone(path, prompt)
            prompt = [*prompt, *found.tokens, *IDS[: 79 - 62]]


@pytest.mark.parametrize("path", variants(RECURRENT, ["lfm2-window", "qwen35"]), indirect=True)
def test_a_preempted_sequence_resumes_from_its_state(path: Path) -> None:
    """Five sequences in blocks for three and slots for two: all come to what they get alone."""
    prompts = [IDS[i : i + 40] for i in range(5)]
    with pumice.load(path, n_parallel=2, **{**OPTIONS, "n_ctx": 96}) as model:
        found = model.generate_many(prompts, max_tokens=40, temperature=0)
    assert [list(each.tokens) for each in found] == [alone(path, prompt, 40) for prompt in prompts]


def test_the_state_not_used_for_longest_gives_way() -> None:
    kept = Checkpoints([7, 8])
    assert kept.keep(b"a", []) == 7
    assert kept.keep(b"a", [1, 2]) == 8
    assert kept.keep(b"a", []) is None
    assert kept.keep(b"b", []) == 8
    assert (kept.tails(b"a"), kept.tails(b"b"), kept.find(b"a", [])) == ([()], [()], 7)
    taken = [kept.take(), kept.take()]
    assert (sorted(taken), kept.available, kept.keep(b"c", [])) == ([7, 8], 0, None)
    kept.give_back(taken)
    assert kept.available == 2
