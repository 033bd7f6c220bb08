"""Make tests/fixtures/llama_grammars.json: which tokens llama.cpp's grammars allow, along random texts.

    python tests/make_fixtures/llama_grammars.py        (needs llama-cpp-python)

Each grammar of ``GRAMMARS`` has walks over the demo model's vocabulary: for each step the token that was taken and a
summary of the set of allowed tokens, by ``summary``; the token that ends a text is -1.
"""

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "core")]
from gbnf_grammars import GRAMMARS, is_text, summary  # noqa: E402

OUT = ROOT / "tests" / "fixtures" / "llama_grammars.json"
WALKS = 3  # a grammar
STEPS = 40  # a walk, at most


def main() -> None:
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    path = ROOT / "core" / "pumice" / "models" / "pumice-demo.gguf"
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    vocab = llama_cpp.llama_model_get_vocab(model)
    rng = np.random.default_rng(0)
    walks = {name: [walk(vocab, text, rng) for _ in range(WALKS)] for name, text in GRAMMARS.items()}
    OUT.write_text(json.dumps(walks, separators=(",", ":")) + "\n")


def walk(vocab: Any, grammar: str, rng: np.random.Generator) -> list[list[Any]]:
    sampler = llama_cpp.llama_sampler_init_grammar(vocab, grammar.encode(), b"root")
    assert sampler
    steps: list[list[Any]] = []
    eos = llama_cpp.llama_vocab_eos(vocab)
    while len(steps) < STEPS:
        allowed = allowed_tokens(vocab, sampler)
        ends = eos in allowed
        tokens = [token for token in allowed if token != eos and is_text(piece(vocab, token))]
        token = -1 if not tokens or (ends and rng.random() < 0.2) else int(rng.choice(tokens))
        steps.append([token, summary([*tokens, *([-1] if ends else [])])])
        if token < 0:
            break
        llama_cpp.llama_sampler_accept(sampler, token)
    llama_cpp.llama_sampler_free(sampler)
    return steps


def allowed_tokens(vocab: Any, sampler: Any) -> list[int]:
    n = llama_cpp.llama_vocab_n_tokens(vocab)
    data = (llama_cpp.llama_token_data * n)()
    for token in range(n):
        data[token].id = token
    array = llama_cpp.llama_token_data_array(data, n, -1, False)
    llama_cpp.llama_sampler_apply(sampler, ctypes.byref(array))
    return sorted(array.data[i].id for i in range(array.size) if np.isfinite(array.data[i].logit))


def piece(vocab: Any, token: int) -> bytes:
    buffer = ctypes.create_string_buffer(256)
    n = llama_cpp.llama_token_to_piece(vocab, token, buffer, len(buffer), 0, False)
    return buffer.raw[:n]


if __name__ == "__main__":
    main()
