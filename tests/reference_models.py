"""Models whose logits llama.cpp computed: those of ``../shared/archs``, and the tokens it was given."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pumice
from pumice.embeddings import Embeddings
from pumice.engine import Request
from pumice.streaming.stream import Stream

SHARED_MODELS = [
    "command-r-dense", "deepseek2-moe", "exaone4-dense", "falcon-dense", "gemma-dense", "gemma2-dense", "gemma3-dense",
    "gpt-oss-moe", "gpt2-dense", "gptneox-dense", "granite-dense", "llama-dense", "llama-moe", "mamba-dense",
    "mistral3-dense", "olmo2-dense", "phi2-dense", "phi3-dense", "qwen2-dense", "qwen3-dense", "qwen3moe-moe",
    "smollm3-dense", "stablelm-dense", "starcoder2-dense",
]  # fmt: skip
SHARED_IDS = [(7 * i + 3) % 128 for i in range(24)]


def error(actual: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """Mean squared error, normalized by the mean square of what is expected: of its rows, the last ones.

    Tokens that a model never gives have logits below any other, and are left out.
    """
    actual = actual[-len(expected) :]
    assert actual.shape == expected.shape
    given = expected > -1e30
    assert (actual[~given] < -1e30).all()
    return float(np.mean((actual[given] - expected[given]) ** 2) / np.mean(expected[given] ** 2))


def check_text(model: pumice.Model, ids: list[int], media: Sequence[Embeddings], logprobs: Any, atol: float) -> Any:
    """Check that greedy tokens after a prompt with media have these log-probabilities, ``[tokens, n_vocab]``."""
    options = {"sampling": {"temperature": 0.0}, "max_tokens": len(logprobs), "logprobs": 20}
    request = Request(ids, media=list(media), end_tokens=frozenset(), **options)
    result = Stream.open(model.engine.client, request)[0].completion()
    assert result.tokens == logprobs.argmax(-1).tolist()
    for row, told in zip(logprobs, result.logprobs or [], strict=True):
        np.testing.assert_allclose([value for _, value in told.top], [row[token] for token, _ in told.top], atol=atol)
    return result.timings


def check_greedy(model: Any, prompt: Sequence[int], tokens: Sequence[int], near: float) -> None:
    """Check that each token is the likeliest after those before, up to a share of the range of logits."""
    logits = model.logits([*prompt, *tokens[:-1]])[len(prompt) - 1 :]
    lacking = logits.max(axis=1) - logits[np.arange(len(tokens)), tokens]
    assert (lacking <= near * np.ptp(logits, axis=1)).all()
