"""Make tests/fixtures/demo_model.json: the demo model in every quantization type, measured by Pumice and llama.cpp.

    python tests/make_fixtures/demo_model.py path/to/pumice-demo-f16.gguf        (needs llama-cpp-python)

The F16 file is one that tools/demo_model writes. Perplexities are those of held-out stories, each by itself from its
beginning, with a float32 cache and without flash attention. Pumice computes with the NumPy backend, all in float32;
llama.cpp rounds activations to 8 bits before it multiplies them with a quantized matrix, or to 16 with F16.
"""

import itertools
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]
from tools.demo_model.generate import stories  # noqa: E402

import pumice  # noqa: E402
from demo_models import TYPES, documents, nats, perplexity, write_demo_model  # noqa: E402
from pumice.gguf import GGMLType  # noqa: E402
from quantizers import ONLY_READ  # noqa: E402

OUT = TESTS / "fixtures" / "demo_model.json"
SEED, HELD_OUT_SHARD = 1, -2  # as in tools/demo_model/pipeline.py, which would import torch
N_STORIES, N_TEST_STORIES = 100, 8
PROMPTS = ["", "Once upon a time", "This is the story of Ruby", "One rainy morning,"]
N_PREDICT = 200


def main(f16: Path) -> None:
    llama_cpp.llama_backend_init()
    texts = [story.text for story in itertools.islice(stories(SEED, HELD_OUT_SHARD), N_STORIES)]
    with tempfile.TemporaryDirectory() as folder:
        plain = write_demo_model(Path(folder) / "f32.gguf", GGMLType.F32)
        fixture = {
            "held_out": {"seed": SEED, "shard": HELD_OUT_SHARD, "texts": texts[:N_TEST_STORIES]},
            "greedy": greedy(plain),
            "types": {name: measure_type(Path(folder) / f"{name}.gguf", name, f16, texts) for name in TYPES},
        }
    OUT.write_text(json.dumps(fixture, indent=1, ensure_ascii=False) + "\n")


def measure_type(path: Path, name: str, f16: Path, texts: list[str]) -> dict[str, Any]:
    """Perplexities of 100 stories with llama.cpp's file and the gguf package's, of fewer with that of the tests."""
    type = GGMLType[name]
    result = {"llama.cpp": measure(llama_quantize(f16, path, type), texts)}
    if name not in ONLY_READ:
        result["gguf package"] = measure(write_demo_model(path, type, f16), texts)
    result["tests"] = measure(write_demo_model(path, type), texts[:N_TEST_STORIES])
    print(name, json.dumps(result), flush=True)
    return result


def measure(path: Path, texts: list[str]) -> dict[str, Any]:
    tokenizer = pumice.load_tokenizer(path)
    with llama(path) as context:
        losses = [nats(decode(context, ids, 0), ids) for ids in documents(tokenizer, texts)]
    return {
        "bytes": path.stat().st_size,
        "numpy": round(perplexity(path, texts, backend="numpy"), 6),
        "llama.cpp": round(float(np.exp(np.concatenate(losses).mean())), 6),
    }


def greedy(path: Path) -> list[dict[str, str]]:
    """Return llama.cpp's greedy text after each prompt."""
    tokenizer = pumice.load_tokenizer(path)
    results = []
    for prompt in PROMPTS:
        with llama(path) as context:
            prompt_ids = tokenizer.tokenize(prompt)
            ids = list(prompt_ids)
            logits = decode(context, ids, 0)[-1]
            while (token := int(logits.argmax())) != tokenizer.eos and len(ids) < len(prompt_ids) + N_PREDICT:
                ids.append(token)
                logits = decode(context, [token], len(ids) - 1)[-1]
        results.append({"prompt": prompt, "text": tokenizer.detokenize(ids[len(prompt_ids) :])})
    return results


def llama_quantize(source: Path, path: Path, type: GGMLType) -> Path:
    """llama.cpp's quantizer, every matrix in the same type."""
    ftypes = {"Q5_K": "Q5_K_S", "Q4_K": "Q4_K_S", "Q3_K": "Q3_K_S", "MXFP4": "MXFP4_MOE"}
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{ftypes.get(type.name, type.name)}")
    params.pure = True
    if llama_cpp.llama_model_quantize(str(source).encode(), str(path).encode(), params):
        raise SystemExit(f"llama.cpp cannot write {type.name}")
    types = {tensor.tensor_type for tensor in gguf.GGUFReader(path).tensors if len(tensor.shape) == 2}
    assert types == {type}, types
    return path


@contextmanager
def llama(path: Path) -> Iterator[Any]:
    """A context of llama.cpp for one sequence."""
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama_cpp.llama_init_from_model(model, params)
    yield context
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)


def decode(context: Any, ids: Sequence[int], n_past: int) -> np.ndarray:
    """Logits ``[len(ids), n_vocab]``; a sequence begins again with ``n_past`` 0."""
    if n_past == 0:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, n_past + i, 1
        batch.seq_id[i][0], batch.logits[i] = 0, 1
    if llama_cpp.llama_decode(context, batch):
        raise SystemExit("llama.cpp cannot compute this")
    n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(llama_cpp.llama_get_model(context)))
    logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (len(ids), n_vocab)).copy()
    llama_cpp.llama_batch_free(batch)
    return logits


if __name__ == "__main__":
    main(Path(sys.argv[1]))
