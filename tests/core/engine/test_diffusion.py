"""Generation by masked diffusion: the tokens of llama.cpp's example, and what requests may ask for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pumice
from diffusion_cases import CASES, N_NEW, PROMPT, fillable
from pumice.errors import RequestError
from tiny_zoo import ZOO

EXPECTED = json.loads((Path(__file__).parents[2] / "fixtures" / "diffusion.json").read_text())
CONTEXT = {"backend": "numpy", "n_ctx": 256, "kv_type": "f32"}


@pytest.mark.parametrize("name", CASES)
def test_tokens_are_those_of_llama_cpp(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    with pumice.load(fillable(case).write(tmp_path / "model.gguf"), **CONTEXT) as model:
        how = {"diffusion_steps": case.steps, "block_length": case.block_length, "cfg_scale": case.cfg_scale}
        found = model.generate(PROMPT, max_tokens=N_NEW, top_k=1, temperature=1, **how)
    assert (found.tokens, found.finish_reason) == (EXPECTED[name], "length")


@pytest.fixture(scope="module")
def dream(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = fillable(CASES["dream"]).write(tmp_path_factory.mktemp("dream") / "model.gguf")
    with pumice.load(path, **CONTEXT) as model:
        yield model


@pytest.mark.parametrize("algorithm", ["confidence", "entropy", "margin", "random", "origin"])
def test_every_algorithm_fills_all_masks(dream: Any, algorithm: str) -> None:
    first, again = (
        dream.generate(PROMPT, max_tokens=9, temperature=0.8, seed=3, diffusion_steps=4, diffusion_algorithm=algorithm)
        for _ in range(2)
    )
    assert first.tokens == again.tokens
    assert len(first.tokens) == 9
    assert 31 not in first.tokens


def test_known_tokens_are_streamed_from_the_left(dream: Any) -> None:
    whole = dream.generate(PROMPT, max_tokens=8, temperature=0, block_length=2)
    with dream.stream(PROMPT, max_tokens=8, temperature=0, block_length=2) as stream:
        pieces = [piece.token for piece in stream if piece.token is not None]
    assert pieces == whole.tokens


def test_a_text_ends_at_a_stop_token(dream: Any) -> None:
    tokens = dream.generate(PROMPT, max_tokens=8, temperature=0).tokens
    ended = dream.generate(PROMPT, max_tokens=8, temperature=0, stop_tokens=[tokens[3]])
    assert ended.tokens == tokens[: tokens.index(tokens[3])]
    assert ended.finish_reason == "stop"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"diffusion_steps": 2**17}, "diffusion_steps must be at most 65536, not 131072"),
        ({"diffusion_algorithm": "magic"}, "diffusion_algorithm must be one of confidence, entropy,"),
        ({"grammar": 'root ::= "a"'}, "a grammar is not supported"),
        ({"logprobs": 2}, "logprobs is not supported"),
        ({"context_shift": True}, "context_shift is not supported"),
    ],
)
def test_wrong_options_are_refused(dream: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        dream.generate(PROMPT, **options)


def test_a_file_without_a_mask_token_generates_nothing(tmp_path: Path) -> None:
    with (
        pumice.load(ZOO["dream"].write(tmp_path / "model.gguf"), **CONTEXT) as model,
        pytest.raises(RequestError, match="does not generate text"),
    ):
        model.generate(PROMPT)
