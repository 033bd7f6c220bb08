"""Build the demo model from a seed: `python -m tools.demo_model.pipeline --out build/demo_model`.

Runs all steps: tokenizer, corpus, training, GGUF files, and measurements to metrics.json. README.md has durations.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer

from . import corruptions, notation
from .checker import check
from .corpus import encode_corpus, encode_shard
from .entropy import entropy
from .export import TYPES, export
from .generate import stories
from .model import Llama, ModelConfig
from .sample import sample
from .tokenizer import train_on_stories
from .train import Progress, TrainConfig, mean_loss, train

HELD_OUT_SHARD = -2


class Log:
    """A log with seconds since the start, on the terminal and in a file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._start = time.monotonic()

    def __call__(self, message: str) -> None:
        line = f"{time.monotonic() - self._start:7.1f} s  {message}"
        print(line, flush=True)
        print(line, file=self._file, flush=True)


def main() -> None:
    args = _arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    log = Log(args.out / "train.log")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if args.threads:
        torch.set_num_threads(args.threads)
    log(f"grammar: {len(notation.load().plots)} plots, {notation.load().n_patterns} sentence patterns")

    tokenizer = train_on_stories(args.seed, args.vocab, args.tokenizer_stories)
    tokenizer.save(str(args.out / "tokenizer.json"))
    model_config = ModelConfig(n_vocab=tokenizer.get_vocab_size())
    log(f"tokenizer: {model_config.n_vocab} tokens")

    length = model_config.n_ctx + 1
    rows, n_predicted = encode_corpus(args.seed, args.shards, args.stories, tokenizer, length, args.processes)
    held_out = encode_shard(
        HELD_OUT_SHARD, seed=args.seed, count=args.held_out, tokenizer_json=tokenizer.to_str(), length=length
    ).rows
    log(f"corpus: {args.shards * args.stories} stories, {n_predicted} tokens in {len(rows)} rows of {length}")
    checking = _start_corpus_check(args)
    device_name = torch.cuda.get_device_name() if device.type == "cuda" else "the CPU"
    log(f"torch {torch.__version__} on {device_name}")

    train_config = _train_config(args)
    curve: list[dict[str, Any]] = []

    def report(progress: Progress, model: Llama) -> None:
        curve.append(asdict(progress))
        speed = progress.step * args.batch_rows * model_config.n_ctx / max(progress.seconds, 1e-9)
        held = "" if progress.held_out_loss is None else f", held out {progress.held_out_loss:.4f}"
        log(f"step {progress.step}/{progress.steps}: loss {progress.train_loss:.4f}{held}, {speed:,.0f} tokens/s")
        if progress.held_out_loss is not None:
            _export_all(model, tokenizer, args.out)

    model, steps = train(model_config, train_config, rows, held_out, device, report)
    log(f"trained: {sum(p.numel() for p in model.parameters()):,} parameters, {steps} steps")

    metrics: dict[str, Any] = {
        "seed": args.seed,
        "model": asdict(model_config),
        "training": asdict(train_config) | {"steps_done": steps, "curve": curve},
        "corpus": {"stories": args.shards * args.stories, "predicted_tokens": n_predicted, "rows": len(rows)},
        "patterns": notation.load().n_patterns,
        "device": device_name,
        "torch": torch.__version__,
    }
    metrics |= _measure(model, tokenizer, args, held_out, device, log)
    _write_json(args.out / "metrics.json", metrics)
    metrics["corpus"]["check"] = _corpus_check_result(checking)
    log(f"corpus check: {metrics['corpus']['check']}")
    metrics["files"] = {path.name: path.stat().st_size for path in sorted(args.out.glob("*.gguf"))}
    _write_json(args.out / "metrics.json", metrics)
    log("done")


def _train_config(args: argparse.Namespace) -> TrainConfig:
    return TrainConfig(
        seed=args.seed,
        steps=args.steps,
        max_seconds=args.max_seconds,
        batch_rows=args.batch_rows,
        learning_rate=args.learning_rate,
        compile=not args.no_compile,
        log_every=args.log_every,
        save_every=args.save_every,
    )


def _measure(
    model: Llama, tokenizer: Tokenizer, args: argparse.Namespace, held_out: Any, device: torch.device, log: Log
) -> dict[str, Any]:
    """Measure held-out perplexity next to the generator's, and check sampled and corrupted stories."""
    loss, n = mean_loss(model, held_out, device)
    floor = entropy(args.seed, HELD_OUT_SHARD, args.held_out, tokenizer)
    log(f"held out: perplexity {math.exp(loss):.4f} over {n} tokens; the generator's: {floor.perplexity:.4f}")
    result: dict[str, Any] = {
        "held_out": {"nats_per_token": loss, "perplexity": math.exp(loss), "predicted_tokens": n},
        "generator": asdict(floor),
        "samples": {},
    }
    for name, temperature, prompt in (
        ("temperature 0.8", 0.8, ""),
        ("temperature 1.0", 1.0, ""),
        ("temperature 0.8, once upon a time", 0.8, "Once upon a time"),
    ):
        texts = sample(
            model, tokenizer, args.samples, temperature=temperature, seed=args.seed, prompt=prompt, device=device
        )
        verdicts = [check(text) for text in texts]
        passed = sum(verdict.ok for verdict in verdicts)
        failures = [
            {"why": str(verdict), "text": text} for verdict, text in zip(verdicts, texts, strict=True) if not verdict.ok
        ]
        result["samples"][name] = {"sampled": len(texts), "passed": passed, "failures": failures}
        log(f"{name}: {passed} of {len(texts)} stories pass the checker, {len(set(texts))} are distinct")
        if not prompt and temperature == 0.8:
            (args.out / "samples.txt").write_text("\n\n---\n\n".join(texts) + "\n", encoding="utf-8")
    result["corruptions"] = _spoil(args.seed, min(args.held_out, 1000))
    log(f"corrupted stories that the checker rejects: {result['corruptions']}")
    return result


def _spoil(seed: int, count: int) -> dict[str, str]:
    random = Random(seed)
    originals = [story.text for _, story in zip(range(count), stories(seed, HELD_OUT_SHARD), strict=False)]
    return {
        name: f"{sum(not check(spoil(text, random)).ok for text in originals)} of {count}"
        for name, spoil in corruptions.CORRUPTIONS.items()
    }


def _export_all(model: Llama, tokenizer: Tokenizer, out: Path) -> None:
    for file_type in TYPES:
        export(model, tokenizer, out / f"pumice-demo-{file_type}.gguf", file_type)


def _start_corpus_check(args: argparse.Namespace) -> subprocess.Popen[str] | None:
    """Check the corpus on the CPU while the GPU trains."""
    if args.no_corpus_check:
        return None
    command = [sys.executable, "-m", "tools.demo_model.checker", "--seed", str(args.seed)]
    command += [
        "--shards",
        str(args.shards),
        "--count",
        str(args.stories),
        "--processes",
        str(max(1, args.processes - 2)),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _corpus_check_result(checking: subprocess.Popen[str] | None) -> Any:
    return None if checking is None else json.loads(checking.communicate()[0])


def _write_json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vocab", type=int, default=2048)
    parser.add_argument("--tokenizer-stories", type=int, default=20_000)
    parser.add_argument("--shards", type=int, default=128)
    parser.add_argument("--stories", type=int, default=10_000, help="stories per shard")
    parser.add_argument("--held-out", type=int, default=4000, help="stories")
    parser.add_argument("--samples", type=int, default=300, help="stories to sample per measurement")
    parser.add_argument("--steps", type=int, default=TrainConfig.steps)
    parser.add_argument(
        "--max-seconds", type=float, default=TrainConfig.max_seconds, help="time limit of the training in seconds"
    )
    parser.add_argument("--batch-rows", type=int, default=TrainConfig.batch_rows)
    parser.add_argument("--learning-rate", type=float, default=TrainConfig.learning_rate)
    parser.add_argument("--log-every", type=int, default=TrainConfig.log_every)
    parser.add_argument("--save-every", type=int, default=TrainConfig.save_every)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--threads", type=int, default=0, help="PyTorch threads on the CPU (0 = PyTorch's default)")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--no-corpus-check", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
