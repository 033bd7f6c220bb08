"""One vocabulary: an option is spelled alike in every command, and a spelling means one option."""

import re
from collections import defaultdict

import click
import pytest
from click.testing import CliRunner

from pumice.cli import cli
from pumice.cli.vocabulary import CommandOption, every_option

SHORT = {"-p": {"--prompt", "--n-prompt"}, "-n": {"--predict", "--n-gen"}, "-r": {"--reverse-prompt", "--repetitions"}}
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


def test_help_says_a_default_at_most_once(options):
    texts = [(path, (param.get_help_record(click.Context(cli)) or ("", ""))[1]) for path, param in options]
    assert [(path, text) for path, text in texts if text.count("[default") > 1] == []
    assert any(path == "pumice bench" and "[default: 512; x>=0]" in text for path, text in texts)


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


def test_a_name_has_one_type(options):
    """Two types for one option are two meanings; lists may be given one by one. ``--mmproj`` has two in llama.cpp."""
    table = defaultdict(set)
    for _, param in options:
        kind = param.type.name if not isinstance(param.type, click.Path) else "path"
        table[long_name(param)].add((kind.removesuffix(" range"), param.is_flag))
    several = {name: kinds for name, kinds in table.items() if len(kinds) > 1}
    assert set(several) <= {"--lora", "--lora-scaled", "--mmproj", "--model", "--imatrix", "--reasoning"}, several


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
    "chat": "-s system --n-predict 1 --n-ctx 64 --temperature 0",
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


@pytest.mark.parametrize("arguments", [["-tx", "4"], ["-tx=4"]])
def test_an_unknown_option_is_not_a_value_of_a_shorter_one(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, ["run", *arguments])
    assert (result.exit_code, "No such option '-tx'" in result.output) == (2, True), result.output


@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        # The reciprocal of an infinite scale would be 0, which stands for the file's.
        *((name, "inf", f"'{name}': inf is not a finite number") for name in ("--rope-freq-scale", "--temp")),
        *((name, "nan", f"'{name}': nan is not a finite number") for name in ("--rope-freq-scale", "--temp")),
        ("--frequency-penalty", "nan", "'--frequency-penalty': nan is not a finite number"),
        ("--frequency-penalty", "inf", "'--frequency-penalty': inf is not a finite number"),
        ("-dev", ",,", "expected names with commas between, not ',,'"),
        *(("-ts", value, "expected numbers from 0 with commas between") for value in (",,", "1,2,,", "nan,1", "-1,2")),
        ("--lora-scaled", "a.gguf:nan", "expected FILE:SCALE, not 'a.gguf:nan'"),
        # An empty one is a variable that is not set, and would count as no option at all.
        *((name, "", "expected NAMES, not ''") for name in ("-dev", "--speculate")),
        *((name, "", "expected FILE, not ''") for name in ("-md", "--grammar-file", "--lora")),
        *((name, value, f"expected FILE, not {value!r}") for name, value in (("-md", " "), ("--lora", ","))),
        ("--lora-scaled", ", ", "expected FILE:SCALE, not ', '"),
        ("--cache-disk", "", "expected DIR, not ''"),
        ("-ts", "", "expected N,N,..., not ''"),
        ("-ot", ",", "expected REGEX=DEVICE,..., not ','"),
    ],
)
def test_a_wrong_value_is_refused_with_its_option(option: str, value: str, wanted: str) -> None:
    result = CliRunner().invoke(cli, ["run", option, value, "-p", "x"])
    assert (result.exit_code, wanted in result.output) == (2, True), result.output


@pytest.mark.parametrize("line", ["gguf show E", "gguf hash S", "quantize E a.gguf q4_0", "quantize a.gguf E q4_0"])
def test_an_empty_path_is_not_the_current_folder(line: str) -> None:
    result = CliRunner().invoke(cli, [{"E": "", "S": " "}.get(word, word) for word in line.split()])
    assert result.exit_code == 2, result.output
    assert re.search(r"Error: Invalid value for '.*': expected .*, not '(| )'", result.output), result.output
