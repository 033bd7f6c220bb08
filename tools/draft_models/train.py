"""Train a target model, a draft model and an EAGLE-3 head within a time limit.

    python -m tools.draft_models.train --out build/draft_models --seconds 330

Writes target-q8_0.gguf (in parts if ``--split`` says so), sister-q8_0.gguf, eagle-q8_0.gguf, train.log and sister.log.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from tools.demo_model.model import Llama, ModelConfig

from .corpus import encode_corpus, encode_shard, train_tokenizer
from .eagle import Eagle, loss_of, target_layers, with_features
from .export import export_eagle, export_llama, tokenizer_keys

SIZES = {
    "target": {"n_embd": 512, "n_layer": 10, "n_head": 8, "n_head_kv": 4, "n_ff": 1408},
    "sister": {"n_embd": 192, "n_layer": 4, "n_head": 3, "n_head_kv": 1, "n_ff": 512},
}
TINY = {"n_embd": 64, "n_layer": 6, "n_head": 2, "n_head_kv": 1, "n_ff": 96}
HELD_OUT_SHARD = -2
UNROLLED = 5  # steps of drafting that the head learns
SHARES = {"corpus": 0.1, "target": 0.47, "eagle": 0.33}
"""Shares of the time; the sister trains beside the target and the head, and the rest is for files."""


class Log:
    """A log with seconds since the start, on the terminal and in a file."""

    def __init__(self, path: Path, began: float) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._began = began

    def __call__(self, message: str) -> None:
        line = f"{time.time() - self._began:7.1f} s  {message}"
        print(line, flush=True)
        print(line, file=self._file, flush=True)


class Rows:
    """Rows on the device, shuffled for each round, deterministic for a seed."""

    def __init__(self, rows: npt.NDArray[np.integer[Any]], size: int, seed: int, device: torch.device) -> None:
        self._rows = torch.from_numpy(rows.astype(np.int32)).to(device)
        self._size = min(size, len(rows))
        self._random = torch.Generator().manual_seed(seed)
        self._order: list[Tensor] = []

    def next(self) -> Tensor:
        """Return rows [size, length]."""
        if not self._order:
            order = torch.randperm(len(self._rows), generator=self._random)
            order = order[: len(order) // self._size * self._size]
            self._order = list(order.view(-1, self._size).to(self._rows.device))
        return self._rows[self._order.pop()].long()


def optimize(
    module: nn.Module, loss: Callable[[], Tensor], end: float, rate: float, log: Callable[[int, float], None]
) -> int:
    """Train a module until ``time.time()`` is ``end``, and return the number of steps.

    AdamW, bfloat16 on a GPU. The learning rate rises for 100 steps, and falls to zero with the remaining time.
    """
    parameters = list(module.parameters())
    matrices, vectors = [p for p in parameters if p.ndim == 2], [p for p in parameters if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    device = parameters[0].device
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), fused=device.type == "cuda")
    began, step = time.time(), 0
    while (now := time.time()) < end:
        step += 1
        scale = min(step / 100, (end - now) / (end - began))
        for group in optimizer.param_groups:
            group["lr"] = rate * scale
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            value = loss()
        torch.autograd.backward(value)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0 and device.type == "cuda":
            torch.cuda.synchronize()  # the clock decides when to stop
        if step % 100 == 0:
            log(step, value.item())
    return step


def text_loss(model: Llama, rows: Tensor) -> Tensor:
    """Return the mean cross-entropy of rows [batch, length], each token from those before it."""
    logits = model(rows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model: Llama, rows: npt.NDArray[np.uint16], device: torch.device) -> float:
    """Return the mean cross-entropy of held-out rows."""
    parts = torch.from_numpy(rows.astype(np.int64)).to(device).split(16)
    return float(np.mean([text_loss(model, part).item() for part in parts]))


def train_llama(name: str, options: argparse.Namespace, end: float, log: Log) -> Llama:
    """Train the target or its sister, write its file, and return it."""
    device, tokenizer, rows, held_out = _prepared(options)
    torch.manual_seed(options.seed)
    size = TINY if options.tiny else SIZES[name]
    model = Llama(ModelConfig(n_vocab=tokenizer.get_vocab_size(), n_ctx=options.length, **size)).to(device)
    batches = Rows(rows, options.batch, options.seed, device)
    log(f"{name}: {sum(p.numel() for p in model.parameters()):,} parameters, {rows.size:,} tokens of text")
    n = options.batch * options.length

    def report(step: int, loss: float) -> None:
        log(f"{name}: step {step}, {step * n / 1e6:.1f} M tokens, loss {loss:.4f}")

    steps = optimize(model, lambda: text_loss(model, batches.next()), end, options.rate[name], report)
    log(f"{name}: {steps} steps, {steps * n / 1e6:.1f} M tokens, held out {held_out_loss(model, held_out, device):.4f}")
    export_llama(model, tokenizer, options.out / f"{name}-q8_0.gguf", f"Pumice draft test, {name}", options.split)
    return model


def train_eagle(target: Llama, options: argparse.Namespace, end: float, log: Log) -> None:
    """Train the head of a target, and write its file."""
    device, tokenizer, rows, held_out = _prepared(options)
    target.requires_grad_(False)
    head = Eagle(target.config, 96 if options.tiny else 768).to(device)
    half = options.length // 2  # the attention of several steps takes memory for each pair of positions
    batches = Rows(rows[:, : 2 * half].reshape(-1, half), options.batch, options.seed + 1, device)
    held = torch.from_numpy(held_out[: options.batch, :half].astype(np.int64))
    fit_eagle(head, target, batches, held, UNROLLED, end, options.rate["eagle"], log)
    path = options.out / "eagle-q8_0.gguf"
    export_eagle(head, target_layers(target.config), tokenizer_keys(tokenizer), path)


def fit_eagle(
    head: Eagle, target: Llama, batches: Rows, held_out: Tensor, n_steps: int, end: float, rate: float, log: Log
) -> None:
    """Train a head until ``time.time()`` is ``end``, and log how often it agrees with its target on held-out rows."""
    layers, agree = target_layers(target.config), [0.0]
    device = next(head.parameters()).device

    def loss(tokens: Tensor) -> Tensor:
        with torch.no_grad():
            logits, features = with_features(target, tokens, layers)
        value, agree[:] = loss_of(head.unrolled(tokens, features, target, n_steps), logits)
        return value

    def report(step: int, value: float) -> None:
        log(f"eagle: step {step}, loss {value:.4f}, likeliest tokens agree {_shares(agree)}")

    steps = optimize(head, lambda: loss(batches.next()), end, rate, report)
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        loss(held_out.to(device))
    log(f"eagle: {steps} steps, held out: likeliest tokens agree {_shares(agree)}")


def _shares(values: list[float]) -> str:
    return " ".join(f"{value:.3f}" for value in values)


def _prepared(
    options: argparse.Namespace,
) -> tuple[torch.device, Tokenizer, npt.NDArray[np.uint16], npt.NDArray[np.uint16]]:
    """Return the device, the tokenizer, the corpus and held-out rows."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    tokenizer = Tokenizer.from_file(str(options.work / "tokenizer.json"))
    return device, tokenizer, np.load(options.work / "rows.npy"), np.load(options.work / "held_out.npy")


def _write_corpus(options: argparse.Namespace, log: Log) -> None:
    """Write the tokenizer, the corpus and held-out rows for all trainings."""
    options.work.mkdir(parents=True, exist_ok=True)
    if options.tokenizer:
        tokenizer = Tokenizer.from_file(str(options.tokenizer))
    else:
        tokenizer = train_tokenizer(options.seed, options.vocab, options.tokenizer_documents)
    tokenizer.save(str(options.work / "tokenizer.json"))
    seconds = SHARES["corpus"] * options.seconds
    length = options.length + 1
    rows = encode_corpus(options.seed, options.processes, options.documents, seconds, tokenizer, length)
    held_out = encode_shard(
        HELD_OUT_SHARD,
        seed=options.seed,
        count=min(400, options.documents),
        seconds=10,
        tokenizer_json=tokenizer.to_str(),
        length=length,
    )
    np.save(options.work / "rows.npy", rows)
    np.save(options.work / "held_out.npy", held_out)
    log(f"corpus: {tokenizer.get_vocab_size()} kinds of tokens, {len(rows)} rows of {length}")


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    log = Log(options.out / (f"{options.only or 'train'}.log"), options.began)
    end = options.began + options.seconds
    if options.only:
        train_llama(options.only, options, end, log)
        return
    _write_corpus(options, log)
    log(f"torch {torch.__version__} on {torch.cuda.get_device_name() if torch.cuda.is_available() else 'the CPU'}")
    for_heads = options.began + (SHARES["corpus"] + SHARES["target"]) * options.seconds
    for_files = for_heads + SHARES["eagle"] * options.seconds
    command = [sys.executable, "-m", "tools.draft_models.train", *sys.argv[1:], "--only", "sister"]
    command += ["--began", str(options.began), "--seconds", str(for_files - options.began)]
    sister = subprocess.Popen(command)
    try:
        target = train_llama("target", options, for_heads, log)
        train_eagle(target, options, for_files, log)
    finally:
        failed = sister.wait(timeout=60)
    if failed:
        raise SystemExit(f"the training of the sister failed with exit status {failed}")
    log("done")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--work", type=Path, default=Path("build/draft_models/work"), help="folder for the corpus")
    parser.add_argument("--seconds", type=float, default=330.0, help="time limit for everything")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vocab", type=int, default=2048)
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json to use instead of training one")
    parser.add_argument("--tokenizer-documents", type=int, default=5000)
    parser.add_argument("--documents", type=int, default=1_000_000, help="maximum documents of each process")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 1) - 4))
    parser.add_argument("--length", type=int, default=1024, help="tokens of a row")
    parser.add_argument("--batch", type=int, default=32, help="rows of a step")
    parser.add_argument("--split", type=int, default=0, help="maximum bytes of a file (0: no limit)")
    parser.add_argument("--tiny", action="store_true", help="tiny models, to try the script")
    parser.add_argument("--only", choices=["sister"], help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, default=time.time(), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rate = {"target": 1.5e-3, "sister": 3e-3, "eagle": 1.5e-3}
    return options


if __name__ == "__main__":
    main()
