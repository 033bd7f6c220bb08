"""Add llama.cpp's results of trained models to tests/fixtures/trained.json.

Predictions with three types of its cache, and digests of the files that it makes of SmolLM2.

python tests/make_fixtures/trained_llama_cpp.py        (after trained.py; needs llama-cpp-python)
"""

import ctypes
import json
import sys
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.trained_models import fetch

from pumice.evaluate.kl_divergence import log_softmax
from pumice.gguf import GGUFFile
from trained_measures import FIXTURE, compare, digest, expected

TYPES = {"f16": llama_cpp.GGML_TYPE_F16, "q8_0": llama_cpp.GGML_TYPE_Q8_0, "q4_0": llama_cpp.GGML_TYPE_Q4_0}
MIXES = {
    "Q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
    "Q4_K_M": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M,
    "Q2_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q2_K,
}


def measures(path: Path, results: dict, kv_type: int) -> dict:
    """Return the KL divergence from float32, the share of equal most probable tokens, and the perplexity."""
    ids = results["ids"]
    model = llama_cpp.Llama(
        str(path), n_ctx=1024, logits_all=True, type_k=kv_type, type_v=kv_type, flash_attn=True, verbose=False
    )
    model.eval(ids)
    logits = np.array(model.scores[: len(ids)], np.float32)
    losses = -log_softmax(logits)[np.arange(len(ids) - 1), ids[1:]]
    return {**compare(logits, results)._asdict(), "perplexity": float(np.exp(losses.mean()))}


def quantized(path: Path, mix: int) -> str:
    """Return the digest of the file that llama.cpp makes of another."""
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype, options.allow_requantize = mix, True
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "quantized.gguf"
        if llama_cpp.llama_model_quantize(str(path).encode(), str(out).encode(), ctypes.byref(options)):
            raise OSError(f"{path}: llama.cpp cannot quantize it")
        with GGUFFile.open(out) as file:
            return digest(file)


def main() -> None:
    folder, results = FIXTURE.parents[2] / "build" / "trained", expected()
    for name in ("smollm2", "gemma"):
        path = fetch(name, folder)
        results[name]["llama_cpp"] = {kv_type: measures(path, results[name], id) for kv_type, id in TYPES.items()}
    source = fetch("smollm2", folder)
    results["smollm2"]["quantized"] = {name: quantized(source, mix) for name, mix in MIXES.items()}
    FIXTURE.write_text(json.dumps(results, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
