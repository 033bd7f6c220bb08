"""llama-cli's command line at ``pumice run`` and ``chat``."""

import json
from pathlib import Path

import click
import pytest

from pumice.cli.chat import command as chat_command
from pumice.cli.llama_options import OPTIONS
from pumice.cli.run import command as run_command

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
        (["-fa", "1", "-fa=off", "--color", "-fa", "model"], ["--color", "model"], ["-fa", "-fa", "-fa"]),
        (["--prompt-cache", "x", "--prompt-cache-all"], [], ["--prompt-cache", "--prompt-cache-all"]),
    ],
)
def test_options_without_a_meaning_are_left_out(arguments: list[str], kept: list[str], ignored: list[str]) -> None:
    assert OPTIONS["run"].leave_out(arguments, OWN) == (kept, ignored)


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
        OPTIONS[command].leave_out([option], OWN)
    assert said in error.value.message


@pytest.mark.parametrize("command", [run_command, chat_command], ids=["run", "chat"])
@pytest.mark.parametrize("program", ["llama-cli", "llama-completion"])
def test_every_option_of_llama_cli_is_taken_left_out_or_refused(command: click.Command, program: str) -> None:
    """With as many values as there; see tests/make_fixtures/llama_options.py."""
    theirs: dict[str, int] = json.loads(FIXTURE.read_text())[program]
    assert command.name is not None
    ours, options = flags(command), OPTIONS[command.name]
    others = dict.fromkeys([*options.implied, "-h", "--help"], 0)
    others |= {name: translation.n_values for name, translation in options.translations.items()}
    taken = {**options.ignored, **others, **ours}
    refused = options.refused
    if command is run_command:  # says that these belong to chats
        taken = {**flags(chat_command), **taken}
    assert len(theirs) > 240
    assert {name: taken.get(name) for name in theirs if name not in refused} == {
        name: count for name, count in theirs.items() if name not in refused
    }
    assert not ours.keys() & {*options.ignored, *others, *refused}
    assert not options.ignored.keys() & refused.keys()
    assert options.ignored.keys() == options.subjects.keys() | options.undone.keys()


def flags(command: click.Command) -> dict[str, int]:
    """Return the options of a command, each with how many values it takes, at most one counted."""
    options = [param for param in command.params if isinstance(param, click.Option)]
    return {name: int(not param.is_flag) for param in options for name in (*param.opts, *param.secondary_opts)}
