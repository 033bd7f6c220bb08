"""A plugin that somebody else could have written, installed by pip beside Pumice's wheel in a clean environment."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import pumice
from gguf_files import tiny_llama, write_gguf
from pumice.tokenizers import from_metadata
from tokenizer_fixtures import metadata

ROOT = Path(__file__).parents[2]
EXAMPLE = Path(__file__).parent / "pumice-example"
PROMPT = "ab"
N_TOKENS = 24

CONFIG = """
backend: example
example: {max_rows: 200}
samplers: [no_repeat, temperature, greedy, dist]
sampling: {temperature: 0, no_repeat: 3}
plugins: {prefer: {architectures: {stone: example}}}
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with both wheels; the libraries they need are those of this one."""
    directory = tmp_path_factory.mktemp("clean")
    for source in (ROOT, EXAMPLE):
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
        subprocess.run(build, cwd=source, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory / "venv")], check=True)
    interpreter = directory / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    install = [sys.executable, "-m", "pip", "--python", str(interpreter), "install", "--no-index", "--no-deps"]
    subprocess.run([*install, *map(str, directory.glob("*.whl"))], check=True, capture_output=True)
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    purelib = Path(subprocess.check_output([interpreter, "-c", ask], text=True).strip())
    (purelib / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return interpreter


@pytest.fixture
def run(python, tmp_path, monkeypatch):
    """Run ``pumice`` of the clean environment in an empty directory."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    for name in ("PUMICE_CONFIG", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [python, "-m", "pumice", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    return run


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("model") / "llama.gguf", n_vocab=300)


@pytest.fixture(scope="module")
def stone(llama: Path) -> Path:
    """Return the model under the name of the plugin's architecture, which has the same length."""
    path = llama.with_name("stone.gguf")
    name = b"general.architecture" + (8).to_bytes(4, "little") + (5).to_bytes(8, "little")
    path.write_bytes(llama.read_bytes().replace(name + b"llama", name + b"stone").replace(b"llama.", b"stone."))
    return path


def expected_text(llama: Path, no_repeat: int) -> str:
    """The greedy text of the bundled architecture and backend, the last tokens forbidden."""
    with pumice.load(llama, backend="numpy") as model:
        prompt = model.tokenizer.tokenize(PROMPT)
        ids = list(prompt)
        for _ in range(N_TOKENS):
            logits = model.logits(ids)[-1]
            logits[ids[len(ids) - no_repeat :]] = -np.inf  # nothing where no_repeat is 0
            ids.append(int(logits.argmax()))
        return model.tokenizer.detokenize(ids[len(prompt) :])


def test_the_plugin_is_listed_with_what_it_registers(run, python):
    done = run("plugins", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    plugins = {info["name"]: info for info in json.loads(done.stdout)}
    assert [name for name, info in plugins.items() if info["error"]] == []
    assert {"numpy", "architectures", "samplers", "example"} <= set(plugins)
    assert plugins["example"]["distribution"] == "pumice-example"
    assert plugins["example"]["version"] == "1.2.3"
    assert plugins["example"]["registered"] == {
        "backends": ["example"],
        "architectures": ["stone"],
        "samplers": ["no_repeat"],
        "proposers": ["again"],
        "pre_tokenizers": ["stone"],
        "chat_formats": ["stones"],
        "commands": ["longest"],
        "protocols": ["example"],
    }
    assert [name for name, info in plugins.items() if info["problems"]] == []
    where = subprocess.check_output([python, "-c", "import pumice; print(pumice.__file__)"], text=True)
    assert Path(where).is_relative_to(python.parents[1]), "the wheel, not the checkout"


def test_the_file_that_the_tutorial_writes_runs(python, tmp_path):
    tutorial = (ROOT / "docs" / "plugins.md").read_text()
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", tutorial, re.DOTALL) if "GGUFWriter" in code)
    code += """
import pumice
with pumice.load("stone.gguf", backend="numpy", kv_type="f32") as model:
    print(model.logits([1, 2, 3]).shape)
"""
    done = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("(3, 100)\n", "")


def test_its_command_is_one_of_pumice(run, llama):
    assert "\n  longest " in run("--help").stdout
    done = run("longest", str(llama), "-n", "2")
    tokenizer = pumice.load_tokenizer(llama)
    longest = sorted((tokenizer.token_text(token) for token in range(tokenizer.n_vocab)), key=len, reverse=True)[:2]
    assert done.stdout.splitlines() == longest


def test_its_pre_tokenizer_cuts_the_words_of_a_file(run, tmp_path):
    described = metadata("bpe", pre="stone") | {"general.architecture": "stone"}
    path = write_gguf(tmp_path / "vocabulary.gguf", described, {})
    ids = json.loads(run("tokenize", str(path), "-p", "stones 12", "--json").stdout)
    assert from_metadata(metadata("bpe", pre="gpt-2")).detokenize(ids) == "stones 12"
    with pytest.raises(pumice.TokenizerError, match="unknown pre-tokenizer 'stone'"):
        pumice.load_tokenizer(path)


def test_a_configuration_file_selects_all_it_adds(run, llama, stone, tmp_path):
    (tmp_path / "pumice.yaml").write_text(CONFIG)
    done = run("run", str(stone), "-p", PROMPT, "-n", str(N_TOKENS))
    assert done.stderr.startswith("load "), done.stderr
    assert "example" in done.stderr.partition(" · ")[0]
    assert done.stdout == expected_text(llama, no_repeat=3)


def test_its_option_moves_matrices_to_the_next_backend(run, stone):
    graph = ("info", str(stone), "--graph", "--backend", "example", "--set", "backends=[numpy]")
    few = run(*graph, "--set", "example.max_rows=64").stdout
    every = run(*graph).stdout
    assert "segment 0 on numpy" in every  # the embedding
    assert every.count(" on example") > few.count(" on example") > 0


def test_its_operation_runs_on_its_backend_and_in_parts_on_others(run, stone):
    graph = ("info", str(stone), "--graph", "--set", "backends=[numpy]", "--backend")
    assert "example.swiglu(" in run(*graph, "example").stdout
    elsewhere = run(*graph, "numpy").stdout
    assert "example.swiglu(" not in elsewhere
    assert "= silu(" in elsewhere


def test_it_tells_the_bundled_backends_story(run):
    """With the demo model, which is in the wheel."""
    story = run("run", "--backend", "example", "--set", "backends=[numpy]", "--seed", "1")
    assert "example" in story.stderr.partition(" · ")[0]
    assert len(story.stdout) > 500
    assert story.stdout == run("run", "--backend", "numpy", "--seed", "1").stdout
