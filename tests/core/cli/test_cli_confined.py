"""Commands confine the program's own process: what they may open is what their command line names."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gguf_files import tiny_llama
from installed_plugins import install
from prepared_commands import prepared
from pumice.cli import cli, placing
from pumice.cli.confined import ConfinedCommand
from pumice.cli.files import OutputFile, WrittenFiles, values
from pumice.commands import COMMANDS
from sandboxes import needs_sandbox

pytestmark = needs_sandbox

INTRUDER = """
import json, os, sys
import numpy as np
from dataclasses import dataclass
from pumice.plugin import Sampler, hookimpl
from pumice.sandbox import in_force, trial

def children():
    try:
        os.waitpid(-1, os.WNOHANG)
        return "a child"
    except ChildProcessError:
        return "no child"

@dataclass
class Intruder(Sampler):
    def apply(self, candidates):
        np.ones((512, 512)) @ np.ones((512, 512))
        n_threads = len(os.listdir("/proc/self/task"))
        print(f"{children()}, {in_force()}, {'threads' if n_threads > 1 else 'a thread'}", file=sys.stderr)
        outcomes = trial.run(os.environ["TRIED_MODEL"], os.environ["TRIED_FILE"])
        print(json.dumps(outcomes), file=sys.stderr)

@hookimpl
def pumice_register_samplers(register):
    register("intruder", Intruder)
"""
STARTED = {"`fork`", "start a program (`fork`, `execve`)", "`execve`", "`execveat`: a file in memory"}
SIGNALLED = {"signal the parent (`kill`)", "`pidfd_open` of the parent", "`prlimit` of the parent"}


@pytest.fixture(scope="module")
def forked():
    with prepared() as commands:
        yield commands


@pytest.fixture
def command(forked, home):
    """Run the program where its modules are imported already; the process that ended."""

    def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        done = forked(*arguments, **variables)
        assert not done.returncode, done.stderr
        return done

    return run


@pytest.fixture
def pumice(home):
    """Run the program; the process that ended."""

    def run(*arguments: object, text: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "pumice", *map(str, arguments)]
        environment = os.environ | variables
        done = subprocess.run(command, env=environment, input=text, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        return done

    return run


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model").mkdir()
    return tiny_llama(tmp_path / "model" / "tiny.gguf")


@pytest.mark.parametrize(
    ("line", "is_confined"),
    [("run -p a", True), ("chat --chat-template chatml", True), ("run -p a --no-sandbox", False)],
)
def test_a_plugin_is_denied_what_engines_are(pumice, model, site, home, line, is_confined):
    """But for starting Python, confined alike, which compiles kernels.

    `run` forked no process before: every page would be copied that changes afterwards.
    """
    command = line.split()
    secret = home.parent / ".ssh" / "id_ed25519"
    secret.parent.mkdir()
    secret.write_text("secret")
    install(site, "intruder", INTRUDER)
    variables = {"TRIED_MODEL": str(model), "TRIED_FILE": str(secret), "PYTHONPATH": str(site)}
    arguments = ("-m", model, "-n", "2", "--backend", "numpy", "--set", "samplers=[intruder, greedy]")
    lines = pumice(*command, *arguments, text="a" * (command[0] == "chat"), **variables).stderr.splitlines()
    outcomes = json.loads(next(line for line in lines if line.startswith("{")))
    assert len(outcomes) > 30
    allowed = {name for name, outcome in outcomes.items() if outcome != "denied"}
    assert (not allowed - STARTED - SIGNALLED) == is_confined
    assert "`fork`" in allowed
    if is_confined and command[0] == "run":
        first = next(line for line in lines if " child, " in line)
        assert first.startswith("no child, Landlock")
        assert first.endswith(", threads")


def test_every_command_that_reads_models_is_confined():
    def commands(group: click.Group, ctx: click.Context):
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            if isinstance(command, click.Group):
                yield from commands(command, click.Context(command, ctx, name))
            else:
                yield name, command

    assert COMMANDS
    others = {name for name, command in commands(cli, click.Context(cli)) if not isinstance(command, ConfinedCommand)}
    fetching = {"pull", "list", "rm", "ps", "create"}
    listing = {"config", "new", "devices", "doctor"}  # "new" is of plugins
    with_engines = {"serve", "batch", "launch"}
    without_models = {"route"}
    assert others == fetching | listing | with_engines | without_models


def test_files_are_made_and_changed(command, model, home):
    """Each in its folder, with nothing left beside it; what is there keeps its mode, or is kept without --force."""
    command("quantize", model, "q8.gguf", "Q8_0")
    (home / "q8.gguf").chmod(0o640)
    command("quantize", model, "q8.gguf", "Q8_0", "--force")
    assert (home / "q8.gguf").stat().st_mode & 0o777 == 0o640
    command("gguf", "set", "q8.gguf", "general.name=str:another")
    command("gguf", "set", "q8.gguf", f"general.description=str:{'long ' * 100}")
    assert command("gguf", "show", "q8.gguf", "general.name").stdout == "another\n"
    command("gguf", "split", "q8.gguf", "parts", "--max-tensors", "8")
    command("gguf", "merge", next(iter(sorted(home.glob("parts-*")))), "merged.gguf")
    (home / "text.txt").write_text("abc " * 300)
    command("imatrix", model, "-f", "text.txt", "-c", "64", "--save-frequency", "2", "--backend", "numpy")
    command("perplexity", model, "-f", "text.txt", "-c", "64", "--save-logits", "logits", "--backend", "numpy")
    command("perplexity", model, "--kl-divergence-base", "logits", "--backend", "numpy")
    assert not [path for path in home.rglob(".*") if path.name.startswith(".pumice")]
    assert {path.suffix for path in home.iterdir()} >= {".gguf", ".at_2"}


def test_texts_from_everywhere(command, model, home):
    (home / "prompt").write_text("a b")
    (home / "grammar").write_text('root ::= "yes"')
    ids = command("tokenize", model, "-f", "prompt", "--json").stdout
    assert ids == command("tokenize", model, "-p", "a b", "--json").stdout
    options = ("--backend", "numpy", "-n", "4")
    assert command("run", model, "-f", "prompt", "--grammar", "@grammar", *options).stdout == "yes"
    assert command("embed", model, "-f", "prompt", "--backend", "numpy").stdout


def test_the_sandbox_follows_the_configuration(command, model, home, monkeypatch, tmp_path):
    for setting, told in (("auto", "confined by: Landlock"), ("on", "confined by: Landlock"), ("off", "")):
        (tmp_path / "settings.yaml").write_text(f"sandbox: {setting}\n")
        variables = {"PUMICE_CONFIG": str(tmp_path / "settings.yaml")}
        done = command("run", model, "-p", "a", "-n", "1", "-v", "--backend", "numpy", **variables)
        assert told in done.stderr
        assert ("confined" in done.stderr) == bool(told)


@pytest.fixture
def placer(tmp_path):
    outputs = [*OutputFile().outputs(tmp_path / "out.gguf", click.Context(cli))]
    with placing.placer(outputs) as placer:
        yield placer


def test_files_are_put_where_the_command_line_says_alone(placer, tmp_path):
    (folder,) = placer.folders.values()
    for name in ("out.gguf", "out-00001-of-00002.gguf", "out.gguf.at_10"):
        placer.temporary(tmp_path / name).write_text(name)
        placer.put(folder / name, tmp_path / name, force=False)
        assert (tmp_path / name).read_text() == name
    (folder / "other.gguf").touch()
    (tmp_path / "mine").touch()
    for temporary, path in (
        (folder / "other.gguf", tmp_path / "other.gguf"),
        (folder / "other.gguf", tmp_path.parent / "out.gguf"),
        (tmp_path / "mine", tmp_path / "out.gguf"),
        (folder / ".." / "mine", tmp_path / "out.gguf"),
    ):
        with pytest.raises(PermissionError, match="not an output"):
            placer.put(temporary, path, force=False)
    assert (tmp_path / "mine").exists()


def test_existing_files_stay_without_force(placer, tmp_path):
    """Whatever the command asks for, which may be anybody's; its own file it replaces."""
    theirs, ours = tmp_path / "out-00001-of-00002.gguf", tmp_path / "out.gguf"
    theirs.write_text("precious")
    placer.temporary(theirs).write_text("new")
    with pytest.raises(FileExistsError):
        placer.put(placer.temporary(theirs), theirs, force=True)
    assert theirs.read_text() == "precious"
    for text in ("first", "second"):
        placer.temporary(ours).write_text(text)
        placer.put(placer.temporary(ours), ours, force=False)
        assert ours.read_text() == text


def test_a_link_is_no_output(placer, tmp_path):
    (tmp_path / "secret").write_text("secret")
    link = placer.temporary(tmp_path / "out.gguf")
    link.symlink_to(tmp_path / "secret")
    with pytest.raises(PermissionError, match="not an output"):
        placer.put(link, tmp_path / "out.gguf", force=False)
    assert not (tmp_path / "out.gguf").is_symlink()


def outputs(*arguments: object) -> list[WrittenFiles]:
    """Return what a command line says is written."""
    ctx = cli.make_context("pumice", list(map(str, arguments)), resilient_parsing=False)
    while isinstance(ctx.command, click.Group):
        name, command, rest = ctx.command.resolve_command(ctx, [*ctx._protected_args, *ctx.args])
        ctx = command.make_context(name, rest, parent=ctx)
    return [output for kind, value in values(ctx, OutputFile) for output in kind.outputs(value, ctx)]


def is_output(path: Path, found: list[WrittenFiles]) -> bool:
    return any(output.folder == path.parent and output.pattern.fullmatch(path.name) for output in found)


def test_outputs_are_no_more_than_the_command_line_says(tmp_path):
    """A folder that has the name of an output is none for other files, but for a converted model, named by its text."""
    folder, file = tmp_path / "out", tmp_path / "in.gguf"
    folder.mkdir()
    inside, part = folder / "other.gguf", tmp_path / "out-00001-of-00002.gguf"
    split = outputs("gguf", "split", file, folder)
    assert is_output(part, split)
    assert not is_output(folder, split)
    assert not is_output(inside, split)
    quantized = outputs("quantize", file, folder, "Q8_0", "--keep-split", "--force")
    assert is_output(part, quantized)
    assert not is_output(inside, quantized)
    assert is_output(inside, outputs("convert", tmp_path, "-o", folder))
    assert not any(output.force for output in outputs("convert", tmp_path, "-o", folder, "--force"))
    (tmp_path / "adapter_config.json").touch()
    adapter = outputs("convert", tmp_path, "-o", folder)
    assert is_output(folder / f"{tmp_path.name}-F32-LoRA.gguf", adapter)
    assert not is_output(inside, adapter)
    assert [output.force for output in (*split, *quantized, *adapter)] == [False, True, False]
    assert is_output(file, outputs("gguf", "set", file, "a=str:b"))
    assert not is_output(file, outputs("gguf", "set", file, "a=str:b", "-o", part))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("transcribe a -m b -o ./a --force", "a: the command reads this file"),
        ("imatrix b -f a -o b --force", "b: the command reads this file"),
        ("export-lora b l --lora l --force", "l: the command reads this file"),
        ("transcribe a b -m b -o c -o ./c", "c: two outputs have this name"),
        ("gguf set b x=1 -o b --force", ""),
        ("gguf split b b", ""),
    ],
)
def test_outputs_are_no_inputs_even_with_force(tmp_path, monkeypatch, line, problem):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        Path(name).touch()
    (tmp_path / "l").symlink_to("a")
    name, *arguments = line.split()
    result = CliRunner().invoke(cli, [name, *arguments])
    assert (problem or "expected a GGUF file") in f"{result.output}{result.exception}"
