"""Train the demo model that sees: `python -m tools.demo_vision.train --out build/demo_vision --seconds 330`.

Draws pictures while it trains, measures on others, and writes a checkpoint's folder and `vision_demo.tar` of it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from .data import DataConfig, Pairs, drawing
from .dialogues import ASSISTANT, CHAT_TEMPLATE, END, LEARNED, SPECIAL, Writer, train_tokenizer
from .model import ModelConfig, Seeing, answers, config_json
from .scenes import N_KINDS, Scene, draw, fitted, scenes
from .sentences import QUESTIONS, contents, description

HELD_OUT_SHARD = -2
CARD = """\
---
license: apache-2.0
language: [en]
tags: [image-text-to-text]
---
"""
"""The model card, which has the licence."""
IGNORED = -100
OF_PATCHES = 0.3
"""Weight of the loss of patches."""


class Log:
    """A log with seconds since the start, on the terminal and in a file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def __call__(self, message: str) -> None:
        line = f"{self.seconds:7.1f} s  {message}"
        print(line, flush=True)
        print(line, file=self._file, flush=True)


class Pool:
    """Pairs of pictures on the device, of which there are more and more while a thread adds them."""

    def __init__(self, config: DataConfig, most: int, device: torch.device) -> None:
        n, size = config.n_texts, config.image_size
        self.pictures = torch.empty((most, 2, size, size, 3), dtype=torch.uint8, device=device)
        self.covered = torch.empty((most, 2, config.grid**2), dtype=torch.uint8, device=device)
        self.tokens = torch.empty((most, n, 2, config.length), dtype=torch.int16, device=device)
        self.first = torch.empty((most, n, 2), dtype=torch.uint8, device=device)
        self.n = 0
        self.error: BaseException | None = None
        self._most = most

    def fill(self, shards: Iterator[Pairs], stop: threading.Event) -> None:
        """Add shards until the pool is full, or ``stop`` is set."""
        try:
            while not stop.is_set() and self.n < self._most:
                self.add(next(shards))
        except BaseException as error:
            self.error = error

    def add(self, pairs: Pairs) -> None:
        n = min(len(pairs.pictures), self._most - self.n)
        for name in ("pictures", "covered", "first", "tokens"):
            values = getattr(pairs, name)[:n]
            values = values.astype("int16") if name == "tokens" else values
            getattr(self, name)[self.n : self.n + n].copy_(torch.from_numpy(values))
        if self.pictures.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        self.n += n

    def batch(self, n_pairs: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return pictures, what covers their patches, tokens [2 n, length] and pictures of texts [2 n, 2]."""
        device = self.pictures.device
        chosen = torch.randint(self.n, (n_pairs,), device=device)
        text = torch.randint(self.tokens.shape[1], (n_pairs,), device=device)
        first = self.first[chosen, text].long()
        numbers = 2 * torch.arange(n_pairs, device=device)[:, None, None] + torch.stack((first, 1 - first), -1)
        tokens = self.tokens[chosen, text].long()
        return (
            self.pictures[chosen].flatten(0, 1),
            self.covered[chosen].flatten(0, 1),
            tokens.flatten(0, 1),
            numbers.flatten(0, 1),
        )


def loss_of(model: Seeing, pictures: Tensor, covered: Tensor, tokens: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy of the tokens to predict, and that of patches."""
    with torch.autocast(pictures.device.type, torch.bfloat16, enabled=pictures.device.type == "cuda"):
        patches = model.patches(pictures)
        of_patches = F.cross_entropy(model.covered(patches).flatten(0, 1).float(), covered.flatten().long())
        hidden = model.read(tokens[:, :-1] % LEARNED, model.rows(patches), numbers)
        targets = torch.where(tokens >= LEARNED, tokens - LEARNED, IGNORED)[:, 1:]
        logits = model.logits(hidden)
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED), of_patches


def train(model: Seeing, pool: Pool, args: argparse.Namespace, log: Log, until: float) -> int:
    """Train until the log's clock shows ``until`` seconds; return the number of steps."""
    device = pool.pictures.device
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.98), fused=device.type == "cuda")
    step_loss = _compiled(model, pool.batch(args.pairs), log) if args.compile else loss_of
    begin = log.seconds
    total = torch.zeros(2, device=device)
    reported, since = begin, 0
    for step in itertools.count(1):
        done = max((log.seconds - begin) / (until - begin), step / args.steps if args.steps else 0.0)
        if done >= 1 or pool.error:
            break
        rate = args.learning_rate * min(1.0, step / args.warmup, (1 - done) / 0.6)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss, of_patches = step_loss(model, *pool.batch(args.pairs))
        torch.autograd.backward(loss + OF_PATCHES * of_patches)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total += torch.stack((loss.detach(), of_patches.detach()))
        since += 1
        if step % 50 == 0 and log.seconds - reported > args.log_seconds:
            mean = (total / since).tolist()
            log(f"step {step}: loss {mean[0]:.4f}, patches {mean[1]:.4f}, {2 * pool.n} pictures, "
                f"{since / (log.seconds - reported):.1f} steps/s")  # fmt: skip
            total.zero_()
            reported, since = log.seconds, 0
    if pool.error:
        raise pool.error
    return step - 1


def _compiled(model: Seeing, example: tuple[Tensor, ...], log: Log) -> Any:
    compiled = torch.compile(loss_of)
    try:
        loss, of_patches = compiled(model, *example)
        torch.autograd.backward(loss + of_patches)
    except Exception as error:  # train without the compiler, only slower
        log(f"not compiled: {type(error).__name__}: {error}".splitlines()[0])
        return loss_of
    finally:
        model.zero_grad(set_to_none=True)
    log("compiled")
    return compiled


def measure(
    model: Seeing, tokenizer: Tokenizer, config: DataConfig, args: argparse.Namespace, log: Log
) -> dict[str, Any]:
    """Return how many of each kind of answers are right, word for word, for pictures that are not trained on."""
    random = Random(f"{args.seed}/held out")
    writer = Writer(tokenizer, config.length, config.n_rows)
    chosen = list(itertools.islice(scenes(args.seed, HELD_OUT_SHARD), args.held_out))
    pixels = torch.stack([_pixels(scene, random, config.image_size) for scene in chosen]).to(args.device)
    result: dict[str, Any] = {}
    failures: list[dict[str, str]] = []
    for kind in ("text", "opening", *QUESTIONS):
        texts = [_case(writer, scene, kind, random) for scene in chosen]
        right: Counter[bool] = Counter()
        by_length: dict[int, list[int]] = {}
        for i, (start, _) in enumerate(texts):
            by_length.setdefault(len(start), []).append(i)
        for places in by_length.values():
            for begin in range(0, len(places), args.eval_batch):
                part = places[begin : begin + args.eval_batch]
                made = answers(model, pixels[torch.tensor(part, device=args.device)], [texts[i][0] for i in part], 72)
                for i, ids in zip(part, made, strict=True):
                    text = tokenizer.decode(ids)
                    right[text == texts[i][1]] += 1
                    if text != texts[i][1] and len(failures) < 60:
                        failures.append({"kind": kind, "expected": texts[i][1], "answer": text})
        result[kind] = f"{right[True]} of {right.total()}"
        log(f"held out, {kind}: {result[kind]} right")
    return result | {"failures": failures}


def _pixels(scene: Scene, random: Random, size: int) -> Tensor:
    return torch.frombuffer(bytearray(fitted(draw(scene, random), size).tobytes()), dtype=torch.uint8).view(
        size, size, 3
    )


def _case(writer: Writer, scene: Scene, kind: str, random: Random) -> tuple[list[int], str]:
    """Return the tokens before an answer, and the right one."""
    if kind == "text":
        return writer.text_start(), description(scene)
    if kind == "opening":
        return writer.text_start("A picture of"), f" {contents(scene)}."
    question, answer = QUESTIONS[kind](scene, random)
    return writer.chat_start(question), answer


def write(folder: Path, model: Seeing, tokenizer: Tokenizer) -> None:
    """Write a checkpoint as transformers has them."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(model.checkpoint(), folder / "model.safetensors", {"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    size = {"longest_edge": model.config.image_size}
    half = [0.5, 0.5, 0.5]
    files: dict[str, Any] = {
        "config.json": config_json(model.config),
        "preprocessor_config.json": {
            "image_processor_type": "Idefics3ImageProcessor",
            "size": size,
            "max_image_size": size,
            "do_image_splitting": True,
            "image_mean": half,
            "image_std": half,
        },
        "processor_config.json": {"processor_class": "Idefics3Processor", "image_seq_len": model.config.n_rows},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END,
            "pad_token": END,
            "add_bos_token": False,
            "additional_special_tokens": list(SPECIAL),
        },
        "generation_config.json": {"eos_token_id": SPECIAL.index(END)},
    }
    for name, values in files.items():
        (folder / name).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(CARD, encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")


def pack(out: Path) -> None:
    """Write one file of all results."""
    with tarfile.open(out / "vision_demo.tar.new", "w") as file:
        for path in sorted((out / "checkpoint").iterdir()):
            file.add(path, f"checkpoint/{path.name}")
        for name in ("train.log", "metrics.json"):
            if (out / name).exists():
                file.add(out / name, name)
    os.replace(out / "vision_demo.tar.new", out / "vision_demo.tar")


def main() -> None:
    args = _arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    log = Log(args.out / "train.log")
    args.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.enable_cudnn_sdp(False)  # it would need a plan per shape
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.resume:
        tokenizer = Tokenizer.from_file(str(args.resume / "tokenizer.json"))
    else:
        tokenizer = train_tokenizer(args.seed, args.vocab)
    assert tokenizer.token_to_id(ASSISTANT) == SPECIAL.index(ASSISTANT)
    model_config = ModelConfig(n_vocab=tokenizer.get_vocab_size())
    data_config = DataConfig(model_config.image_size, model_config.side, model_config.n_rows, n_pairs=args.shard_pairs)
    model = Seeing(model_config, N_KINDS).to(args.device)
    if args.resume:
        model.load_state_dict(model.of_checkpoint(load_file(args.resume / "model.safetensors")), strict=False)
    n_parameters = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    device = torch.cuda.get_device_name() if args.device.type == "cuda" else "the CPU"
    log(f"torch {torch.__version__} on {device}; {model_config.n_vocab} tokens; parameters: {n_parameters}")
    pool, stop = Pool(data_config, args.most_pairs, args.device), threading.Event()
    with drawing(args.pictures_seed or args.seed, tokenizer.to_str(), data_config, args.processes) as shards:
        thread = threading.Thread(target=pool.fill, args=(shards, stop), daemon=True)
        thread.start()
        while pool.n < args.first_pairs and not pool.error:
            time.sleep(0.05)
        log(f"{2 * pool.n} pictures are drawn")
        steps = train(model, pool, args, log, args.seconds - args.measuring)
        stop.set()
        thread.join()
    log(f"trained: {steps} steps of {2 * args.pairs} pictures and texts, {2 * pool.n} pictures")
    model.eval()
    torch.set_float32_matmul_precision("highest")
    write(args.out / "checkpoint", model, tokenizer)
    pack(args.out)
    metrics = {"seed": args.seed, "model": asdict(model_config), "steps": steps, "pictures": 2 * pool.n}
    metrics |= {"pairs": args.pairs, "device": device, "torch": torch.__version__, "parameters": n_parameters}
    metrics |= {"held_out": measure(model, tokenizer, data_config, args, log)}
    (args.out / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
    log("done")
    pack(args.out)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pictures-seed", type=int, default=0, help="of the pictures to train on (0 = --seed)")
    parser.add_argument("--seconds", type=float, default=330.0, help="of everything")
    parser.add_argument("--measuring", type=float, default=35.0, help="of these, seconds that are kept for measuring")
    parser.add_argument("--steps", type=int, default=0, help="end earlier, after this number of steps")
    parser.add_argument("--vocab", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=256, help="pairs of pictures of a step")
    parser.add_argument("--most-pairs", type=int, default=500_000, help="pairs to draw")
    parser.add_argument("--first-pairs", type=int, default=10_000, help="pairs to draw before training begins")
    parser.add_argument("--shard-pairs", type=int, default=500)
    parser.add_argument("--held-out", type=int, default=4000, help="pictures to measure with")
    parser.add_argument("--eval-batch", type=int, default=1000)
    parser.add_argument("--learning-rate", type=float, default=1.5e-3)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--log-seconds", type=float, default=10.0)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 1) * 3 // 4))
    parser.add_argument("--resume", type=Path, help="checkpoint to begin with: a folder of this program")
    parser.add_argument("--threads", type=int, default=0, help="PyTorch threads on the CPU (0 = PyTorch's default)")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=False)
    return parser.parse_args()


if __name__ == "__main__":
    main()
