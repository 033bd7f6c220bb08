"""Compare lm-eval's scores of a model behind `pumice serve` with those of transformers.

    python bench/compare_lm_eval.py MODEL.gguf LM_EVAL_PYTHON [--questions 500] [--folder DIR]

LM_EVAL_PYTHON is the interpreter of an environment with lm-eval, transformers, torch and gguf. Both sides read the
same file: transformers dequantizes it to float32. The questions are made here: a prompt and two endings, one of which
is right. Prints a row for each interface.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serve_process import serving

OPPOSITES = (
    "hot cold, big small, old new, high low, light dark, open closed, fast slow, full empty, rich poor, hard soft"
)
CAPITALS = (
    "France Paris, Italy Rome, Japan Tokyo, Spain Madrid, Egypt Cairo, Russia Moscow, Germany Berlin, Greece Athens"
)
KINDS = (
    "dog animal, rose flower, apple fruit, hammer tool, piano instrument, iron metal, oak tree, salmon fish, eagle bird"
)
PLACES = (
    "teacher school, doctor hospital, farmer field, sailor ship, cook kitchen, judge court, soldier army, pilot plane"
)
TEMPLATES = (
    ("The opposite of {} is", OPPOSITES),
    ("The capital of {} is", CAPITALS),
    ("A {} is a kind of", KINDS),
    ("A {} works in a", PLACES),
)

TASKS = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "lm_eval"


def questions(n: int) -> Iterator[dict[str, object]]:
    """Yield ``n`` questions, every second one about a sum, the same ones each time."""
    chance = random.Random(0)
    for number in range(n):
        if number % 2:
            one, other = chance.randint(1, 20), chance.randint(1, 20)
            endings = [str(one + other), str(one + other + chance.choice((-2, -1, 1, 2, 10)))]
            prompt = f"Question: What is {one} plus {other}? Answer:"
        else:
            text, table = chance.choice(TEMPLATES)
            pairs = [pair.split() for pair in table.split(", ")]
            (name, right), (_, wrong) = chance.sample(pairs, 2)
            endings, prompt = [right, wrong], text.format(name)
        order = chance.sample([0, 1], 2)
        yield {"prompt": prompt, "endings": [endings[place] for place in order], "right": order.index(0)}


def write_questions(folder: Path, n: int) -> None:
    """Write the rows of the tasks in tests/fixtures/lm_eval."""
    chats = [
        {"prompt": f"What is the capital of {land}? Answer with its name.", "answer": city}
        for land, city in (pair.split() for pair in CAPITALS.split(", "))
    ]
    for name, rows in (("questions", list(questions(n))), ("chats", chats)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@contextmanager
def server(model: Path) -> Iterator[tuple[str, str]]:
    """Serve a model, and yield the address and the model's name."""
    with serving([str(model), "--ctx-size", "2048"]) as (_, url):
        with urllib.request.urlopen(f"{url}/v1/models") as answer:
            name = json.load(answer)["data"][0]["id"]
        yield url, name


def score(python: str, folder: Path, kind: str, arguments: str, task: str, *more: str) -> float:
    """Return lm-eval's score in percent."""
    out = folder / f"{kind}-{task}"
    command = [python, "-m", "lm_eval", "--model", kind, "--model_args", arguments, "--tasks", task]
    command += ["--include_path", str(TASKS), "--output_path", str(out), "--log_samples", *more]
    subprocess.run(command, check=True, cwd=folder)  # where the tasks look for their rows
    (newest,) = sorted(out.rglob("results_*.json"))[-1:]
    scores = json.loads(newest.read_text())["results"][task]
    return 100 * float(next(value for name, value in scores.items() if re.match(r"(acc|exact_match),", name)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("python")
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--folder", type=Path, default=Path("build/lm-eval"))
    arguments = parser.parse_args()
    folder, model = arguments.folder.resolve(), arguments.model.resolve()
    python = os.path.abspath(shutil.which(arguments.python) or arguments.python)
    folder.mkdir(parents=True, exist_ok=True)
    write_questions(folder, arguments.questions)
    tokenizer = folder / "tokenizer"
    code = (
        "import sys; from transformers import AutoTokenizer;"
        "AutoTokenizer.from_pretrained(sys.argv[1], gguf_file=sys.argv[2]).save_pretrained(sys.argv[3])"
    )
    subprocess.run([python, "-c", code, str(model.parent), model.name, str(tokenizer)], check=True)
    reference = f"pretrained={model.parent},gguf_file={model.name},tokenizer={tokenizer},dtype=float32"
    rows = {}
    with server(model) as (url, name):
        completions = f"model={name},base_url={url}/v1/completions,tokenizer={tokenizer},num_concurrent=4"
        chats = f"model={name},base_url={url}/v1/chat/completions,num_concurrent=4"
        ask = (python, folder)
        rows["choices, local-completions"] = score(*ask, "local-completions", completions, "pumice_choice")
        rows["chats, local-chat-completions"] = score(
            *ask, "local-chat-completions", chats, "pumice_generation", "--apply_chat_template"
        )
    rows["choices, hf"] = score(*ask, "hf", reference, "pumice_choice", "--device", "cpu", "--batch_size", "32")
    rows["chats, hf"] = score(
        *ask, "hf", reference, "pumice_generation", "--device", "cpu", "--batch_size", "32", "--apply_chat_template"
    )
    print("\n".join(f"| {name} | {value:.2f} |" for name, value in rows.items()))


if __name__ == "__main__":
    main()
