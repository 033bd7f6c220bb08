"""Unexpected exceptions of plugins name plugin, name and method; results of plugins are checked."""

import logging
import re
from types import SimpleNamespace

import numpy as np
import pytest

import pumice
from installed_plugins import passed
from pumice.engine.media.encoders import checked_parts
from pumice.model_files.tokenizer import LazyTokenizer
from pumice.plugin import PreTokenizer, Selector
from pumice.plugin.unstable import ImagePiece, Pending
from pumice.tokenizers import TOKENIZERS
from pumice.tokenizers.spm import SPMTokenizer
from pumice_architectures.llama import Llama
from pumice_numpy import NumpyBackend
from tokenizer_fixtures import metadata

pytestmark = pytest.mark.usefixtures("home")


def fail(*arguments: object, **options: object) -> None:
    raise RuntimeError("two\nlines")


def lose_device(self: object) -> None:
    raise pumice.BackendError("the device is lost")


def backend(**methods: object) -> type:
    return type("Faulty", (NumpyBackend,), methods)


def program(**methods: object) -> type:
    """A backend whose programs have these methods."""

    def compile(self, segment, plan, limits):
        made = NumpyBackend.compile(self, segment, plan, limits)
        made.__class__ = type("FaultyProgram", (type(made),), methods)
        return made

    return backend(compile=compile)


def misshape(self, step):
    real = super(type(self), self).run(step)
    return {name: np.zeros((2, 3)) for name in real}


def bend(change):
    return lambda self, step: {name: change(array) for name, array in super(type(self), self).run(step).items()}


@pytest.mark.parametrize(
    ("faulty", "error"),
    [
        (backend(unavailable=classmethod(fail)), "unavailable: RuntimeError: two lines"),
        (backend(__init__=fail), "__init__: RuntimeError: two lines"),
        (backend(supports=fail), "supports: RuntimeError: two lines"),
        (backend(rewrite=fail), "rewrite: RuntimeError: two lines"),
        (backend(free_memory=fail), "free_memory: RuntimeError: two lines"),
        (backend(compile=fail), "compile: RuntimeError: two lines"),
        (backend(compile=lambda *_: None), "compile: expected a Program, not None"),
        (program(memory=5), "memory: AttributeError: 'int' object has no attribute 'items'"),
        (program(run=fail), "run: RuntimeError: two lines"),
        (program(run=lambda self, step: None), "run: returned no array for %"),
        (program(run=lambda self, step: {}), "run: returned no array for %"),
        (program(run=misshape), "run: returned an array of shape [2, 3] for %"),
        (program(run=bend(np.float64)), "run: returned float64, not float32, for %"),
        (program(run=bend(lambda array: array[:0])), "run: returned an array of shape [0, 300] for %"),
        (program(submit=fail), "submit: RuntimeError: two lines"),
        (program(submit=lambda self, step: Pending()), "submit: NotImplementedError"),
        (program(submit=lambda self, step: None), "submit: expected a Pending, not None"),
    ],
)
def test_a_backend(path, faulty, error):
    plugins = [passed("backends", "buggy", faulty=faulty)]
    with pytest.raises(pumice.PluginError) as caught, pumice.load(path, backend="faulty", plugins=plugins) as model:
        model.logits([1])
    assert str(caught.value).startswith("backend 'faulty' (plugin buggy): ")
    assert error in str(caught.value)


@pytest.mark.parametrize("broken", [backend(unavailable=classmethod(fail)), backend(__init__=fail)])
def test_auto_goes_on_without_a_backend_that_fails(path, caplog, broken):
    plugins = [passed("backends", "buggy", faulty=broken)]
    with caplog.at_level(logging.WARNING):
        model = pumice.load(path, plugins=plugins, config={"backends": ["faulty", "numpy"]})
    with model:
        assert model.backends == ["numpy"]
    assert "backend 'faulty' (plugin buggy): " in caplog.text
    assert "RuntimeError: two lines; continuing without it" in caplog.text


@pytest.mark.parametrize("kind", [program, backend])
@pytest.mark.parametrize(
    ("close", "message"),
    [(fail, r"backend 'faulty' .plugin buggy.: \w+: RuntimeError: two lines"), (lose_device, "the device is lost")],
)
def test_an_error_of_closing_is_logged(path, caplog, kind, close, message):
    pumice.load(path, backend="faulty", plugins=[passed("backends", "buggy", faulty=kind(close=close))]).close()
    assert re.search(message, caplog.text)


@pytest.mark.parametrize("method", ["__init__", "build", "tensors"])
def test_an_architecture(path, method):
    plugins = [passed("architectures", "buggy", llama=type("Faulty", (Llama,), {method: fail}))]
    with pytest.raises(pumice.PluginError) as caught:
        pumice.load(path, plugins=plugins)
    assert str(caught.value) == f"architecture 'llama' (plugin buggy): {method}: RuntimeError: two lines"


class Choosing(Selector):
    def apply(self, candidates):
        candidates.select(0)


@pytest.mark.parametrize(
    ("methods", "error"),
    [
        ({"start": fail}, "Faulty: start: RuntimeError: two lines"),
        ({"apply": fail}, "Faulty: apply: RuntimeError: two lines"),
        ({"accept": fail}, "Faulty: accept: RuntimeError: two lines"),
    ],
)
def test_a_sampler(path, methods, error):
    plugins = [passed("samplers", "buggy", faulty=type("Faulty", (Choosing,), {**methods, "__module__": "buggy"}))]
    with (
        pumice.load(path, backend="numpy", plugins=plugins, config={"samplers": ["faulty"]}) as model,
        pytest.raises(pumice.PluginError) as caught,
    ):
        model.generate([1], max_tokens=3)
    assert str(caught.value) == f"sampler buggy.{error}"


@pytest.mark.parametrize("parts", [[], ["text"], [3], [ImagePiece({"patches": [1.0]})], [ImagePiece({})]])
def test_parts_of_an_image(parts):
    with pytest.raises(TypeError, match=r"at least one ImagePiece|no array as its input patches"):
        checked_parts(lambda pixels: parts)(np.zeros((1, 1, 3), np.uint8))


def test_a_sampler_of_a_disabled_plugin(path):
    config = {"plugins": {"disabled": ["samplers"]}}
    with pumice.load(path, backend="numpy", config=config) as model:
        for use in (lambda: model.generate([1], max_tokens=1), lambda: model.sampling):
            with pytest.raises(pumice.PumiceError, match=r"unknown sampler .*; these plugins are disabled: samplers"):
                use()


@pytest.mark.parametrize(
    ("methods", "error"),
    [
        ({"__init__": fail}, "RuntimeError: two lines"),
        ({"_encode": fail}, "_encode: RuntimeError: two lines"),
        ({"_encode": lambda *_: None}, "_encode: TypeError: 'NoneType' object is not iterable"),
        ({"_encode": lambda *_: [1.5]}, "_encode: TypeError: 'float' object cannot be interpreted as an integer"),
        ({"_encode": lambda *_: [1, -1]}, "_encode: ValueError: returned -1, which is no token of 300"),
        ({"_decode": fail}, "_decode: RuntimeError: two lines"),
        ({"_decode": lambda *_: "text"}, "_decode: TypeError: expected bytes, not 'text'"),
    ],
)
def test_a_tokenizer(path, methods, error):
    faulty = type("Faulty", (SPMTokenizer,), {**methods, "__module__": "buggy"})
    with (
        pumice.load(path, backend="numpy", plugins=[passed("tokenizers", "buggy", llama=faulty)]) as model,
        pytest.raises(pumice.PluginError) as caught,
    ):
        model.tokenizer.detokenize(model.tokenizer.tokenize("a"))
    assert str(caught.value) == f"tokenizer buggy.Faulty: {error}"


def test_a_wrong_pattern_of_a_pre_tokenizer_is_an_error_before_the_first_text():
    rows = {"own": PreTokenizer(patterns=(r"\p{L}+", "(a"))}
    file = SimpleNamespace(metadata=metadata("bpe", pre="own"))
    with pytest.raises(pumice.PluginError, match=r"^pre-tokenizer 'own': Exception: .*unmatched parenthesis$"):
        LazyTokenizer(file, SimpleNamespace(tokenizers=TOKENIZERS, pre_tokenizers=rows)).prepare()
