"""Write a recurrent or hybrid model of a published one's shape, with random weights, to measure speed and memory with.

    python tools/synthetic_model.py OUT.gguf --model mamba2-780m --type Q4_0

Any program that reads GGUF can run it; its text is noise. Layers are described as those of ``tests/tiny_zoo``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(TESTS))
from pumice.gguf import GGMLType  # noqa: E402
from pumice.gguf.writer import TensorInfo, Writer  # noqa: E402
from random_weights import random_rows  # noqa: E402
from tiny_models import ATTENTION, SWIGLU, TIED, TinyModel, tiny, weights  # noqa: E402
from tiny_zoo.mamba import MAMBA2  # noqa: E402
from tiny_zoo.recurrent import CONV, DENSE, GATED, LFM2_ENDS, NET  # noqa: E402

N_VOCAB = 32768


def mamba2(n: int, n_layer: int) -> TinyModel:
    """Mamba 2 (Dao and Gu 2024): heads of 64 values, states of 128."""
    sizes = {"n": n, "i": 2 * n, "s": 128, "G": 1, "H": n // 32, "h": 0, "g": 0, "f": 0, "V": N_VOCAB}
    space = {"inner_size": 2 * n, "state_size": 128, "conv_kernel": 4, "time_step_rank": n // 32, "group_count": 1}
    return tiny(
        "mamba2",
        MAMBA2,
        TIED,
        n_layer=n_layer,
        dims=sizes,
        context_length=8192,
        **{f"ssm__{k}": v for k, v in space.items()},
    )


def qwen35(n: int, n_ff: int, n_layer: int, n_heads: int) -> TinyModel:
    """Qwen 3.5: delta nets with heads of 128 values, gated attention in every fourth layer."""
    sizes = {"n": n, "f": n_ff, "h": n // 128, "g": 2, "d": 256, "K": n_heads, "R": n_heads, "D": 128, "V": N_VOCAB}
    net = f"{NET} ssm_alpha=R,n ssm_beta=R,n {DENSE}"
    space = {"inner_size": 128 * n_heads, "state_size": 128, "conv_kernel": 4, "time_step_rank": n_heads}
    return tiny(
        "qwen35",
        [f"{GATED} {DENSE}" if i % 4 == 3 else net for i in range(n_layer)],
        TIED,
        dims=sizes,
        context_length=8192,
        full_attention_interval=4,
        rope__dimension_count=64,
        rope__dimension_sections=[11, 11, 10, 0],
        ssm__group_count=n_heads,
        **{f"ssm__{k}": v for k, v in space.items()},
    )


def lfm2(n: int, n_ff: int, attends: str) -> TinyModel:
    """LFM2: ``attends`` has a letter a layer, a for attention."""
    attention = f"{ATTENTION} attn_q_norm attn_k_norm {SWIGLU}"
    return tiny(
        "lfm2",
        [attention if letter == "a" else f"{CONV} {SWIGLU}" for letter in attends],
        LFM2_ENDS,
        dims={"n": n, "f": n_ff, "h": n // 64, "g": 8, "d": 64, "V": N_VOCAB},
        attention__head_count_kv=[8 if letter == "a" else 0 for letter in attends],
        context_length=8192,
        shortconv__l_cache=3,
    )


MODELS = {
    "mamba2-780m": mamba2(1536, 48),
    "mamba2-130m": mamba2(768, 24),
    "qwen35-0.8b": qwen35(1024, 3584, 24, 16),
    "lfm2-350m": lfm2(1024, 4608, "ccaccaccacacacac"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", choices=sorted(MODELS), default="mamba2-780m")
    parser.add_argument("--type", default="Q4_0", help="of matrices; all else is float32")
    arguments = parser.parse_args()
    model, matrices, rng = MODELS[arguments.model], GGMLType[arguments.type], np.random.default_rng(0)
    fixed = {"general.architecture": model.architecture, "tokenizer.ggml.model": "no_vocab"}
    metadata = fixed | {f"{model.architecture}.{key}": value for key, value in model.metadata.items()}
    infos = [
        TensorInfo(name, matrices if is_matrix(name, shape) else GGMLType.F32, shape)
        for name, shape in model.shapes.items()
    ]
    with Writer(arguments.out, metadata, infos) as writer:
        for info in infos:
            if info.type == GGMLType.F32:
                writer.write(weights(info.name, info.shape))
            else:
                writer.write(random_rows(rng, arguments.type, *info.shape))


def is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    return name.endswith(".weight") and len(shape) == 2 and shape[-1] >= 256 and "norm" not in name


if __name__ == "__main__":
    main()
