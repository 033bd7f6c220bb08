"""llama-cli's command line at ``pumice run`` and ``chat``."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from pumice.cli.chat import command as chat_command
from pumice.cli.llama_names import TRANSLATED
from pumice.cli.llama_options import ANYWAY, IGNORED, OTHERS, REFUSED, REPOSITORY, leave_out
from pumice.cli.run import command as run_command
from pumice.demo import demo_model_path

FIXTURE = Path(__file__).parents[2] / "fixtures" / "llama_cli_options.json"
OWN = {"-p": True, "-m": True, "-f": True, "--color": False, "--stats": False}


@pytest.mark.parametrize(
    ("arguments", "kept", "ignored"),
    [
        (["-fa", "on", "-p", "x"], ["-p", "x"], ["-fa"]),
        (["-fa", "-p", "x"], ["-p", "x"], ["-fa"]),  # as before it had a value
        (["-hf", "a/b:Q8_0", "--jinja"], ["-m", "hf.co/a/b:Q8_0"], ["--jinja"]),
        (["--hf-repo=a/b"], ["-m", "hf.co/a/b"], []),
        (["-ub", "512", "--prio=2", "model", "text"], ["model", "text"], ["-ub", "--prio"]),
        (["-p", "-fa", "--", "-fa"], ["-p", "-fa", "--", "-fa"], []),
        (["-p=x", "-no-cnv", "-st", "-unknown"], ["-p=x", "-unknown"], []),  # it does so anyway
        (["--spec-type", "draft-mtp", "--no-mmproj"], ["--speculate", "mtp", "--mmproj", "off"], []),
        (["--prompt-cache", "x", "--prompt-cache-all"], [], ["--prompt-cache", "--prompt-cache-all"]),
    ],
)
def test_options_without_a_meaning_are_left_out(arguments: list[str], kept: list[str], ignored: list[str]) -> None:
    assert leave_out(arguments, "run", OWN) == (kept, ignored)


@pytest.mark.parametrize(
    ("command", "option", "said"),
    [
        ("run", "-cnv", "`pumice chat` holds a conversation"),
        ("chat", "-no-cnv", "`pumice run` continues a text"),
        ("chat", "--version", "pumice --version"),
        ("run", "--verbose-prompt", "`pumice tokenize -p TEXT`"),
        ("run", "-hf", "requires an argument"),
    ],
)
def test_options_that_are_done_otherwise_say_how(command: str, option: str, said: str) -> None:
    with pytest.raises(click.UsageError) as error:
        leave_out([option], command, OWN)
    assert said in error.value.message


@pytest.mark.parametrize("command", [run_command, chat_command], ids=["run", "chat"])
@pytest.mark.parametrize("program", ["llama-cli", "llama-completion"])
def test_every_option_of_llama_cli_is_taken_left_out_or_refused(command: click.Command, program: str) -> None:
    """With as many values as there; see tests/make_fixtures/llama_options.py."""
    theirs: dict[str, int] = json.loads(FIXTURE.read_text())[program]
    assert command.name is not None
    ours = flags(command)
    others = dict.fromkeys([*ANYWAY[command.name], "-h", "--help"], 0) | dict.fromkeys(REPOSITORY, 1)
    taken = {**IGNORED, **TRANSLATED, **others, **ours}
    refused = {**REFUSED, **OTHERS[command.name]}
    if command is run_command:  # says that these belong to chats
        taken = {**flags(chat_command), **taken}
    assert len(theirs) > 240
    assert {name: taken.get(name) for name in theirs if name not in refused} == {
        name: count for name, count in theirs.items() if name not in refused
    }
    assert not ours.keys() & {*IGNORED, *TRANSLATED, *others, *refused}
    assert not IGNORED.keys() & refused.keys()


def flags(command: click.Command) -> dict[str, int]:
    """Return the options of a command, each with how many values it takes, at most one counted."""
    options = [param for param in command.params if isinstance(param, click.Option)]
    return {name: int(not param.is_flag) for param in options for name in (*param.opts, *param.secondary_opts)}


def test_the_commands_take_them(run) -> None:
    done = run("run", "-fa", "on", "--no-warmup", "-p", "Once", "-n", "1", "--backend", "numpy")
    assert done.returncode == 0, done.stderr
    assert "warning: -fa has no meaning for pumice run, and is ignored" in done.stderr
    done = run("run", "-m", str(demo_model_path()), "Once", "-n", "1", "--backend", "numpy")  # the text follows -m
    assert done.returncode == 0, done.stderr
    done = run("run", "-m", str(demo_model_path()), "other.gguf")
    assert "two models" in done.stderr
    done = run("run", "--prompt-cache", "x", "-sysf", "file")
    assert "warning: --prompt-cache is ignored: --cache-disk DIR keeps" in done.stderr
    assert "error: -sysf is an option of chats" in done.stderr
    done = run("chat", "-hf", "no such/repository", "hi")
    assert done.returncode != 0
    assert "hf.co/no such/repository" in done.stderr
