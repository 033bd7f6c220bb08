"""llama.cpp's names and letters of samplers, and the chains they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SAMPLERS = {
    "d": "dry",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "s": "top_n_sigma",
    "m": "min_p",
    "t": "temperature",
    "x": "xtc",
    "e": "penalties",
    "a": "adaptive_p",
}
_OURS, _THEIRS = "typical_p", "typ_p"  # names of the only sampler that has another one here
_LAST = "adaptive_p"  # selects a token, so its place in a list has no meaning
MAX_SAMPLERS = 32  # maximum length of a chain


def read_samplers(given: str | Sequence[str]) -> list[str]:
    """Return the sampler chain for names, or for letters in one text. Raises ValueError."""
    names = [SAMPLERS.get(letter, letter) for letter in given] if isinstance(given, str) else given
    if not isinstance(names, list) or len(names) > MAX_SAMPLERS or not all(isinstance(name, str) for name in names):
        raise ValueError(f"expected a list of at most {MAX_SAMPLERS} names, or their letters")
    for name in names:
        if name not in SAMPLERS.values():
            raise ValueError(f"{name!r:.60} is not one of {', '.join(SAMPLERS.values())}")
    ours = [_OURS if name == _THEIRS else name for name in names if name != _LAST]
    return ["logit_bias", *ours, "greedy", "mirostat", *([_LAST] if _LAST in names else []), "dist"]


def named(chain: Sequence[str], sampling: Mapping[str, Any]) -> list[str]:
    """Return the samplers of a chain that llama-server has, by its names.

    ``adaptive_p`` stands in every chain here, and in llama-server's if it selects: ``sampling`` has a target for it.
    """
    selects = sampling.get("adaptive_target", -1.0) >= 0
    theirs = [_THEIRS if name == _OURS else name for name in chain if name != _LAST or selects]
    return [name for name in theirs if name in SAMPLERS.values()]
