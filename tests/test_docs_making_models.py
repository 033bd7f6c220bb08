"""docs/making_models.md, walked from its beginning to its end: commands and Python as they stand there."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from adapters import write_adapter
from checkpoints import FIXTURES, checkpoint_of, write_safetensors
from choice_files import HELLASWAG, WINOGRANDE, multiple_choices
from control_vectors import PAIRS, write_control_vector
from gguf_files import tiny_llama
from pumice.cli import cli
from pumice.gguf import GGUFFile
from pumice.imatrix import ActivationSums, write_sums
from pumice.quantize import quantize
from vision_models import write_folder

PAGE = Path(__file__).parents[1] / "docs" / "making_models.md"
N_LAYER, N_CTX = 12, 2048  # of the model: layers that the page steers, and the longest context that it asks for
CASES = json.loads((FIXTURES / "cases.json").read_text())
MAY_DIFFER = ("gguf diff", "check model.gguf", "check model-q4.gguf")  # commands whose status says what they found
ENDLESS = ("serve",)


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Language and text of each block of code; a block of commands has none."""
    yield from re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with what the page takes as given, and small."""
    monkeypatch.chdir(tmp_path)
    for name, case in (("Qwen3-4B", "qwen3"), ("BitNet", "bitnet"), ("EAGLE3-Qwen3-4B", "dflash")):
        checkpoint_of(Path("path/to", name), CASES[case])
    write_folder(Path("path/to/gemma-3-4b-it"), "gemma3")
    write_peft_adapter(Path("path/to/adapter"), CASES["qwen3"]["shapes"])
    write_models()
    write_texts()
    return tmp_path


def write_models() -> None:
    more = {"general.url": "https://example.org", "tokenizer.chat_template": "{{ messages }}"}
    tiny_llama(Path("model.gguf"), n_layer=N_LAYER, n_ctx=N_CTX, dim=32, n_ff=32, more=more)
    quantize("model.gguf", "model-f16.gguf", "F16")
    with GGUFFile.open(Path("model.gguf")) as file:
        model = SimpleNamespace(
            architecture=file.architecture, shapes={name: tensor.shape for name, tensor in file.tensors.items()}
        )
    for seed, name in enumerate(("style", "law")):
        write_adapter(Path(f"{name}.gguf"), model, ["blk.0.attn_q.weight", "blk.1.ffn_down.weight"], seed=seed)
    write_control_vector(Path("happy.gguf"), np.random.default_rng(0).standard_normal((N_LAYER - 1, 32)) * 0.1)
    sums = ActivationSums(datasets=["text"])
    for name, shape in model.shapes.items():
        if name.startswith("blk.") and len(shape) == 2:
            sums.add(name, np.ones((1, shape[1])), [512])
    for name in ("imatrix", "a", "b"):
        write_sums(f"{name}.gguf", sums)
    assert CliRunner().invoke(cli, ["gguf", "split", "model.gguf", "model", "--max-tensors", "40"]).exit_code == 0


def write_texts() -> None:
    text = "Once upon a time there was a little girl. She had a dog.\n" * 100
    for name in ("calibration.txt", "more.txt", "wiki.test.raw"):
        Path(name).write_text(text)
    Path("hellaswag_val_full.txt").write_text("\n".join(HELLASWAG) + "\n")
    Path("winogrande.csv").write_text("\n".join(WINOGRANDE) + "\n")
    Path("arc-easy.bin").write_bytes(multiple_choices())
    Path("more.json").write_text('{"general.author": "somebody"}')
    Path("template.jinja").write_text("{{ messages[0].content }}")
    for name, lines in zip(("happy.txt", "sad.txt"), zip(*PAIRS, strict=True), strict=True):
        Path(name).write_text("\n".join(lines) + "\n")


def write_peft_adapter(folder: Path, shapes: dict[str, list[int]]) -> None:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "lora_alpha": 4}))
    pairs = {}
    for name, shape in shapes.items():
        if name.endswith("q_proj.weight"):
            prefix = f"base_model.model.{name.removesuffix('.weight')}"
            pairs[f"{prefix}.lora_A.weight"] = np.ones((2, shape[1]), np.float32)
            pairs[f"{prefix}.lora_B.weight"] = np.ones((shape[0], 2), np.float32)
    write_safetensors(folder / "adapter_model.safetensors", pairs)


def run(command: str) -> None:
    """A line of a terminal; a file that is there from before is replaced."""
    words = shlex.split(command, comments=True)
    words, target = (words[: words.index(">")], words[words.index(">") + 1]) if ">" in words else (words, None)
    if words[1] in ENDLESS:
        return
    done = CliRunner().invoke(cli, words[1:])
    if "give --force" in str(done.exception):
        done = CliRunner().invoke(cli, [*words[1:], "--force"])
    if named := re.search("--force replaces a file that is named: (-o) (.+)", done.output):
        done = CliRunner().invoke(cli, [*words[1:], "--force", *named.groups()])
    may_differ = " ".join(words[1:3]) in MAY_DIFFER
    assert done.exit_code in ((0, 1) if may_differ else (0,)), f"{command}: {done.output} {done.exception!r}"
    if target:
        Path(target).write_text(done.stdout)


def test_the_page_runs(desk):
    shown: dict[str, object] = {}
    for language, text in blocks(PAGE.read_text()):
        if language == "python":
            exec(compile(text, str(PAGE), "exec"), shown)
        elif language == "":
            for line in text.splitlines():
                if line.startswith("pumice "):
                    run(line)
    assert {"merged.gguf", "whole.gguf", "sums", "both.gguf", "base"} <= {path.name for path in desk.iterdir()}


def test_every_test_that_answers_a_complaint_is_there():
    answers = PAGE.read_text().partition("## What users of other converters complain about")[2]
    named = re.findall(r"`((?:core|plugins)/\w[\w/]*\.py|test_\w+\.py)`", answers)
    assert len(named) > 15
    assert [name for name in named if not (PAGE.parents[1] / "tests" / name).is_file()] == []
