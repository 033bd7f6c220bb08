"""Count the operations of MLX for a generated token of the MLX backend and of mlx-lm: the kernels that a GPU launches.

    python bench/mlx_operations.py FOLDER [--size tiny] [--compile always] [--activations float16] [--prompt]

``--prompt`` counts those for a prompt instead.

Requires mlx-lm. Uses the models of compare_mlx.py in FOLDER, which it writes if need be. Operations that only describe
the same memory in another way are not counted. On the CPU the fast operations consist of others, so that single ones
stand in for them where a GPU has a kernel: the results are wrong, but their number is right.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import compare_mlx

VIEWS = {
    "AsStrided", "Broadcast", "BroadcastAxes", "Depends", "ExpandDims", "Flatten", "Reshape", "Slice", "Split",
    "Squeeze", "Transpose", "Unflatten", "View",
}  # fmt: skip
STANDS_FOR = {"CumMax": "RMSNorm", "Sort": "RoPE", "Partition": "ScaledDotProductAttention"}
HEADS = (64, 96, 128)  # widths that MLX's attention has a kernel for with CUDA
N_PROMPT = 40
DEPTHS = (1, 3)
Count = Callable[[Path, argparse.Namespace], Counter[str]]
"""Counts the operations for a token of the model in a folder."""


def replace_fast() -> None:
    """Let single operations stand in for those that are composed on the CPU."""
    import mlx.core as mx

    composed = mx.fast.scaled_dot_product_attention

    def attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
        mask = options.get("mask")
        if q.shape[2] < 4 and (isinstance(mask, mx.array) or q.shape[-1] not in HEADS or v.shape[-1] != q.shape[-1]):
            return composed(q, k, v, **options)
        y = mx.partition(q, 1, axis=-1)[..., : v.shape[-1]]
        return mx.depends(y, [k, v, *([mask] if isinstance(mask, mx.array) else [])])

    def norm(x: Any, weight: Any, eps: float) -> Any:
        return mx.cummax(x if weight is None else mx.depends(x, [weight]), axis=-1)

    mx.fast.scaled_dot_product_attention = attention
    mx.fast.rms_norm = norm
    mx.fast.rope = lambda x, *_, **options: mx.sort(x, axis=-1)


def operations(arrays: list[Any], folder: Path) -> Counter[str]:
    """Return the operations by name in the graph of arrays that are not computed yet."""
    import mlx.core as mx

    path = folder / "graph.dot"
    mx.export_to_dot(str(path), *arrays)
    names = re.findall(r'label ?= ?"([^"]+)", shape=rectangle', path.read_text())
    return Counter(STANDS_FOR.get(name, name) for name in names if name not in VIEWS)


def of_pumice(folder: Path, options: argparse.Namespace) -> Counter[str]:
    import mlx.core as mx

    import pumice
    from pumice_mlx.program import MlxProgram

    counts: list[Counter[str]] = []
    forward = MlxProgram._forward

    def counted(self: MlxProgram, given: Any, step: Any) -> Any:
        mx.eval(list(given.values()), self._state_arrays)
        outputs = forward(self, given, step)
        if (len(step.batch.tokens) == 1) != options.prompt:
            counts.append(operations([*outputs.values(), *self._state_arrays], folder))
        return outputs

    MlxProgram._forward = counted  # type: ignore[method-assign]
    config = {"mlx": {"activations": options.activations, "compile": options.compile}}
    with pumice.load(folder / "model.gguf", backend="mlx", n_ctx=512, config=config, lookahead=0) as model:
        model.generate(list(range(1, N_PROMPT)), max_tokens=6, temperature=0)
    return counts[-1]


def of_mlx_lm(folder: Path, options: argparse.Namespace) -> Counter[str]:
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache
    from mlx_lm.utils import load_model

    model, _ = load_model(folder / "mlx")
    cache = make_prompt_cache(model)
    mx.eval(model(mx.array(np.arange(1, N_PROMPT))[None], cache=cache), [part.state for part in cache])
    tokens = np.arange(1, N_PROMPT) if options.prompt else np.array([7])
    logits = model(mx.array(tokens)[None], cache=cache)
    return operations([logits, *(array for part in cache for array in part.state[:2])], folder)


def count_layer(folder: Path, options: argparse.Namespace, count: Count) -> dict[str, Any]:
    """Return the operations of a layer and those of a token beyond them, from models of two depths."""
    counts = []
    for n_layer in DEPTHS:
        size, of_depth = compare_mlx.SIZES[options.size]._replace(n_layer=n_layer), folder / f"layers-{n_layer}"
        of_depth.mkdir(parents=True, exist_ok=True)
        if not (of_depth / "model.gguf").exists():
            compare_mlx.write_gguf(of_depth / "model.gguf", size)
        if not (of_depth / "mlx" / "config.json").exists():
            compare_mlx.write_mlx(of_depth / "mlx", of_depth / "model.gguf", size)
        counts.append(count(of_depth, options))
    few, many = counts
    layer = {name: (n - few[name]) / (DEPTHS[1] - DEPTHS[0]) for name, n in many.items() if n != few[name]}
    n_layer = sum(layer.values())
    return {"layer": n_layer, "beyond": few.total() - DEPTHS[0] * n_layer, "operations of a layer": layer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=compare_mlx.SIZES, default="tiny")
    parser.add_argument("--activations", default="float16", help="activations of the MLX backend")
    parser.add_argument("--compile", default="always", help="the MLX backend's compiled steps")
    parser.add_argument("--prompt", action="store_true", help="count the operations for a prompt, not for a token")
    options = parser.parse_args()
    replace_fast()
    engines: dict[str, Count] = {"pumice": of_pumice, "mlx_lm": of_mlx_lm}
    for engine, count in engines.items():
        print(engine, json.dumps(count_layer(options.folder / options.size, options, count), indent=2))


if __name__ == "__main__":
    main()
