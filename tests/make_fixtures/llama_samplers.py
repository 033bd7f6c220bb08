"""Make tests/fixtures/llama_samplers.json: what llama.cpp's samplers leave of some logits.

    python tests/make_fixtures/llama_samplers.py path/to/ggml-vocab-llama-spm.gguf        (needs llama-cpp-python)

Each case has the logits' name, the samplers in their order, their parameters, the tokens accepted before, and
the result: the candidates with a probability above 0, by token id, and the softmax of their logits.
"""

import ctypes
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from llama_samplers import Chain  # noqa: E402

OUT = ROOT / "tests" / "fixtures" / "llama_samplers.json"
DEFAULTS = {
    "repeat_penalty": 1.0, "repeat_last_n": 64, "frequency_penalty": 0.0, "presence_penalty": 0.0, "dry_base": 1.75,
    "dry_allowed_length": 2, "dry_penalty_last_n": 64, "temperature": 1.0, "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0, "mirostat_eta": 0.1, "adaptive_decay": 0.9,
}  # fmt: skip
MOST = 80
"""Cases that leave more candidates than this are not kept: the file would be large."""
N_DRAWN = 40
SPEECH = 'She said: "the cat sat on the mat and the dog sat on the mat." Then: the cat sat on the'


def main(vocabulary: str) -> None:
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(vocabulary.encode(), params)
    vocab = llama_cpp.llama_model_get_vocab(model)

    logits = make_logits()
    cases = [run(logits, name, *case, vocab=vocab) for name in logits for case in [*single(), *together()]]
    cases = [case for case in cases if defined(case) and len(case["ids"]) <= MOST]
    speech = tokenize(vocab, SPEECH)
    cases += [run(logits, "few", ["dry"], {"dry_multiplier": 1.0} | p, h, vocab) for p, h in dry()]
    spoken = [run(logits, "few", ["dry"], p, speech[:n], vocab, sorted(set(speech))) for p, n in dry_breakers(speech)]
    drawn = [draw(logits[name], name, *case) for name in logits for case in adaptive()]
    text = {
        "logits": {name: x.tolist() for name, x in logits.items()},
        "cases": cases,
        "spoken": spoken,
        "drawn": drawn,
    }
    text["logits"] = {name: [float(f"{v:.4f}") if v > -1e30 else None for v in x] for name, x in text["logits"].items()}
    OUT.write_text(json.dumps(text, separators=(",", ":")).replace('{"logits":"', '\n{"logits":"') + "\n")


def adaptive() -> list[tuple[list[str], dict[str, Any]]]:
    """Adaptive-p over several tokens, each of which moves its target."""
    settings = [(0.4, 0.9, 3), (0.05, 0.5, 4), (0.7, 0.0, 5), (1.0, 0.99, 6), (0.0, 0.8, 7)]
    keys = ("adaptive_target", "adaptive_decay", "seed")
    cases = [(["adaptive_p"], dict(zip(keys, values, strict=True))) for values in settings]
    return [*cases, (["min_p", "temperature", "adaptive_p"], {**cases[0][1], "min_p": 0.05, "temperature": 1.3})]


def draw(logits: np.ndarray, name: str, samplers: list[str], params: dict[str, Any]) -> dict[str, Any]:
    """Draw tokens one after the other from the same logits."""
    chain = Chain(samplers, DEFAULTS | params, len(logits))
    tokens = []
    for _ in range(N_DRAWN):
        tokens.append(chain.sample(logits))
        chain.accept(tokens[-1])
    chain.close()
    return {"logits": name, "samplers": samplers, "params": params, "tokens": tokens}


def make_logits() -> dict[str, np.ndarray]:
    """Float32 arrays; -inf is written as null."""
    rng = np.random.default_rng(11)
    few = rng.normal(0, 2, 24)
    barred = few.copy()
    barred[[3, 9]] = -np.inf
    flat = rng.normal(0, 0.4, 40)
    many = np.log(rng.pareto(1.1, 1500) + 0.01)
    arrays = {"few": few, "barred": barred, "flat": flat, "many": many}
    return {name: np.round(x, 4).astype(np.float32) for name, x in arrays.items()}


def single() -> list[tuple[list[str], dict[str, Any], list[int]]]:
    """Each sampler by itself."""
    history = [1, 5, 5, 7, 2, 5, 20, 7, 7, 7]
    cases: list[tuple[str, dict[str, Any]]] = [("top_k", {"top_k": k}) for k in (1, 7, 100000)]
    for name in ("top_p", "typical_p", "min_p"):
        values = (0.02, 0.1, 0.5) if name == "min_p" else (0.0, 0.3, 0.8, 0.97)
        cases += [(name, {name: p, "min_keep": keep}) for p, keep in itertools.product(values, (0, 5))]
    cases += [("top_n_sigma", {"top_n_sigma": n}) for n in (0.5, 1.0, 2.5)]
    cases += [("xtc", {"xtc_probability": 1.0, "xtc_threshold": t}) for t in (0.02, 0.05, 0.1, 0.5)]
    cases += [("xtc", {"xtc_probability": 1.0, "xtc_threshold": 0.02, "min_keep": 23})]
    cases += [("temperature", {"temperature": t}) for t in (0.0, 0.3, 2.0)]
    cases += [("temperature", {"temperature": t, "dynatemp_range": 0.5, "dynatemp_exponent": e})
              for t, e in ((1.0, 1.0), (0.3, 2.0), (0.0, 1.0))]  # fmt: skip
    cases += [("adaptive_p", {"adaptive_target": target}) for target in (0.0, 0.1, 0.3, 0.9, 1.0)]
    cases += [("mirostat_1", {"mirostat_tau": tau}) for tau in (0.5, 1.0, 2.0, 5.0)]
    cases += [("mirostat_2", {"mirostat_tau": tau}) for tau in (0.1, 1.0, 2.0, 5.0)]
    cases += [("logit_bias", {"logit_bias": {3: 1.0, 5: -np.inf, 8: 4.5}})]
    cases += [("penalties", {"repeat_penalty": 1.3}), ("penalties", {"frequency_penalty": 0.4, "repeat_last_n": 5})]
    cases += [("penalties", {"presence_penalty": 0.7, "repeat_penalty": 0.8, "frequency_penalty": -0.2})]
    return [([name], params, history) for name, params in cases]


def together() -> list[tuple[list[str], dict[str, Any], list[int]]]:
    """Samplers in a row: the order matters, as does the softmax of what is left."""
    default = ["top_k", "top_p", "min_p", "temperature"]
    params = {"top_k": 12, "top_p": 0.9, "min_p": 0.05, "temperature": 0.8, "repeat_penalty": 1.2}
    everything = ["penalties", "dry", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature"]
    more = params | {"dry_multiplier": 0.8, "top_n_sigma": 2.0, "typical_p": 0.9, "dynatemp_range": 0.4}
    more |= {"xtc_probability": 1.0, "xtc_threshold": 0.1}
    history = [4, 6, 8, 4, 6, 8, 4, 6]
    return [
        (default, params, []),
        (default[::-1], params, []),
        (["min_p", "typical_p"], params | {"typical_p": 0.6}, []),
        (["top_n_sigma", "temperature"], {"top_n_sigma": 1.0, "temperature": 1.0, "dynatemp_range": 0.9}, []),
        (everything, more, history),
    ]


def dry() -> list[tuple[dict[str, Any], list[int]]]:
    rng = np.random.default_rng(5)
    histories = [
        [1, 2, 3, 4, 1, 2, 3],
        [7] * 12,
        [1, 2, 3, 3, 2, 3, 9, 1, 2, 3],
        [1, 2],
        *(rng.integers(0, n, 80).tolist() for n in (2, 3, 5)),
    ]
    params: list[dict[str, Any]] = [
        {},
        {"dry_allowed_length": 0},
        {"dry_base": 1.0, "dry_allowed_length": 1},
        {"dry_penalty_last_n": 6, "dry_base": 3.0},
    ]
    return list(itertools.product(params, histories))


def dry_breakers(speech: list[int]) -> list[tuple[dict[str, Any], int]]:
    base = {"dry_multiplier": 1.0}
    sets = (["\n", ":", '"', "*"], [":"], [" sat"], ["the mat."], ["cat sat on"])
    return [(base | {"dry_sequence_breakers": s}, n) for s in sets for n in (len(speech), len(speech) - 2, 18)]


def run(
    logits: dict[str, np.ndarray],
    name: str,
    samplers: list[str],
    params: dict[str, Any],
    history: list[int],
    vocab: Any,
    ids: list[int] | None = None,
) -> dict[str, Any]:
    n_vocab = llama_cpp.llama_vocab_n_tokens(vocab) if ids else len(logits[name])
    values = np.zeros(len(ids), np.float32) if ids else logits[name]
    chain = Chain(samplers, DEFAULTS | params, n_vocab, history, vocab)
    array = chain.apply(values, np.array(ids, np.int32) if ids else None)
    left = sorted((array.data[i].id, array.data[i].logit) for i in range(array.size))
    chain.close()
    weights = np.exp(np.array([x for _, x in left], np.float64) - max(x for _, x in left))
    kept = [(token, w) for (token, _), w in zip(left, weights / weights.sum(), strict=True) if w > 1e-30]
    result = {"ids": [t for t, _ in kept], "probabilities": [float(f"{p:.5g}") for _, p in kept]}
    params = {
        k: {t: None if b < -1e30 else b for t, b in v.items()} if k == "logit_bias" else v for k, v in params.items()
    }
    case = {"logits": name, "samplers": samplers, "params": params, "history": history}
    return case | ({"candidates": ids} if ids else {}) | result


def defined(case: dict[str, Any]) -> bool:
    """Not where llama.cpp's numbers overflow: -inf in typical and Mirostat 1, and a very large k in the latter."""
    if case["logits"] == "barred":
        return not {"typical_p", "mirostat_1"}.intersection(case["samplers"])
    return not (case["logits"] == "flat" and case["params"].get("mirostat_tau") == 5)


def tokenize(vocab: Any, text: str) -> list[int]:
    buffer = (llama_cpp.llama_token * 256)()
    data = text.encode()
    n = llama_cpp.llama_tokenize(vocab, ctypes.c_char_p(data), len(data), buffer, len(buffer), False, False)
    return list(buffer[:n])


if __name__ == "__main__":
    main(sys.argv[1])
