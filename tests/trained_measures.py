"""What Pumice computes of trained models beside transformers' results in tests/fixtures/trained.json."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.evaluate.kl_divergence import log_softmax
from pumice.gguf import GGUFFile
from pumice.model import Model
from trained_texts import CHATS, PROMPT, QUESTION, SENTENCES, TEXTS, long_text

N_TOP = 64  # of a token, as more are seldom probable
FIXTURE = Path(__file__).parent / "fixtures" / "trained.json"


def expected() -> dict[str, Any]:
    results: dict[str, Any] = json.loads(FIXTURE.read_text())
    return results


def token_differences(model: Model, results: Mapping[str, Any]) -> list[object]:
    """Return the texts whose token ids differ or do not decode to the text, and the chats whose prompts differ."""
    plain = [model.tokenizer.tokenize(text, add_special=False, parse_special=False) for text in TEXTS]
    pairs = zip(TEXTS, plain, results["tokens"], strict=True)
    wrong: list[object] = [text for text, ids, wanted in pairs if ids != wanted]
    wrong += [text for text, ids in zip(TEXTS, plain, strict=True) if model.tokenizer.detokenize(ids) != text]
    prompts = zip(CHATS, results["prompts"], strict=False)  # a model without a template has none
    return wrong + [chat for chat, prompt in prompts if model.template.apply(chat) != prompt]


class Prediction(NamedTuple):
    """Mean KL divergence from float32 in nats, and the share of equal most probable tokens."""

    divergence: float
    same_top: float


def compare(logits: NDArray[np.float32], results: Mapping[str, Any]) -> Prediction:
    """Compare logits [n, n_vocab] with the first or all rows of results; the tokens that are not kept count as one."""
    n = len(logits)
    actual = log_softmax(logits)
    top, wanted = np.array(results["top_ids"][:n]), np.array(results["top_logprobs"][:n])
    found = np.take_along_axis(actual, top, axis=1)
    rest, rest_found = (np.maximum(1 - np.exp(part).sum(axis=1), 1e-9) for part in (wanted, found))
    divergence = (np.exp(wanted) * (wanted - found)).sum(axis=1) + rest * np.log(rest / rest_found)
    return Prediction(float(divergence.mean()), float((actual.argmax(axis=1) == top[:, 0]).mean()))


def prediction(model: Model, results: Mapping[str, Any], n_tokens: int | None = None) -> Prediction:
    """Compare the distributions after each of the first ``n_tokens`` tokens of a text, by default all."""
    return compare(model.logits(results["ids"][:n_tokens]), results)


def perplexity(model: Model, results: Mapping[str, Any]) -> float:
    return float(np.exp(-np.mean([item.logprob for item in model.score(results["ids"])])))


class Greedy(NamedTuple):
    """Equal tokens before the first difference, of how many, and float32's gap in logits there (0: all equal)."""

    n_equal: int
    n: int
    gap: float


def greedy(model: Model, results: Mapping[str, Any]) -> Greedy:
    wanted: Sequence[int] = results["greedy"]
    found = model.generate(PROMPT, temperature=0, max_tokens=len(wanted), ignore_eos=True).tokens
    pairs = zip(found, wanted, strict=False)
    n_equal = next((place for place, (one, other) in enumerate(pairs) if one != other), len(wanted))
    return Greedy(n_equal, len(wanted), results["gaps"][n_equal] if n_equal < len(wanted) else 0.0)


class Vectors(NamedTuple):
    """The smallest cosine to the reference, and for how many sentences the nearest other one is the same."""

    cosine: float
    neighbours: int


def vectors(model: Model, reference: Sequence[Sequence[float]]) -> Vectors:
    found, wanted = np.array(model.embed(list(SENTENCES)), np.float64), np.array(reference)
    return Vectors(float((found * wanted).sum(axis=1).min()), int((_nearest(found) == _nearest(wanted)).sum()))


def _nearest(rows: NDArray[np.float64]) -> NDArray[np.intp]:
    return np.asarray((rows @ rows.T - 2 * np.eye(len(rows))).argmax(axis=1))


def digest(file: GGUFFile) -> str:
    """Return the SHA-256 of all tensors: names, types and bytes."""
    total = hashlib.sha256()
    for name, tensor in sorted(file.tensors.items()):
        total.update(f"{name} {tensor.type.name} ".encode())
        total.update(tensor.data.reshape(-1).data)
    return total.hexdigest()


def ends(model: Model) -> bool:
    return model.chat(QUESTION, temperature=0, max_tokens=64).finish_reason == "stop"


def long_ids(model: Model, n_tokens: int) -> list[int]:
    """Return the tokens of a long text with a question about its beginning, as transformers read it."""
    tokenizer = model.tokenizer
    ids = long_text(lambda text: tokenizer.tokenize(text, add_special=False), n_tokens)
    return [*tokenizer.tokenize(""), *ids]


def late_rows(model: Model, ids: Sequence[int], n_rows: int) -> NDArray[np.float32]:
    """Return log-probabilities [n_rows, n_vocab] after the last tokens of a text; improbable tokens share the rest."""
    rows = np.empty((n_rows, model.n_vocab), np.float32)
    for row, n_after in zip(rows, range(n_rows - 1, -1, -1), strict=True):
        done = model.generate(ids[: len(ids) - n_after], max_tokens=1, logprobs=N_TOP, temperature=0, ignore_eos=True)
        assert done.logprobs is not None
        tokens, values = zip(*done.logprobs[0].top, strict=True)
        rest = max(1 - np.exp(values).sum(), 1e-9)
        row[:] = np.log(rest / (model.n_vocab - len(tokens)))
        row[list(tokens)] = values
    return rows
