"""``pumice plugins new``: what it writes can be installed, is typed, and works."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nightly import variants
from pumice.cli.plugin_package import MODULES

ROOT = Path(__file__).parents[3]
NAMES = {
    "architecture": ("architectures", "stone"),
    "backend": ("backends", "first"),
    "sampler": ("samplers", "no_repeat"),
    "proposer": ("proposers", "again"),
    "pre-tokenizer": ("pre_tokenizers", "stone"),
    "chat-format": ("chat_formats", "stones"),
    "command": ("commands", "longest"),
    "protocol": ("protocols", "first"),
}

# A model that has not learnt the format is held to it.
CALL = """
import pumice

tool = {"type": "function", "function": {"name": "skip", "parameters": {"type": "object", "properties": {}}}}
with pumice.load(chat_template="{{ messages[-1].content }}{% if tools %}<stone>{% endif %}") as model:
    answer = model.chat([{"role": "user", "content": "Once"}], tools=[tool], tool_choice="required", max_tokens=30)
    print(answer.message.tool_calls[0].name, model.tokenizer.detokenize(answer.tokens)[:7])
"""


def check_types(folder: Path, package: str) -> None:
    cache = ROOT / ".mypy_cache" / "plugins"  # these options would make `make types` check everything again
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache}"]
    done = subprocess.run([*mypy, package], cwd=folder, capture_output=True, text=True)
    assert done.stdout.startswith("Success"), done.stdout


def test_the_package_of_the_tutorial_is_strictly_typed():
    check_types(ROOT / "tests" / "third_party" / "pumice-example", "pumice_example")


@pytest.mark.parametrize(
    "kinds", variants([[], ["backend"], ["pre-tokenizer", "chat-format"], [*MODULES]], [[*MODULES]]), ids=" ".join
)
def test_a_new_plugin_is_installed_and_works(tmp_path, kinds):
    command = [sys.executable, "-m", "pumice", "plugins", "new", "pumice-first"]
    chosen = [word for kind in kinds for word in ("--kind", kind)]
    subprocess.run([*command, *chosen], cwd=tmp_path, check=True, capture_output=True)
    package, site = tmp_path / "pumice-first", tmp_path / "site"
    check_types(package, "pumice_first")
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index", "--target"]
    subprocess.run([*pip, str(site), str(package)], check=True, capture_output=True)

    environment = {**os.environ, "PYTHONPATH": str(site), "XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run([*command[:4], "first", "--json"], env=environment, capture_output=True, text=True)
    (info,) = json.loads(done.stdout)
    assert (info["error"], info["problems"]) == (None, [])
    assert info["registered"] == {kind: [name] for kind, name in (NAMES[kind] for kind in kinds or ["sampler"])}
    if "backend" in kinds:
        run = [*command[:3], "run", "--backend", "first", "-n", "3", "--temp", "0"]
        run += ["--speculate", "again"] if "proposer" in kinds else []
        done = subprocess.run(run, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "first" in done.stderr.partition(" \u00b7 ")[0]
    if "chat-format" in kinds:
        called = subprocess.run([sys.executable, "-c", CALL], env=environment, capture_output=True, text=True)
        assert called.stdout == "skip <stone>\n", called.stderr


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["Pumice"], "'Pumice' is no name of a package"),
        (["../x"], "'../x' is no name of a package"),
        (["here"], "here exists; choose another name"),
        (["class"], "class: Python or an installed package has this name"),
        (["json"], "json: Python or an installed package has this name"),
        (["pyyaml"], "pyyaml: Python or an installed package has this name"),
        (["cpu"], "cpu: Python or an installed package has this name"),
        (["x", "--kind", "quantizer"], "'quantizer' is not one of"),
    ],
)
def test_a_plugin_that_cannot_be_written_is_refused(run, home, arguments, error):
    (home / "here").mkdir()
    done = run("plugins", "new", *arguments)
    assert done.returncode != 0
    assert error in done.stderr
    assert done.stderr.count("\n") == 1


def test_nothing_is_left_of_a_plugin_without_room(run, home, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    assert run("plugins", "new", "first").stderr == "error: first cannot be written: no space left on device\n"
    assert not (home / "first").exists()
