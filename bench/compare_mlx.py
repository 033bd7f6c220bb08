"""Compare the MLX backend with mlx-lm on one machine: the same 4-bit weights, prompts of 512 tokens, 128 generated.

    python bench/compare_mlx.py FOLDER [--size llama-1b] [--repetitions 5] [--json results.json]

Requires MLX and mlx-lm (``pip install mlx-lm``). Writes a Llama with random Q4_0 weights to FOLDER, as GGUF for Pumice
and as affine groups of 32 with the same codes and scales for mlx-lm. Each engine runs in a process of its own on MLX's
default device; medians are printed. The logits of both are compared, to verify that the models are equal.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from pumice.gguf import GGMLType, GGUFFile
from pumice.gguf.writer import TensorInfo, Writer
from random_weights import random_rows


class Size(NamedTuple):
    n_layer: int
    width: int
    feed_forward: int
    heads: int
    key_heads: int
    head: int
    vocabulary: int


SIZES = {
    "llama-1b": Size(16, 2048, 8192, 32, 8, 64, 128256),
    "llama-8b": Size(32, 4096, 14336, 32, 8, 128, 128256),
    "tiny": Size(2, 256, 512, 4, 2, 64, 1024),
}
ROPE_BASE, EPSILON = 500000.0, 1e-5
MODULES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
"""Names of a layer's tensors in GGUF and in mlx-lm."""


def write_gguf(path: Path, size: Size) -> None:
    keys = {
        "vocab_size": size.vocabulary,
        "context_length": 8192,
        "block_count": size.n_layer,
        "embedding_length": size.width,
        "feed_forward_length": size.feed_forward,
        "attention.head_count": size.heads,
        "attention.head_count_kv": size.key_heads,
        "attention.key_length": size.head,
        "attention.value_length": size.head,
        "rope.dimension_count": size.head,
        "rope.freq_base": ROPE_BASE,
        "attention.layer_norm_rms_epsilon": EPSILON,
    }
    metadata: dict[str, Any] = {"general.architecture": "llama", "tokenizer.ggml.model": "no_vocab"}
    metadata |= {f"llama.{key}": value for key, value in keys.items()}
    shapes = dict(tensor_shapes(size))
    types = {name: GGMLType.F32 if len(shape) == 1 else GGMLType.Q4_0 for name, shape in shapes.items()}
    rng = np.random.default_rng(0)
    with Writer(path, metadata, [TensorInfo(name, types[name], shape) for name, shape in shapes.items()]) as writer:
        for shape in shapes.values():
            writer.write(random_matrix(rng, *shape) if len(shape) > 1 else np.ones(shape, np.float32))


def tensor_shapes(size: Size) -> Iterator[tuple[str, tuple[int, ...]]]:
    n, f, queries, keys = size.width, size.feed_forward, size.heads * size.head, size.key_heads * size.head
    yield "token_embd.weight", (size.vocabulary, n)
    yield "output_norm.weight", (n,)
    layer: dict[str, tuple[int, ...]] = {"attn_q": (queries, n), "attn_k": (keys, n), "attn_v": (keys, n)}
    layer |= {"attn_output": (n, queries), "ffn_gate": (f, n), "ffn_up": (f, n), "ffn_down": (n, f)}
    layer |= {"attn_norm": (n,), "ffn_norm": (n,)}
    for i in range(size.n_layer):
        yield from ((f"blk.{i}.{name}.weight", shape) for name, shape in layer.items())


def random_matrix(rng: np.random.Generator, n_rows: int, n_columns: int) -> np.ndarray:
    """Return random Q4_0 rows, scaled to preserve the magnitude of activations."""
    blocks = random_rows(rng, "Q4_0", n_rows, n_columns).reshape(-1, 18)
    scale = np.float16(1 / (4.6 * math.sqrt(n_columns)))  # for codes from -8 to 7
    blocks[:, :2] = np.frombuffer(scale.tobytes(), np.uint8)
    return blocks.reshape(n_rows, -1)


def write_mlx(folder: Path, gguf: Path, size: Size) -> None:
    """Write a model folder for mlx-lm with the codes and scales of a GGUF file."""
    import mlx.core as mx

    from pumice.graph import Weight
    from pumice_mlx.weights import Quantized, load_matrix

    folder.mkdir(exist_ok=True)
    arrays: dict[str, mx.array] = {}
    with GGUFFile.open(gguf) as file:
        for name, tensor in file.tensors.items():
            module = mlx_name(name)
            if len(tensor.shape) == 1:
                arrays[f"{module}.weight"] = mx.array(tensor.dequantize()).astype(mx.float16)
                continue
            matrix = load_matrix(Weight(name, tensor.shape, source=tensor), mx.float16)
            assert isinstance(matrix, Quantized)
            (scales,) = matrix.parts
            assert scales.biases is not None
            arrays |= {f"{module}.weight": matrix.codes, f"{module}.scales": scales.scales}
            arrays[f"{module}.biases"] = scales.biases
    mx.save_safetensors(str(folder / "model.safetensors"), arrays, {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(mlx_config(size)))


def mlx_name(name: str) -> str:
    if name.startswith("blk."):
        _, layer, tensor, _ = name.split(".")
        return f"model.layers.{layer}.{MODULES[tensor]}"
    return {"token_embd.weight": "model.embed_tokens", "output_norm.weight": "model.norm"}[name]


def mlx_config(size: Size) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": size.width,
        "num_hidden_layers": size.n_layer,
        "intermediate_size": size.feed_forward,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.key_heads,
        "head_dim": size.head,
        "vocab_size": size.vocabulary,
        "rms_norm_eps": EPSILON,
        "rope_theta": ROPE_BASE,
        "rope_traditional": True,  # GGUF's order of values in a head
        "tie_word_embeddings": True,
        "quantization": {"group_size": 32, "bits": 4, "mode": "affine"},
    }


class Engine(NamedTuple):
    """Functions of an engine: the logits of tokens, reading a random prompt, and generating after one."""

    logits: Callable[[list[int]], np.ndarray]
    read: Callable[[int], object]
    generate: Callable[[int], object]


def pumice_engine(folder: Path, options: argparse.Namespace) -> Engine:
    import pumice
    from pumice.evaluate.speed import generation_seconds, prompt_seconds

    config = (
        {"mlx": {"activations": options.activations, "compile": options.compile}} if options.backend == "mlx" else {}
    )
    n_ctx = max(options.n_prompt + 32, options.n_gen + 32, options.n_ctx)
    model = pumice.load(folder / "model.gguf", backend=options.backend, n_ctx=n_ctx, config=config)
    return Engine(model.logits, lambda n: prompt_seconds(model, n), lambda n: generation_seconds(model, n))


def mlx_lm_engine(folder: Path, options: argparse.Namespace) -> Engine:
    import mlx.core as mx
    from mlx_lm.generate import generate_step
    from mlx_lm.utils import load_model

    model, config = load_model(folder / "mlx")
    rng = np.random.default_rng(0)

    def run(n_prompt: int, n_gen: int) -> int:
        prompt = mx.array(rng.integers(0, config["vocab_size"], n_prompt))
        return sum(1 for _ in generate_step(prompt, model, max_tokens=n_gen))

    return Engine(
        lambda ids: np.array(model(mx.array(ids)[None])[0].astype(mx.float32)),
        lambda n: run(n, 1),
        lambda n: run(1, n),
    )


ENGINES = {"pumice": pumice_engine, "mlx_lm": mlx_lm_engine}


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return the medians of one engine in tokens/s; its logits are written to the folder."""
    engine = ENGINES[options.engine](folder, options)
    np.save(folder / f"{options.engine}.npy", engine.logits([(7 * i + 3) % 1000 for i in range(24)]))
    results: dict[str, Any] = {"engine": options.engine}
    for test, run, n in (("pp", engine.read, options.n_prompt), ("tg", engine.generate, options.n_gen)):
        run(n)
        seconds = []
        for _ in range(options.repetitions):
            started = time.perf_counter()
            run(n)
            seconds.append(time.perf_counter() - started)
        speeds = sorted(n / duration for duration in seconds)
        results[f"{test}{n}"] = {"tokens_per_second": statistics.median(speeds), "all": speeds}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=SIZES, default="llama-1b")
    parser.add_argument("--backend", default="mlx", help="Pumice's backend")
    parser.add_argument(
        "--activations", default="auto", help="activations of the MLX backend: auto, float16 or float32"
    )
    parser.add_argument("--compile", default="auto", help="the MLX backend's compiled steps: auto, always or never")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--n-prompt", type=int, default=512)
    parser.add_argument("--n-gen", type=int, default=128)
    parser.add_argument("--n-ctx", type=int, default=0, help="Pumice's context in tokens, if larger than needed")
    parser.add_argument("--json", type=Path, help="write the results to a file")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder, size = options.folder, SIZES[options.size]
    if options.engine:
        print(json.dumps(measure(folder, options)))
        return
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "model.gguf").exists():
        write_gguf(folder / "model.gguf", size)
    if not (folder / "mlx" / "config.json").exists():
        write_mlx(folder / "mlx", folder / "model.gguf", size)
    results = []
    for engine in ENGINES:
        command = [sys.executable, __file__, *sys.argv[1:], "--engine", engine]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        results.append(json.loads(done.stdout.splitlines()[-1]))
    ours, theirs = (np.load(folder / f"{engine}.npy") for engine in ENGINES)
    error = float(np.mean((ours - theirs) ** 2) / np.mean(theirs**2))
    same = float(np.mean(ours.argmax(-1) == theirs.argmax(-1)))
    report = {"size": options.size, "results": results, "logits": {"error": error, "same_token": same}}
    print(text := json.dumps(report, indent=2))
    if options.json:
        options.json.write_text(text)


if __name__ == "__main__":
    main()
