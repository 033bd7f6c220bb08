"""Make tests/fixtures/trained.json: what transformers and sentence-transformers compute of trained models.

    python tests/make_fixtures/trained.py [smollm2] [gemma] [qwen] [minilm]

It needs torch, transformers, sentence-transformers and gguf, and keeps the results of models that are not named. Of
language models, read from the same GGUF files and computed in float32: token ids, prompts, the most probable
tokens after each token of a text and after the last tokens of a long one with their log-probabilities, and greedy
texts. Of MiniLM: embeddings.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.trained_models import fetch

from trained_texts import CHATS, LONG, PROMPT, SENTENCES, TEXT, TEXTS, long_text

ROOT = Path(__file__).resolve().parents[2]
FIXTURE = ROOT / "tests" / "fixtures" / "trained.json"
N_TOKENS = 192  # of the text whose predictions are kept
N_TOP = 16  # tokens at each position
N_GREEDY = 48
N_LATE = 8  # last tokens of a long text whose predictions are kept
N_AT_ONCE = 1024  # tokens of a long text that are read at once


def likely(logits: torch.Tensor) -> dict:
    """Return the most probable tokens of each row, and their log-probabilities."""
    top = logits.log_softmax(-1).topk(N_TOP)
    return {
        "top_ids": top.indices.tolist(),
        "top_logprobs": [[round(value, 5) for value in row] for row in top.values.tolist()],
    }


def late(model, tokenizer, n_tokens: int) -> dict:
    """Return the predictions after the last tokens of a long text, which is read in parts."""
    ids = long_text(lambda text: tokenizer(text, add_special_tokens=False).input_ids, n_tokens)
    ids, past = torch.tensor([tokenizer("").input_ids + ids]), None
    with torch.inference_mode():
        for part in ids.split(N_AT_ONCE, dim=1):
            out = model(part, past_key_values=past, use_cache=True, logits_to_keep=N_LATE)
            past = out.past_key_values
    return likely(out.logits[0])


def language_model(name: str) -> dict:
    path = fetch(name, ROOT / "build" / "trained")
    where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32).eval()
    ids = tokenizer(TEXT).input_ids[:N_TOKENS]
    prompt = tokenizer(PROMPT).input_ids
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0]
        greedy = list(prompt)
        past, step, gaps = None, torch.tensor([prompt]), []
        for _ in range(N_GREEDY):
            out = model(step, past_key_values=past, use_cache=True)
            best = out.logits[0, -1].topk(2)
            past, step = out.past_key_values, best.indices[:1][None]
            greedy.append(int(best.indices[0]))
            gaps.append(round(float(best.values[0] - best.values[1]), 4))
    return {
        "tokens": [tokenizer(text, add_special_tokens=False).input_ids for text in TEXTS],
        "prompts": [
            tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
            for chat in CHATS
            if tokenizer.chat_template
        ],
        "ids": ids,
        **likely(logits),
        **({"late": late(model, tokenizer, LONG[name])} if name in LONG else {}),
        "greedy": greedy[len(prompt) :],
        "gaps": gaps,
    }


def embeddings(path: Path) -> list[list[float]]:
    from sentence_transformers import SentenceTransformer

    rows = SentenceTransformer(str(path), device="cpu").encode(SENTENCES, normalize_embeddings=True)
    return [[round(float(value), 6) for value in row] for row in rows]


def main(names: list[str]) -> None:
    results = json.loads(FIXTURE.read_text())
    for name in names or ("smollm2", "gemma", "qwen", "minilm"):
        if name == "minilm":
            results[name] = embeddings(fetch(name, ROOT / "build" / "trained"))
        else:
            results[name] = results.get(name, {}) | language_model(name)
    FIXTURE.write_text(json.dumps(results, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
