"""llama-server's environment variables, by those that its help names."""

import json
from pathlib import Path

import click
import pytest

from pumice_server.command.arguments import OPTIONS
from pumice_server.command.environment import PREFIX, option_of
from pumice_server.command.serve import command

THEIRS = json.loads((Path(__file__).parents[2] / "fixtures" / "llama_environment.json").read_text())


@pytest.fixture
def parsed(monkeypatch):
    """The parameters of a command line, with variables set."""

    def parsed(*arguments, **variables):
        for name, value in variables.items():
            monkeypatch.setenv(PREFIX + name, value)
        return command.make_context("serve", list(arguments)).params

    return parsed


def test_every_variable_is_one_of_an_option():
    """See tests/make_fixtures/llama_options.py."""
    assert len(THEIRS) > 140
    ours = [variable for variable in THEIRS if variable.startswith(PREFIX)]
    assert [variable for variable in ours if option_of(variable) not in THEIRS[variable]] == []


def test_an_option_that_is_not_given_is_that_of_the_variable(parsed):
    variables = {"CTX_SIZE": "512", "N_PARALLEL": "3", "MODEL": "a b.gguf", "OFFLINE": "1", "CONTEXT_SHIFT": "on"}
    expected = {"n_ctx": 256, "n_parallel": 3, "model": ("a b.gguf",), "offline": True, "context_shift": True}
    assert parsed("-c", "256", **variables).items() >= expected.items()
    expected = {"model": ("c.gguf",), "offline": False, "context_shift": False}
    assert parsed("-m", "c.gguf", CONTEXT_SHIFT="false", OFFLINE="off").items() >= expected.items()


def test_options_without_effect_are_ignored_with_a_warning(parsed, capsys):
    parsed(FLASH_ATTN="on", PERF="true", SWA_FULL="0", NEW_IN_A_YEAR="x", AGENT="0")
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"warning: {name} has no meaning for pumice serve, and is ignored"
        for name in ("LLAMA_ARG_NEW_IN_A_YEAR", "--no-agent", "--flash-attn", "--perf")
    ]
    assert {"--flash-attn", "--perf", "--swa-full"} <= OPTIONS.ignored.keys()


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("MMPROJ_URL", "x.gguf", "give the file as --mmproj"),
        ("CACHE_PROMPT", "off", "give it with each request"),
        ("OFFLINE", "maybe", "LLAMA_ARG_OFFLINE: expected on or off, not 'maybe'"),
        ("CTX_SIZE", "many", r"'many' is not a valid integer \(from LLAMA_ARG_CTX_SIZE\)"),
    ],
)
def test_options_that_would_change_answers_are_refused(parsed, variable, value, message):
    with pytest.raises(click.UsageError, match=message):
        parsed(**{variable: value})
    assert "--mmproj-url" in OPTIONS.refused
