"""Write a model in a published model's shape with random weights, for measurements.

    python tools/synthetic_model.py OUT.gguf --model mamba2-780m --type Q4_0
    python tools/synthetic_model.py OUT.gguf --model gemma2_9b_q4_k_m

Any program that reads GGUF can run it; its text is noise. ``published_shapes.py`` has recurrent models and those with
experts, ``tests/llama_relatives.py`` those whose names tell their types.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
from llama_relatives import COMPLETE, PUBLISHED, PUBLISHED_EXPERTS  # noqa: E402
from pumice.gguf import GGMLType  # noqa: E402
from pumice.gguf.writer import TensorInfo, Writer  # noqa: E402
from random_weights import random_rows  # noqa: E402
from tiny_models import weights  # noqa: E402
from tools.published_shapes import MODELS  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", choices=[*MODELS, *COMPLETE], default="mamba2-780m")
    parser.add_argument("--type", default="Q4_0", help="type of matrices; other tensors are float32")
    arguments = parser.parse_args()
    if arguments.model in COMPLETE:
        layers, vocabulary = COMPLETE[arguments.model]
        relative = (PUBLISHED | PUBLISHED_EXPERTS)[arguments.model]
        replace(relative, layers=layers, vocabulary=vocabulary).write(arguments.out, most_rows=256)
        return
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
                writer.write(random_rows(rng, arguments.type, math.prod(info.shape[:-1]), info.shape[-1]))


def is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    if not name.endswith(".weight") or shape[-1] < 256 or "norm" in name or "gate_inp" in name:
        return False
    return len(shape) == 2 or "exps" in name


if __name__ == "__main__":
    main()
