"""Make tests/fixtures/conversions/adapters.*: peft's adapters for checkpoints of `conversions`, and their logits.

    python tests/make_fixtures/peft_logits.py        (needs torch, transformers and peft)

An adapter is its configuration and the shapes of its tensors; the weights follow from their names.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from checkpoints import FIXTURES, PROMPT, ROWS, weights, write_checkpoint, write_safetensors

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# Name -> checkpoint, and what LoraConfig is given.
ADAPTERS = {
    "llama": ("llama", {"target_modules": ALL, "r": 4, "lora_alpha": 6}),
    "llama-patterns": ("llama-bpe", {"target_modules": ALL, "r": 4, "lora_alpha": 6, "use_rslora": True,
                                     "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"up_proj": 3}}),
    "qwen3": ("qwen3", {"target_modules": [*ALL, "lm_head"], "r": 3, "lora_alpha": 3}),
    "gemma2": ("gemma2", {"target_modules": ["q_proj", "down_proj"], "r": 2, "lora_alpha": 8}),
    "phi3": ("phi3", {"target_modules": ["qkv_proj", "gate_up_proj"], "r": 2, "lora_alpha": 8}),
    "gptneox": ("gptneox", {"target_modules": ["query_key_value"], "r": 2, "lora_alpha": 8}),
    "embeddings": ("mistral", {"target_modules": ["embed_tokens", "v_proj"], "r": 2, "lora_alpha": 2}),
}  # fmt: skip


def made(name: str) -> tuple[dict, np.ndarray]:
    checkpoint, options = ADAPTERS[name]
    case = json.loads((FIXTURES / "cases.json").read_text())[checkpoint]
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        base = write_checkpoint(Path(folder) / "base", case["config"], case["shapes"], case["tokenizer"])
        cls = getattr(transformers, case["config"]["architectures"][0])
        path = Path(folder) / "adapter"
        get_peft_model(cls.from_pretrained(base, dtype=torch.float32), LoraConfig(**options)).save_pretrained(path)
        raw = (path / "adapter_model.safetensors").read_bytes()
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
        shapes = {key: value["shape"] for key, value in header.items() if key != "__metadata__" and ".lora_" in key}
        write_safetensors(path / "adapter_model.safetensors", {key: weights(key, shapes[key]) * 4 for key in shapes})
        config = json.loads((path / "adapter_config.json").read_text())
        model = PeftModel.from_pretrained(cls.from_pretrained(base, dtype=torch.float32), path).eval()
        logits = model(torch.tensor([PROMPT])).logits[0].numpy()[ROWS]
    kept = {key: value for key, value in config.items() if value and key != "base_model_name_or_path"}
    return {"checkpoint": checkpoint, "config": kept, "shapes": shapes}, logits.astype(np.float16)


if __name__ == "__main__":
    found = {name: made(name) for name in ADAPTERS}
    cases = {name: case for name, (case, _) in found.items()}
    (FIXTURES / "adapters.json").write_text(json.dumps(cases) + "\n")
    np.savez_compressed(FIXTURES / "adapters.npz", **{name: logits for name, (_, logits) in found.items()})
