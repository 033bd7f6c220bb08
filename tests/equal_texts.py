"""Random requests, which give the same with drafts and without, and small models that answer them."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import pumice
from adapters import ATTENTION, write_adapter
from pumice.backend.step import Batch
from pumice.engine.placement.runner import Runner
from pumice.gguf import GGMLType, GGUFFile, TensorInfo
from pumice.gguf.copy import copy_tensors, encoded_metadata
from pumice.gguf.writer import Writer
from pumice.quantize import quantize
from tiny_drafts import DRAFTS, FOR_TARGETS, fitted
from tiny_drafts import MODELS as DRAFTING
from tiny_zoo import ZOO

PROPOSERS = [
    *("ngram", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"),
    *("draft", "ngram,draft", "prediction"),
]
MODELS = {
    "demo": "demo", "rope-plain": "gemma2", "gemma2": "rope-plain", "qwen3next": "mamba", "mamba": "qwen3next",
    "glm4moe": "gemma2",
}  # fmt: skip
"""Models, and which of them drafts for each; those of ``DRAFTING`` have a layer that drafts."""
FURTHER = {
    "rwkv7": "mamba", "mamba2": "rwkv7", "jamba": "rope-plain", "falcon-h1": "gemma2", "lfm2": "jamba",
    "gpt-oss": "lfm2", "qwen35": "falcon-h1", "nemotron_h_moe": "rwkv7", "deepseek2": "rope-plain", "step35": "gemma2",
}  # fmt: skip
"""More of them: recurrent, hybrid, latent attention, windows and sinks."""
HEADS = {
    "eagle3": "rope-plain", "eagle3-few-tokens": "qwen3next", "dflash": "rope-plain", "dflash-windows": "gemma2",
    "dspark": "rope-plain", "dspark-behind-a-token": "gemma2", "dflash2": "rope-plain", "gemma4-assistant": "gemma4",
    "dflash2-few-tokens": "gemma2", "dspark-unsure": "mamba",
}  # fmt: skip
"""Drafts that read inputs or caches of layers, and the model of each; their proposer is ``draft``."""
LETTERS = [*"abcdefghijklmnopqrstu", "ab", "Ġ", *'.,{}":01', "<end>"]
WORDS = ["one", "two", "the", "cat", "and", "dog", "big", "red", "ball", "sat", "on", "mat", "said", "yes", "to", "him"]
GRAMMARS: list[dict[str, Any]] = [
    {"grammar": 'root ::= ("ab" | "ac " | "d")+ "."'},
    {"regex": "[a-d]{3,20}(, [0-1]{2}){1,3}"},
    {"choices": ["a bad cab", "a bad cat", "d"]},
    {"json_schema": {"type": "object", "properties": {"a": {"enum": ["bad", "bade"]}, "b": {"type": "boolean"}}}},
]
CHAINS: list[dict[str, Any]] = [
    {"temperature": 0}, {"temperature": 0.3}, {"temperature": 1.0, "top_k": 5, "repeat_penalty": 1.2},
    {"temperature": 0.7, "frequency_penalty": 0.3, "presence_penalty": 0.2, "repeat_last_n": 8}, {"mirostat": 1},
    {"mirostat": 2}, {"temperature": 0.8, "dry_multiplier": 0.8}, {"temperature": 1.2, "xtc_probability": 0.5},
    {"temperature": 0.6, "typical_p": 0.8, "dynatemp_range": 0.3}, {"temperature": 0, "repeat_penalty": 1.1},
    {"temperature": 0.9, "min_p": 0.1, "top_n_sigma": 1.5}, {"temperature": 0.8, "rng": "mt19937"},
    {"temperature": 0.8, "adaptive_target": 0.4},
]  # fmt: skip


def write_model(name: str, folder: Path) -> Path:
    """Write a model whose matrices are quantized, with a tokenizer of single characters."""
    path = folder / f"{name}.gguf"
    if name == "demo":
        return pumice.demo_model_path()
    if path.exists():
        return path
    model = DRAFTING[name] if name in DRAFTING else ZOO[name]
    plain, worded = model.write(folder / f"{name}-f32.gguf"), folder / f"{name}-words.gguf"
    with GGUFFile.open(plain) as file:
        metadata: dict[str, Any] = encoded_metadata(file.metadata)
        tokens = {
            "model": "gpt2",
            "pre": "gpt-2",
            "tokens": LETTERS,
            "merges": ["a b"],
            "eos_token_id": len(LETTERS) - 1,
        }
        metadata |= {f"tokenizer.ggml.{key}": value for key, value in tokens.items()}
        metadata["tokenizer.ggml.token_type"] = [1] * (len(LETTERS) - 1) + [3]
        tensors = list(file.tensors.values())
        with Writer(worded, metadata, tensors) as writer:
            copy_tensors(writer, tensors)
    quantize(worded, path, "Q8_0")
    return path


def write_draft(name: str, folder: Path) -> Path:
    """Write a draft of ``HEADS``."""
    draft, path = DRAFTS[name], folder / f"{name}-draft.gguf"
    if path.exists():
        return path
    return draft.write(path) if name in FOR_TARGETS else fitted(draft, ZOO[HEADS[name]]).write(path)


def write_lora(name: str, folder: Path) -> Path:
    """Write a random adapter of a model's attention."""
    path = folder / f"{name}-lora.gguf"
    if path.exists():
        return path
    if name != "demo":
        model = ZOO[name]
        return write_adapter(path, model, [tensor for tensor in ATTENTION if tensor in model.shapes])
    random = np.random.default_rng(0)
    arrays = {}
    for layer in range(6):
        arrays[f"blk.{layer}.attn_q.weight.lora_a"] = random.standard_normal((3, 256)).astype(np.float32) * 0.1
        arrays[f"blk.{layer}.attn_q.weight.lora_b"] = random.standard_normal((256, 3)).astype(np.float32) * 0.1
    keys = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"}
    infos = [TensorInfo(key, GGMLType.F32, array.shape) for key, array in arrays.items()]
    with Writer(path, keys | {"adapter.lora.alpha": 4.0}, infos) as writer:
        for array in arrays.values():
            writer.write(array)
    return path


def random_request(random: np.random.Generator, demo: bool, adapted: bool) -> dict[str, Any]:
    """Return the options of a request; ``cancel_after`` is the number of pieces after which it is cancelled."""

    def some(share: float) -> bool:
        return bool(random.random() < share)

    words = WORDS if demo else LETTERS[:22]
    begin = [str(word) for word in random.choice(words, size=random.integers(1, 9))]
    prompt = (" " if demo else "").join(begin * int(random.integers(1, 4)))
    options: dict[str, Any] = {
        "prompt": prompt,
        "max_tokens": int(random.integers(1, 60)),
        "seed": int(random.integers(99)),
    }
    options |= CHAINS[random.integers(len(CHAINS))]
    if some(0.25):
        options |= GRAMMARS[random.integers(len(GRAMMARS))]
    if some(0.1):
        options["min_tokens"] = int(random.integers(options["max_tokens"]))
    if some(0.2):
        options["n_draft"] = int(random.integers(16))
    if some(0.3):
        options["cache_salt"] = "salted"
    if some(0.2):
        options["stop"] = [[" the", "and"], ["b", "cd"]][not demo]
    if some(0.3):
        options |= {"logprobs": int(random.integers(4)), "logprobs_sampled": some(0.5)}
    if some(0.25):
        options |= {"n_ctx": int(random.integers(32, 64)), "context_shift": some(0.7)}
    if some(0.2):
        options["logit_bias"] = {int(random.integers(30)): float(random.normal() * 4)}
    if adapted and some(0.4):
        options["adapters"] = {"lora": float(random.choice([0.0, 0.5, 1.0]))}
    options["priority"] = int(random.integers(3))
    if some(0.1):
        options["cancel_after"] = int(random.integers(1, 10))
    elif some(0.15):
        options["n"] = int(random.integers(2, 4))
    return options


def predicted(random: np.random.Generator, text: str) -> str:
    """Return a text with a part of it left out or repeated."""
    first, second = sorted(random.integers(len(text) + 1, size=2).tolist())
    return text[:first] + (text[second:] if random.random() < 0.5 else text[:second] + text[first:])


def answer(model: pumice.Model, request: dict[str, Any], **more: Any) -> tuple[Any, int, int]:
    """Return all that a request gives, and its numbers of drafted and accepted tokens."""
    options = {**request, **more}
    prompt, cancel_after = options.pop("prompt"), options.pop("cancel_after", None)
    if cancel_after is not None:
        pieces = []
        with model.stream(prompt, **options) as stream:
            for piece in stream:
                pieces.append(tuple(piece[:3]))
                if len(pieces) == cancel_after:
                    break
        return pieces, 0, 0
    try:
        done = model.generate(prompt, **options)
    except pumice.RequestError as error:
        return str(error), 0, 0
    every = done if isinstance(done, list) else [done]
    drafted, accepted = (sum(getattr(each.timings, name) for each in every) for name in ("n_drafted", "n_accepted"))
    return [(each.text, each.tokens, each.finish_reason, each.logprobs) for each in every], drafted, accepted


def same(first: Any, second: Any, exact: bool) -> bool:
    """Return True if two answers are equal; log-probabilities up to rounding unless results are ``exact``."""
    if exact or isinstance(first, str) or first == second:
        return bool(first == second)
    if len(first) != len(second) or any(one[:3] != other[:3] for one, other in zip(first, second, strict=True)):
        return False
    return all(np.allclose(_values(one), _values(other), atol=1e-3) for one, other in zip(first, second, strict=True))


def _values(completion: tuple[Any, ...]) -> list[float]:
    """Return all log-probabilities of a completion."""
    return [value for each in completion[3] or () for value in (each.logprob, *(logprob for _, logprob in each.top))]


def missing_blocks(batch: Batch, block_size: int) -> list[str]:
    """Return the blocks that a step would read or write, and that its sequences do not hold."""
    missing = []
    for i, (begin, end) in enumerate(zip(batch.seq_starts[:-1], batch.seq_starts[1:], strict=True)):
        first, last = (int(batch.positions[row]) for row in (begin, end - 1))
        for window, tables in batch.block_tables.items():
            oldest = max(0, first - window + 1) // block_size if window else 0
            held = tables[i][oldest : last // block_size + 1]
            if (held < 0).any() or len(held) != last // block_size + 1 - oldest:
                missing.append(f"positions {first} to {last}, window {window}: blocks {tables[i].tolist()}")
    return missing


@contextmanager
def checked_steps() -> Iterator[None]:
    """Raise AssertionError at the end if a step used blocks that are not held, since it overwrote other memory."""
    faults, submit = [], Runner.submit

    def checked(runner: Runner, batch: Batch, *args: Any, **kwargs: Any) -> Any:
        faults.extend(missing_blocks(batch, runner.limits.block_size))
        return submit(runner, batch, *args, **kwargs)

    with patch.object(Runner, "submit", checked):
        yield
    assert not faults, f"{len(faults)} steps use blocks that are not held: {faults[0]}"


def _setting(
    name: str, folder: Path, backend: str, threads: int, invariant: bool
) -> tuple[Path, dict[str, Any], list[str]]:
    """Return the file of a model, a draft in its configuration, and the proposers of its requests."""
    options: dict[str, dict[str, Any]] = {
        "cpu": {"threads": threads, "batch_invariant": True},
        "numpy": {"batch_invariant": True},
    }
    own = options.get(backend, {"batch_invariant": True} if invariant else {})
    config: dict[str, Any] = {backend: own, "draft_p_min": 0.1}
    if name in HEADS:
        config |= {"draft": str(write_draft(name, folder)), "draft_p_min": 0.0}
        return write_model(HEADS[name], folder), config, ["draft", "ngram,draft", "auto"]
    config |= {"draft": str(write_model((MODELS | FURTHER)[name], folder))}
    if name not in DRAFTING:
        return write_model(name, folder), config, PROPOSERS
    config |= {"speculate": "auto" if backend in options else "mtp"}
    return write_model(name, folder), config, [*PROPOSERS, "mtp", "ngram,mtp", "auto"]


def unequal(
    name: str,
    folder: Path,
    requests: int,
    seed: int,
    threads: int = 1,
    at_once: int = 8,
    n_draft: int = 5,
    backend: str = "cpu",
    n_choices: int = 1,
    invariant: bool = False,
    control: bool = False,
) -> Iterator[tuple[dict[str, Any] | None, str, int, int]]:
    """Yield for each request: itself if its answers differ, else None; its proposers; drafted and accepted tokens.

    ``at_once`` requests share fewer places and a cache that is too small for them. Each is answered without drafts and
    by ``n_choices`` random choices of proposers. Backends other than the CPU and NumPy round results differently
    in each batch; ``invariant`` turns their ``batch_invariant`` on. ``control``: the second answers are without drafts
    too, in other batches.
    """
    random = np.random.default_rng(seed)
    path, config, proposers = _setting(name, folder, backend, threads, invariant)
    lora = write_lora(name, folder) if name in ("demo", "rope-plain", "gemma2") else None
    config |= {"n_draft": n_draft} | ({"adapters": {"lora": {"file": str(lora), "scale": 0.0}}} if lora else {})
    wanted = [random_request(random, name == "demo", lora is not None) for _ in range(requests)]
    choices = [random.permutation(proposers)[:n_choices].tolist() for _ in range(requests)]
    order = list(range(requests))
    if control:
        choices, order = [["off"]] * requests, random.permutation(requests).tolist()
    sizes = {"n_ctx": 192, "n_batch": int(random.choice([8, 24, 64])), "n_parallel": int(random.integers(2, 6))}
    if invariant:
        sizes["n_batch"] = min(sizes["n_batch"], 16)  # larger steps of GPUs round differently
    sizes["kv_type"] = str(random.choice(["f16", "f32", *["q8_0"] * (name == "demo")]))  # tiny heads are no whole block
    with (
        checked_steps(),
        pumice.load(path, backend=backend, config=config, **sizes) as model,
        ThreadPoolExecutor(at_once) as pool,
    ):

        def answers(asked: Sequence[dict[str, Any]], speculate: Sequence[str]) -> Iterator[tuple[Any, int, int]]:
            return pool.map(lambda each, choice: answer(model, each, speculate=choice), asked, speculate)

        def ordered(asked: Sequence[dict[str, Any]], speculate: Sequence[str]) -> list[tuple[Any, int, int]]:
            given = answers([asked[i] for i in order], [speculate[i] for i in order])
            return [found for _, found in sorted(zip(order, given, strict=True), key=lambda pair: pair[0])]

        without = list(answers(wanted, ["off"] * requests))
        for turn in zip(*choices, strict=True):
            asked = [
                request | ({"prediction": _prediction(random, found)} if choice == "prediction" else {})
                for request, choice, (found, _, _) in zip(wanted, turn, without, strict=True)
            ]
            for request, choice, (first, _, _), (second, *counts) in zip(
                asked, turn, without, ordered(asked, turn), strict=True
            ):
                yield None if same(first, second, backend in ("cpu", "numpy")) else request, choice, *counts


def _prediction(random: np.random.Generator, answered: Any) -> str | None:
    """Return a prediction of an answer, with changes; None for an error or a cancelled stream without text."""
    if not answered or not isinstance(answered[0], tuple):
        return None
    return predicted(random, "".join(str(part[0]) for part in answered))
