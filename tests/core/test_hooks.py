"""Each hook, from a plugin that is installed or passed to ``load``."""

import re

import numpy as np
import pytest

import pumice
from gguf_files import write_gguf
from installed_plugins import install, passed
from pumice.plugin import Selector, Tokenizer
from pumice_architectures.llama import Llama
from pumice_numpy import NumpyBackend
from tokenizer_fixtures import metadata

pytestmark = pytest.mark.usefixtures("home")

COMMAND = """
import click
from pumice.plugin import hookimpl

@click.command("greet")
@click.argument("name")
def greet(name):
    "Greet somebody."
    click.echo(f"hello {name}")
    1 / len(name)

@hookimpl
def pumice_register_commands(register):
    register("greet", greet)
    register("broken", "no_such_module:command")
"""


PATTERNS = r"""
from pumice.plugin import PreTokenizer, hookimpl

@hookimpl
def pumice_register_pre_tokenizers(register):
    register("letters", PreTokenizer(patterns=(r"\p{L}",)))
"""


class Plugin:
    """A plugin that a notebook may pass."""


class Reversed(Tokenizer):
    """Ids of letters, backwards."""

    kind = "reversed"

    def __init__(self, metadata):
        self.bos, self.eog, self.n_vocab = None, frozenset(), 26

    def tokenize(self, text, add_special=True, parse_special=True):
        return [ord(letter) - ord("a") for letter in reversed(text)]


Reversed.__abstractmethods__ = frozenset()


def test_a_plugin_is_passed_for_one_load(path):
    class Mine(NumpyBackend):
        pass

    mine = passed("backends", mine=Mine)
    with pumice.load(path, backend="mine", plugins=[mine]) as loaded:
        assert loaded.backends == ["mine"]
    with pytest.raises(pumice.BackendError, match="unknown backend 'mine'"):
        pumice.load(path, backend="mine")


def test_passed_plugins_replace_installed_ones(path):
    class Mine(Llama):
        pass

    with pumice.load(path, plugins=[passed("architectures", llama=Mine)], backend="numpy") as loaded:
        assert type(loaded.engine.architecture) is Mine
    with pytest.raises(pumice.PluginError, match="'passed' and 'passed-2' both register"):
        pumice.load(path, plugins=[passed("architectures", llama=Mine), passed("architectures", llama=Mine)])


def test_a_module_is_a_plugin_and_a_sampler_is_chosen_by_configuration(path):
    class Last(Selector):
        def apply(self, candidates):
            candidates.select(len(candidates) - 1)

    mine = passed("samplers", last=Last)
    with pumice.load(path, backend="numpy", plugins=[mine], config={"samplers": ["last"]}) as loaded:
        assert loaded.generate("a", max_tokens=2).tokens == [loaded.n_vocab - 1] * 2


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (passed("backends", mine=3), "plugin passed: backend 'mine' .*: expected a subclass of Backend, not 3"),
        (passed("backend", mine=3), "plugin passed: unknown hook 'pumice_register_backend'"),
        (Plugin(), "plugin Plugin: it has no hooks: pass a module"),
        ("pumice_numpy", "plugin str: it has no hooks: pass a module"),
    ],
)
def test_a_passed_plugin_that_is_wrong_is_an_error(path, wrong, error):
    with pytest.raises(pumice.PluginError, match=error):
        pumice.load(path, plugins=[wrong])


def test_tokenizers(path):
    with pumice.load(path, plugins=[passed("tokenizers", llama=Reversed)], backend="numpy") as loaded:
        assert loaded.tokenizer.tokenize("abc") == [2, 1, 0]
    assert pumice.load_tokenizer(path, plugins=[passed("tokenizers", llama=Reversed)]).tokenize("ab") == [1, 0]


def test_pre_tokenizers(site, tmp_path):
    install(site, "letters", PATTERNS)
    described = metadata("bpe", pre="letters") | {"general.architecture": "llama"}
    path = write_gguf(tmp_path / "vocabulary.gguf", described, {})
    tokenizer = pumice.load_tokenizer(path)
    texts = [tokenizer.detokenize([token]) for token in tokenizer.tokenize("hello", add_special=False)]
    assert texts == list("hello"), "no merge crosses from one letter to the next"


def test_commands(site, home, run):
    install(site, "greeting", COMMAND)
    assert run("greet", "you").stdout == "hello you\n"
    failed = "error: command 'greet' (plugin greeting): ZeroDivisionError: division by zero\n"
    assert run("greet", "").stderr == failed
    help = run("--help").stdout
    assert re.search(r"\n  greet +Greet somebody\.\n", help)
    assert "\n  run " in help
    assert "\n  broken " not in help, "what cannot be imported is not listed"
    broken = run("broken")
    assert broken.returncode == 1
    assert broken.stderr.startswith("error: command 'broken' (plugin greeting): no_such_module:command: ModuleNotFound")
    assert "error: unknown command 'gret'; did you mean 'greet'? (see " in run("gret").stderr
    (home / "pumice.yaml").write_text("n_ctx: many")
    assert run("--help").returncode == 0, "help does not need a valid configuration"
    assert run("serve").stderr.startswith("error: pumice.yaml: n_ctx: should be an integer")
    assert "; those of plugins are not known: pumice.yaml: n_ctx: should be an integer" in run("greet", "you").stderr


def test_a_command_is_chosen_where_two_plugins_have_it(site, home, run):
    install(site, "greeting", COMMAND.replace('"greet", greet', '"info", greet'))
    told = run("info", "you").stderr
    assert told.startswith("error: plugins 'core' and 'greeting' both register the command 'info'; choose")
    (home / "pumice.yaml").write_text("plugins: {prefer: {commands: {info: greeting}}}")
    assert run("info", "you").stdout == "hello you\n"


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"build": lambda self, g: np.zeros(3)}, "main: expected a Tensor or None, not array"),
        ({"build": lambda self, g: (1, 2)}, r"main: expected a Tensor or None, not \(1, 2\)"),
        ({"graphs": lambda self: None}, "graphs: expected a dict of functions by name, not None"),
        ({"graphs": lambda self: [self.build]}, "graphs: expected a dict of functions by name, not "),
        ({"graphs": lambda self: {"main": 3}}, "graphs: expected a dict of functions by name, not "),
        ({"__init__": lambda self, hparams: None}, r"__init__: n_layer is missing; call super\(\).__init__\(hparams\)"),
    ],
    ids=["array", "tuple", "no graphs", "list", "number", "no super"],
)
def test_an_architecture_that_breaks_the_contract_is_named(path, members, message):
    mine = passed("architectures", llama=type("Mine", (Llama,), members))
    with pytest.raises(pumice.PluginError, match=rf"^architecture 'llama' \(plugin passed\): {message}"):
        pumice.load(path, backend="numpy", plugins=[mine])
