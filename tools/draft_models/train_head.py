"""Train an EAGLE-3 head for a llama model in GGUF, on texts that the model itself writes.

    python -m tools.draft_models.train_head demo --out build/demo-eagle3.gguf --seconds 200
    pumice run demo --draft build/demo-eagle3.gguf

The texts begin with the beginnings of stories (or of the paragraphs of ``--text``), with parts of them, and with random
tokens. The model's weights are decoded to float32, and its vectors must be those of the architecture `llama`.
"""

from __future__ import annotations

import argparse
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import pumice
from pumice.gguf import GGUFFile
from pumice.gguf.copy import encoded_metadata
from tools.demo_model.generate import stories
from tools.demo_model.model import Block, Llama, ModelConfig

from .eagle import Eagle, target_layers
from .export import block_modules, export_eagle
from .own_text import continued
from .train import Log, Rows, fit_eagle

N_PROMPT = 16  # tokens of a row that the model does not write, at most
N_STORIES = 2000
TEXT_SHARE = 0.3  # of the time: the model writes
N_HELD_OUT = 16  # rows


def read_llama(path: Path, length: int) -> Llama:
    """Return the llama model of a file, for texts of ``length`` tokens."""
    with GGUFFile.open(path) as file:
        keys = {key.removeprefix("llama."): value for key, value in file.metadata.items() if key.startswith("llama.")}
        if file.metadata["general.architecture"] != "llama":
            raise SystemExit(f"{path}: architecture {file.metadata['general.architecture']}, but only llama is trained")
        config = ModelConfig(
            n_vocab=file.tensors["token_embd.weight"].shape[0],
            n_embd=keys["embedding_length"],
            n_layer=keys["block_count"],
            n_head=keys["attention.head_count"],
            n_head_kv=keys["attention.head_count_kv"],
            n_ff=keys["feed_forward_length"],
            n_ctx=length,
            rope_base=keys.get("rope.freq_base", 10_000.0),
            norm_eps=keys["attention.layer_norm_rms_epsilon"],
        )
        model = Llama(config)
        modules = {"token_embd": model.embedding, "output_norm": model.norm}
        for i, block in enumerate(model.blocks):
            assert isinstance(block, Block)
            modules |= {f"blk.{i}.{part}": module for part, module in block_modules(block).items()}
        if missing := {f"{name}.weight" for name in modules} ^ set(file.tensors):
            raise SystemExit(f"{path}: unknown or missing tensors {sorted(missing)[:5]}; the output must be tied")
        with torch.no_grad():
            for name, module in modules.items():
                array = np.array(file.tensors[f"{name}.weight"].dequantize(), np.float32)
                module.weight.copy_(torch.from_numpy(array))
    return model.requires_grad_(False)


def tokenizer_of(path: Path) -> dict[str, Any]:
    """Return the keys of a file's tokenizer, except the chat template."""
    with GGUFFile.open(path) as file:
        entries = encoded_metadata(file.metadata)
    return {key: entry for key, entry in entries.items() if key.startswith("tokenizer.ggml.")}


class Prompts:
    """Beginnings of rows: of texts, from anywhere in them, or random tokens."""

    def __init__(self, path: Path, texts: list[str], seed: int) -> None:
        tokenizer = pumice.load_tokenizer(path)
        self._texts = [np.array(tokenizer.tokenize(text, add_special=False), np.int64) for text in texts]
        self._texts = [tokens for tokens in self._texts if len(tokens) > N_PROMPT]
        if not self._texts or tokenizer.bos is None or not tokenizer.eog:
            raise SystemExit(f"{path}: no long text to begin with, or no token that begins or ends a text")
        self._n_vocab = tokenizer.n_vocab
        self._random = np.random.default_rng(seed)
        self.bos, self.eos = tokenizer.bos, min(tokenizer.eog)

    def batch(self, size: int) -> npt.NDArray[np.int64]:
        """Return prompts [size, n], all of the same random length."""
        n = int(self._random.integers(1, N_PROMPT))
        return np.array([[self.bos, *self._prompt(n)] for _ in range(size)], np.int64)

    def _prompt(self, n: int) -> npt.NDArray[np.int64]:
        tokens = self._texts[self._random.integers(len(self._texts))]
        kind = self._random.random()
        if kind < 0.05:
            return self._random.integers(self._n_vocab, size=n)
        begin = 0 if kind < 0.5 else int(self._random.integers(len(tokens) - n))
        return tokens[begin : begin + n]


def write_texts(target: Llama, prompts: Prompts, options: argparse.Namespace, end: float, log: Log) -> Tensor:
    """Return rows [n, length] that the target writes until ``time.time()`` is ``end``, or ``--rows`` of them."""
    parts, n = [], 0
    while n < options.rows and (not parts or time.time() < end):
        begin = torch.from_numpy(prompts.batch(min(options.at_once, options.rows - n))).to(options.device)
        with torch.autocast(options.device, torch.bfloat16, enabled=options.device == "cuda"):
            parts.append(continued(target, begin, options.length, prompts.bos, prompts.eos).int().cpu())
        n += len(parts[-1])
    log(f"text: {n} rows of {options.length} tokens")
    return torch.cat(parts)


def main() -> None:
    options = _options()
    began = time.time()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    log = Log(options.out.with_suffix(".log"), began)
    path = pumice.demo_model_path() if str(options.target) == "demo" else options.target
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    target = read_llama(path, options.length).to(options.device)
    text = options.text.read_text(encoding="utf-8").split("\n\n") if options.text else None
    texts = text or [story.text for story in islice(stories(options.seed), N_STORIES)]
    rows = write_texts(target, Prompts(path, texts, options.seed), options, began + TEXT_SHARE * options.seconds, log)
    held_out, rows = rows[:N_HELD_OUT], rows[N_HELD_OUT:]
    if not len(rows):
        raise SystemExit(f"the model wrote only {len(held_out)} rows: raise --seconds or --at-once")
    head = Eagle(target.config, options.n_ff).to(options.device)
    head.begin_as(target)
    batches = Rows(rows.numpy(), options.batch, options.seed, torch.device(options.device))
    fit_eagle(head, target, batches, held_out.long(), options.unrolled, began + options.seconds, options.rate, log)
    export_eagle(head, target_layers(target.config), tokenizer_of(path), options.out)
    log(f"wrote {options.out}, {options.out.stat().st_size:,} bytes")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("target", type=Path, help="llama model in GGUF, or demo for the demo model")
    parser.add_argument("--out", type=Path, required=True, help="GGUF file of the head")
    parser.add_argument("--seconds", type=float, default=200.0, help="time limit for texts and training")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cuda or cpu")
    parser.add_argument("--text", type=Path, help="file whose paragraphs the target continues (default: stories)")
    parser.add_argument("--rows", type=int, default=32_768, help="maximum texts that the target writes")
    parser.add_argument("--at-once", type=int, default=1024, help="texts that the target writes at once")
    parser.add_argument("--length", type=int, default=512, help="tokens of a text")
    parser.add_argument("--batch", type=int, default=32, help="texts of a training step")
    parser.add_argument("--unrolled", type=int, default=6, help="steps of drafting that the head learns")
    parser.add_argument("--n-ff", type=int, default=768, help="width of the head's feed-forward network")
    parser.add_argument("--rate", type=float, default=1.5e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
