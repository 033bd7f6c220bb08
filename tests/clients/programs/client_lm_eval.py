"""lm-eval's two interfaces with the tasks of tests/fixtures/lm_eval: log-probabilities of given endings, and texts."""

import json
import os
import tempfile
from pathlib import Path

from clients_common import MODEL, URL, run
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from pumice.demo import demo_model_path
from pumice.gguf import GGUFFile

TASKS = Path(__file__).resolve().parents[2] / "fixtures" / "lm_eval"
QUESTIONS = [
    {"prompt": "Once upon a", "endings": ["time", "candle"], "right": 0},
    {"prompt": "And they lived happily ever", "endings": ["rabbit", "after"], "right": 1},
]
CHATS = [{"prompt": "Tell me a story.", "answer": "Paris"}, {"prompt": "What is the capital?", "answer": "Rome"}]


def tokenizer() -> str:
    """Return a folder with the demo model's tokenizer in the form that transformers reads."""
    with GGUFFile.open(demo_model_path()) as file:
        tokens, merges = (file.metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "merges"))
    pairs = [tuple(merge.split(" ")) for merge in merges]
    made = Tokenizer(models.BPE({text: token for token, text in enumerate(tokens)}, pairs))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=made, bos_token=tokens[0], eos_token=tokens[1]).save_pretrained(".")
    return os.getcwd()


def evaluate(kind: str, path: str, task: str, **arguments):
    """Return lm-eval's scores of a task, and its samples."""
    arguments |= {"model": MODEL, "base_url": f"{URL}{path}", "num_concurrent": 2}
    manager = TaskManager(include_path=str(TASKS), include_defaults=False)
    results = simple_evaluate(
        kind, model_args=arguments, tasks=[task], task_manager=manager, apply_chat_template="chat" in kind
    )
    return results["results"][task], results["samples"][task]


def local_completions():
    scores, _ = evaluate("local-completions", "/v1/completions", "pumice_choice", tokenizer=tokenizer())
    return scores["acc,none"] == 1


def local_chat_completions():
    _, samples = evaluate("local-chat-completions", "/v1/chat/completions", "pumice_generation")
    return len(samples) == len(CHATS) and all(sample["resps"][0][0].strip() for sample in samples)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for name, rows in (("questions", QUESTIONS), ("chats", CHATS)):
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run(local_completions=local_completions, local_chat_completions=local_chat_completions)
    os.chdir("/")
