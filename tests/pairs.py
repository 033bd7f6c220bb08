"""Every kind of request beside every other in one model: each result is that of the request alone."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np

import pumice
import qwen_speech_models
from diffusion_cases import CASES, fillable
from pumice.engine.messages import Encode
from pumice.frontend.speech import FramePiece
from tiny_encoders import MODELS as ENCODERS
from tiny_models import N_VOCAB, TinyModel
from tiny_zoo import ZOO

Kind = Callable[[pumice.Model], Any]
SIZES = {"n_ctx": 128, "n_parallel": 2, "n_batch": 32}  # four blocks: any two requests need more
N_TIMES = 3  # that each of two requests runs beside the other, unless a device is slow
CLOSE = {"rtol": 1e-3, "atol": 1e-3}
PATIENCE = 60.0  # seconds


def ids(n: int, seed: int = 1) -> list[int]:
    """Return ``n`` token ids; those of equal seeds share their beginning."""
    return np.random.default_rng(seed).integers(3, N_VOCAB - 2, n).tolist()


def _generate(prompt: list[int], **options: Any) -> Kind:
    options = {"temperature": 0.0, **options}

    def run(model: pumice.Model) -> Any:
        found = model.generate(prompt, **options)
        several = found if isinstance(found, list) else [found]
        return [(one.tokens, one.finish_reason, [each.logprob for each in one.logprobs or []]) for one in several]

    return run


def _saved(model: pumice.Model) -> Any:
    """Save a prompt, and continue it."""
    assert model.cache.save(ids(100)) == 0  # there is no folder
    return model.generate([*ids(60), 5], temperature=0.0, max_tokens=4).tokens


def _spoken(model: pumice.Model) -> Any:
    """Speak 8 frames."""
    (piece,) = model.speech.pieces("hello", temperature=0.0)
    assert isinstance(piece, FramePiece)
    speech, parts = model.speech.open(replace(piece, spoken=replace(piece.spoken, max_frames=8))), []
    while (samples := speech.next().result(PATIENCE)) is not None:
        parts.append(samples)
    return np.concatenate(parts)


KINDS: dict[str, Kind] = {
    "generate": _generate(ids(70), max_tokens=40),
    "whole context": _generate(ids(120, 2), max_tokens=None),
    "logprobs": _generate(ids(9), max_tokens=20, logprobs=2),
    "several": _generate(ids(40), max_tokens=12, n=3),
    "shifting": _generate(ids(100, 4), max_tokens=60, context_shift=True),
    "embed": lambda model: model.embed([ids(40, 5), ids(3), ids(90)], pooling="mean"),
    "embed tokens": lambda model: model.embed([ids(128, 6)], pooling="none"),
    "score": lambda model: [one.logprob for one in model.score(ids(128, 7), 2)],
    "logits": lambda model: model.logits(ids(128, 8)),
    "continuations": lambda model: model.engine.continuation_logits(ids(50), [ids(30, 2), ids(5, 3)]),
    "save": _saved,
}
RANK: dict[str, Kind] = {
    "rank": lambda model: model.engine.client.ask(Encode, [ids(100), ids(20, 9)], "last", scores=True).result(PATIENCE)
}
SPEAK = {"speak": _spoken, **{name: KINDS[name] for name in ("whole context", "embed", "score", "logits")}}
FILL: dict[str, Kind] = {
    "fill": lambda model: model.generate(ids(8), max_tokens=16, diffusion_steps=8, temperature=0.0).tokens,
    "fill more": lambda model: model.generate(ids(60), max_tokens=40, diffusion_steps=6, temperature=0.0).tokens,
    "embed": KINDS["embed"],
}

MODELS: dict[str, tuple[TinyModel | None, Mapping[str, Kind]]] = {
    "cached": (ENCODERS["qwen3-rank"], KINDS | RANK),
    "windows": (ZOO["gemma2"], KINDS),
    "recurrent": (ZOO["mamba"], KINDS),
    "hybrid": (ZOO["qwen3next"], KINDS),
    "diffusion": (fillable(CASES["llada"]), FILL),
    "speaking": (None, SPEAK),
    "encoder": (
        ENCODERS["modern-bert-rank"],
        {
            "embed": KINDS["embed"],
            "embed tokens": lambda model: model.embed([ids(128, 6)], pooling="none"),
            "rank": lambda model: model.engine.client.ask(Encode, [ids(100), ids(20)], "cls", scores=True).result(
                PATIENCE
            ),
        },
    ),
}


def write(name: str, folder: Path) -> Path:
    """Write the model of this name, with a context that all requests fit."""
    model = MODELS[name][0]
    if model is None:
        return qwen_speech_models.write_converted(folder)
    return replace(model, metadata=model.metadata | {"context_length": SIZES["n_ctx"]}).write(folder / f"{name}.gguf")


@contextmanager
def loaded(path: Path, **options: Any) -> Iterator[pumice.Model]:
    """Load a model whose cache has room for one request of most kinds."""
    with pumice.load(path, **{**SIZES, **options}) as model:
        yield model


def wrong_pairs(model: pumice.Model, kinds: Mapping[str, Kind], n_times: int = N_TIMES) -> list[str]:
    """Run every pair of kinds at once; return what went wrong."""
    alone = {name: kind(model) for name, kind in kinds.items()}
    wrong = []
    with ThreadPoolExecutor(2 * n_times) as threads:
        for pair in combinations_with_replacement(kinds, 2):
            futures = [(name, threads.submit(kinds[name], model)) for name in pair * n_times]
            for name, future in futures:
                try:
                    same(future.result(PATIENCE), alone[name])
                except Exception as error:
                    lines = [line for line in str(error).splitlines() if line]
                    wrong.append(f"{name} in {' + '.join(pair)}: {type(error).__name__}: {' '.join(lines[:3])}")
            now = model.engine.snapshot()
            if (now.n_slots_free, now.n_blocks_free) != (now.n_slots, now.n_blocks):
                wrong.append(f"{' + '.join(pair)}: something is held afterwards: {now}")
    return wrong


def same(found: Any, alone: Any) -> None:
    """Raise AssertionError unless a result is the one alone: tokens exactly, values closely."""
    if isinstance(alone, (np.ndarray, float)):
        np.testing.assert_allclose(found, alone, **CLOSE)
    elif isinstance(alone, (list, tuple)) and not all(isinstance(item, int) for item in alone):
        assert len(found) == len(alone)
        for one, other in zip(found, alone, strict=True):
            same(one, other)
    else:
        assert found == alone, f"{found}, alone {alone}"
