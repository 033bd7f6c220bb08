"""One vocabulary: an option is spelled alike in every command, and a spelling means one option."""

import re
from collections import defaultdict

import click
import pytest
from click.testing import CliRunner

from pumice.cli import cli
from pumice.cli.vocabulary import GROUPS, CommandOption, every_option, spellings
from pumice.options import CHAT, ENGINE

SHORT = {
    "-p": {"--prompt", "--n-prompt"},
    "-n": {"--predict", "--n-gen"},
    "-r": {"--reverse-prompt", "--repetitions"},
}
"""Short spellings with two meanings, as in llama.cpp: those of llama-bench are others."""

WITHOUT_SHORT = {
    ("pumice chat", "--seed"): "-s was the system message of `pumice chat`",
    ("pumice convert", "--mmproj"): "a flag, as of llama.cpp's converter",
}


@pytest.fixture(scope="module")
def options() -> list[tuple[str, CommandOption]]:
    """Every option that help shows, with its command."""
    found = [(path, param) for path, param in every_option(cli, click.Context(cli, info_name="pumice"))]
    assert len(found) > 200
    return [(path, param) for path, param in found if not param.hidden and "--version" not in param.opts]


def names(param: CommandOption) -> tuple[str, ...]:
    return tuple(param.shown if isinstance(param, CommandOption) else param.opts)


def long_name(param: CommandOption) -> str:
    return next((name for name in names(param) if name.startswith("--")), names(param)[0])


def test_an_option_is_spelled_alike_everywhere(options):
    table = defaultdict(set)
    for path, param in options:
        if (path, long_name(param)) not in WITHOUT_SHORT:
            table[long_name(param)].add(names(param))
    assert {name: found for name, found in table.items() if len(found) > 1} == {}


def test_a_spelling_means_one_option(options):
    table = defaultdict(set)
    for _, param in options:
        for name in names(param):
            table[name].add(long_name(param))
    assert {name: found for name, found in table.items() if len(found) > 1} == SHORT


def test_an_alias_is_no_spelling_of_another_option(options):
    shown = {name: long_name(param) for _, param in options for name in names(param)}
    old_meanings = {("pumice chat", "-s"), ("pumice bench", "--parallel")}
    old_meanings |= {("pumice gguf hash", "-a"), ("pumice gguf hash", "-c")}
    wrong = {
        (path, alias)
        for path, param in options
        for alias in getattr(param, "aliases", ())
        if shown.get(alias, long_name(param)) != long_name(param)
    }
    assert wrong == old_meanings


def test_spellings_are_those_of_the_definitions(options):
    defined = {flag: spellings(option)[0] for option in [*ENGINE.values(), *CHAT.values()] for flag in option.flags}
    for path, param in options:
        for name in names(param):
            if name.startswith("--") and name in defined and (path, name) not in WITHOUT_SHORT:
                assert list(names(param)) == defined[name], f"{path} {name}"


def test_a_name_has_one_type(options):
    """Two types for one option are two meanings; lists may be given one by one. ``--mmproj`` has two in llama.cpp."""
    table = defaultdict(set)
    for _, param in options:
        kind = param.type.name if not isinstance(param.type, click.Path) else "path"
        table[long_name(param)].add((kind.removesuffix(" range"), param.is_flag))
    several = {name: kinds for name, kinds in table.items() if len(kinds) > 1}
    assert set(several) <= {"--lora", "--lora-scaled", "--mmproj", "--model", "--imatrix", "--reasoning"}, several


def test_options_stand_in_groups(options):
    assert {param.group for _, param in options if isinstance(param, CommandOption)} <= set(GROUPS)


@pytest.mark.parametrize("command", ["run", "chat", "bench", "serve", "batch"])
def test_help_is_short_and_help_all_is_whole(command):
    short, whole = (
        CliRunner().invoke(cli, [command, flag], prog_name="pumice").output for flag in ("--help", "--help-all")
    )
    for text in (short, whole):
        assert "Context:" in text
        assert "-c, --ctx-size N" in text
        assert "--n-ctx" not in text
    assert "--control-vector" not in short
    assert "--control-vector" in whole
    assert len(short) < len(whole)


OLD = {
    "run": "-c 64 --n-ctx 64 --n-batch 8 --n-gpu-layers 0 --kv-type f16 --n-predict 1 --temp 0 --stop x",
    "bench": "--n-ctx 64 --n-gen 1 --n-prompt 4 --parallel 1 -r 1 --json --backend numpy",
    "chat": "-s system --no-reasoning --n-predict 1 --n-ctx 64 --temperature 0",
    "serve": "--gpu-layers 0 --webui --log-verbose --cors-origin * -hfr a/b --typical-p 1",
    "imatrix": "--chunk 1",
    "convert": "--type f16",
}


@pytest.mark.parametrize("command", OLD)
def test_old_spellings_work(command):
    """They are parsed; what follows is the same."""
    context = click.Context(cli, info_name="pumice")
    found = cli.get_command(context, command)
    arguments = [*OLD[command].split(), *(["folder"] if command == "convert" else [])]
    assert found.make_context(command, arguments, parent=context).params


def test_the_model_may_be_an_option(run, model):
    by_argument = run("tokenize", model, "-p", "a b", "--json")
    assert run("tokenize", "-m", model, "-p", "a b", "--json").stdout == by_argument.stdout != ""
    assert "two models: one as MODEL and one with -m" in run("tokenize", model, "-m", model, "-p", "a").stderr


def test_a_template_is_no_file(run, model, home):
    (home / "template.jinja").write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    wrong = run("chat", model, "--chat-template", "template.jinja", input="a")
    assert wrong.returncode == 2
    assert "use --chat-template-file template.jinja" in wrong.stderr
    right = run("chat", model, "--chat-template-file", "template.jinja", "-n", "1", "--backend", "numpy", input="a")
    assert right.returncode == 0, right.stderr
    both = run("chat", model, "--chat-template", "chatml", "--chat-template-file", "template.jinja", input="a")
    assert "give either --chat-template or --chat-template-file" in both.stderr


def test_layers_and_cache_types(run, model):
    assert "all or auto, not 'few'" in run("run", model, "-p", "a", "-ngl", "few").stderr
    assert "-ctk and -ctv differ" in run("run", model, "-p", "a", "-ctk", "f16", "-ctv", "q8_0").stderr
    for arguments in (("-ngl", "all", "-ctv", "f32"), ("-ngl", "0", "-ctk", "f32", "-ctv", "f32")):
        assert run("config", "--json", *arguments).stdout.count('"value": "f32"') == 1


@pytest.mark.parametrize("arguments", [["-tx", "4"], ["-tx=4"]])
def test_an_unknown_option_is_not_a_value_of_a_shorter_one(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, ["run", *arguments])
    assert (result.exit_code, "No such option '-tx'" in result.output) == (2, True), result.output


def test_a_wrong_value_is_named() -> None:
    assert "'4x' is not a valid integer" in CliRunner().invoke(cli, ["run", "-t", "4x"]).output


@pytest.mark.parametrize(("option", "wanted"), [("-dev", "expected names"), ("-ts", "expected numbers")])
def test_a_list_of_nothing_is_refused(option: str, wanted: str) -> None:
    result = CliRunner().invoke(cli, ["run", option, ",,"])
    assert (result.exit_code, f"{wanted} with commas between, not ',,'" in result.output) == (2, True), result.output


@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        ("-dev", "", "NAMES"),
        ("--speculate", "", "NAMES"),
        ("-md", "", "FILE"),
        ("-md", " ", "FILE"),
        ("--grammar-file", "", "FILE"),
        ("--lora", "", "FILE"),
        ("--lora", ",", "FILE"),
        ("--lora-scaled", ", ", "FILE:SCALE"),
        ("--cache-disk", "", "DIR"),
        ("-ts", "", "N,N,..."),
        ("-ot", ",", "REGEX=DEVICE,..."),
    ],
)
def test_an_empty_value_is_refused(option: str, value: str, wanted: str) -> None:
    """It is a variable that is not set, and would count as no option at all."""
    result = CliRunner().invoke(cli, ["run", option, value, "-p", "x"])
    assert (result.exit_code, f"expected {wanted}, not {value!r}" in result.output) == (2, True), result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["gguf", "show", ""],
        ["gguf", "hash", " "],
        ["quantize", "", "a.gguf", "q4_0"],
        ["quantize", "a.gguf", "", "q4_0"],
    ],
)
def test_an_empty_path_is_not_the_current_folder(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2, result.output
    assert re.search(r"Error: Invalid value for '.*': expected .*, not '(| )'", result.output), result.output


def test_a_text_may_be_empty() -> None:
    command = cli.get_command(click.Context(cli), "chat")
    assert command
    context = command.make_context("chat", ["--system", "", "--stop", ""])
    assert (context.params["system"], context.params["stop"]) == ("", ("",))
