"""Add llama.cpp's predictions of trained models, with three types of its cache, to tests/fixtures/trained.json.

python tests/make_fixtures/trained_llama_cpp.py        (after trained.py; needs llama-cpp-python)
"""

import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.trained_models import fetch

from pumice.evaluate.kl_divergence import log_softmax
from trained_measures import FIXTURE, compare, expected

TYPES = {"f16": llama_cpp.GGML_TYPE_F16, "q8_0": llama_cpp.GGML_TYPE_Q8_0, "q4_0": llama_cpp.GGML_TYPE_Q4_0}


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


def main() -> None:
    folder, results = FIXTURE.parents[2] / "build" / "trained", expected()
    for name in ("smollm2", "gemma"):
        path = fetch(name, folder)
        results[name]["llama_cpp"] = {kv_type: measures(path, results[name], id) for kv_type, id in TYPES.items()}
    FIXTURE.write_text(json.dumps(results, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
