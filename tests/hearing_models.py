"""Tiny models that hear, by the cases of their fixture, and a sound; see make_fixtures/README.md.

A case has a configuration, shapes of tensors, and what llama.cpp's converter makes of it; ``inside``: the key of
``config.json`` that has the configuration, ``published``: the authors' configuration, where transformers has another.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from checkpoints import N_TOKENS, write_checkpoint

FIXTURE = Path(__file__).parent / "fixtures" / "hearing_models" / "values.npz"
CASES: dict[str, dict[str, Any]] = json.loads(FIXTURE.with_name("cases.json").read_text())
SECONDS = 1.7  # of the sound that rows and log-probabilities are of
SHORT_SECONDS = 0.16625  # of a sound that ends within a frame, from which a row begins
ODD_SECONDS = 0.085  # of one whose last row has no pair
RATE = 16_000
SOUND_TOKENIZER = "audio_tokenizer"  # folder of MiMo's encoder
SOUND = 410  # token id of a sound's rows


def sound(seconds: float, rate: int = RATE) -> np.ndarray:
    """Return a rising tone with pauses, float32."""
    t = np.arange(round(seconds * rate)) / rate
    return (0.4 * np.sin(2 * np.pi * (200 + 300 * t) * t) * (np.sin(2 * np.pi * 3 * t) > -0.5)).astype(np.float32)


def config_of(kind: str) -> dict[str, Any]:
    """Return a case's ``config.json``."""
    case = CASES[kind]
    config = {case["inside"]: case["config"]} if "inside" in case else case.get("published", case["config"])
    return {"architectures": [case["class"]], "model_type": case["model_type"], **config}


def write_folder(folder: Path, kind: str, shapes: Mapping[str, Sequence[int]] | None = None) -> Path:
    """Write a case's checkpoint."""
    case = CASES[kind]
    shapes, tokenizer_kind = shapes or case["shapes"], case.get("tokenizer", "bpe")
    own = {name: shape for name, shape in shapes.items() if not name.startswith("encoder.") or kind != "mimo"}
    more = {name: shapes[name] for name in shapes.keys() - own.keys()}
    modules = {f"{SOUND_TOKENIZER}/model.safetensors": dict(sorted(more.items()))} if more else None
    write_checkpoint(folder, config_of(kind), own, tokenizer_kind, modules=modules)
    if more:
        (folder / SOUND_TOKENIZER / "config.json").write_text(json.dumps(case["tokenizer_config"]))
    (folder / "tokenizer_config.json").write_text("{}")
    if "processor" in case:  # it sees, too
        (folder / "preprocessor_config.json").write_text(json.dumps(case["processor"]))
    if tokenizer_kind != "bpe":
        return folder
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append(tokenizer["added_tokens"][0] | {"id": N_TOKENS, "content": "[BEGIN_AUDIO]"})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder
