"""llama-cli's command line at ``pumice run`` and ``chat``."""

from __future__ import annotations

import click
import pytest

from pumice.cli.llama_options import leave_out
from pumice.demo import demo_model_path

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
        (["-p=x", "-no-cnv", "-unknown"], ["-p=x", "-unknown"], ["-no-cnv"]),
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
    ],
)
def test_options_that_are_done_otherwise_say_how(command: str, option: str, said: str) -> None:
    with pytest.raises(click.UsageError) as error:
        leave_out([option], command, OWN)
    assert said in error.value.message


def test_the_commands_take_them(run) -> None:
    done = run("run", "-fa", "on", "--no-warmup", "-p", "Once", "-n", "1", "--backend", "numpy")
    assert done.returncode == 0, done.stderr
    assert "warning: -fa has no meaning for pumice run, and is ignored" in done.stderr
    done = run("run", "-m", str(demo_model_path()), "Once", "-n", "1", "--backend", "numpy")  # the text follows -m
    assert done.returncode == 0, done.stderr
    done = run("run", "-m", str(demo_model_path()), "other.gguf")
    assert "two models" in done.stderr
    done = run("chat", "-hf", "no such/repository", "hi")
    assert done.returncode != 0
    assert "hf.co/no such/repository" in done.stderr
