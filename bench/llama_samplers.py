"""llama.cpp's samplers, called through the C interface of llama-cpp-python."""

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import llama_cpp
import numpy as np

TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
"""A candidate in llama.cpp's layout."""


def make(name: str, p: Mapping[str, Any], n_vocab: int, vocab: Any = None) -> Any:
    """Create one sampler; parameters have Pumice's names, and all that it uses must be present."""
    keep = p.get("min_keep", 0)
    breakers = [text.encode() for text in p.get("dry_sequence_breakers", [])]
    bias = p.get("logit_bias", {})
    makers: dict[str, Callable[[], Any]] = {
        "logit_bias": lambda: llama_cpp.llama_sampler_init_logit_bias(
            n_vocab, len(bias), (llama_cpp.llama_logit_bias * len(bias))(*bias.items())
        ),
        "penalties": lambda: llama_cpp.llama_sampler_init_penalties(
            n_vocab, p["repeat_last_n"], p["repeat_penalty"], p["frequency_penalty"], p["presence_penalty"]
        ),
        "dry": lambda: llama_cpp.llama_sampler_init_dry(
            vocab,
            p["dry_multiplier"],
            p["dry_base"],
            p["dry_allowed_length"],
            p["dry_penalty_last_n"],
            (ctypes.c_char_p * len(breakers))(*breakers),
            len(breakers),
        ),
        "top_n_sigma": lambda: llama_cpp.llama_sampler_init_top_n_sigma(p["top_n_sigma"]),
        "top_k": lambda: llama_cpp.llama_sampler_init_top_k(p["top_k"]),
        "typical_p": lambda: llama_cpp.llama_sampler_init_typical(p["typical_p"], keep),
        "top_p": lambda: llama_cpp.llama_sampler_init_top_p(p["top_p"], keep),
        "min_p": lambda: llama_cpp.llama_sampler_init_min_p(p["min_p"], keep),
        "xtc": lambda: llama_cpp.llama_sampler_init_xtc(p["xtc_probability"], p["xtc_threshold"], keep, 1),
        "temperature": lambda: llama_cpp.llama_sampler_init_temp_ext(
            p["temperature"], p["dynatemp_range"], p["dynatemp_exponent"]
        ),
        "greedy": llama_cpp.llama_sampler_init_greedy,
        "dist": lambda: llama_cpp.llama_sampler_init_dist(1),
        "adaptive_p": lambda: llama_cpp.llama_sampler_init_adaptive_p(
            p["adaptive_target"], p["adaptive_decay"], p.get("seed", 1)
        ),
        "mirostat_1": lambda: llama_cpp.llama_sampler_init_mirostat(
            n_vocab, 1, p["mirostat_tau"], p["mirostat_eta"], 100
        ),
        "mirostat_2": lambda: llama_cpp.llama_sampler_init_mirostat_v2(1, p["mirostat_tau"], p["mirostat_eta"]),
    }
    return makers[name]()


class Chain:
    """A chain of samplers, as llama.cpp builds it."""

    def __init__(
        self,
        names: Sequence[str],
        params: Mapping[str, Any],
        n_vocab: int,
        history: Iterable[int] = (),
        vocab: Any = None,
    ) -> None:
        self._samplers = [make(name, params, n_vocab, vocab) for name in names]
        self._data = np.empty(n_vocab, TOKEN_DATA)
        self._ids = np.arange(n_vocab, dtype=np.int32)
        self._array = llama_cpp.llama_token_data_array()
        for token in history:
            self.accept(token)

    def accept(self, token: int) -> None:
        for sampler in self._samplers:
            llama_cpp.llama_sampler_accept(sampler, token)

    def apply(self, logits: np.ndarray, ids: np.ndarray | None = None) -> llama_cpp.llama_token_data_array:
        """Fill the candidates, as llama.cpp does for each token, and run the samplers."""
        data = self._data[: len(logits)]
        data["id"] = self._ids if ids is None else ids
        data["logit"] = logits
        data["p"] = 0
        self._array.data = ctypes.cast(data.ctypes.data, llama_cpp.llama_token_data_p)
        self._array.size, self._array.selected, self._array.sorted = len(logits), -1, False
        for sampler in self._samplers:
            llama_cpp.llama_sampler_apply(sampler, ctypes.byref(self._array))
        return self._array

    def sample(self, logits: np.ndarray) -> int:
        array = self.apply(logits)
        return int(array.data[array.selected].id)

    def close(self) -> None:
        for sampler in self._samplers:
            llama_cpp.llama_sampler_free(sampler)
