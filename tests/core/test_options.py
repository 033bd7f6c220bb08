"""The definitions of the options: what else states a type, bound or default of an option agrees with them."""

import dataclasses
import inspect
import typing
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
import yaml
from annotated_types import Ge

import pumice
from pumice.cli.vocabulary import SizeType
from pumice.config import SETTINGS, load_config
from pumice.gguf import KV_TYPES
from pumice.options import CHAT, ENGINE, GENERATE, SAMPLING, KVType, merge_options, sort_options
from pumice.plugin import Candidates, Sampler, hookimpl

ROOT = Path(__file__).parents[2]


def default(field: dataclasses.Field) -> object:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def test_the_configuration_has_every_option_with_its_default():
    defaults = yaml.safe_load((ROOT / "registry.yaml").read_text())
    assert SETTINGS.keys() == {*ENGINE, "plugins"}
    for name, option in ENGINE.items():
        assert defaults[name] == option.default, name
    assert typing.get_args(KVType) == tuple(KV_TYPES)


@pytest.mark.parametrize(
    ("name", "value", "size"),
    [
        ("cache_ram", 100, 100),
        ("cache_ram", "100", 100),
        ("cache_ram", "2GiB", 2048),
        ("cache_ram", "1.5 MB", 1),
        ("fit_target", "1g", 1024),
        ("cache_disk_limit", 0.5, 0.5),
        ("cache_disk_limit", "16", 16.0),
        ("cache_disk_limit", "512MiB", 0.5),
        ("memory_limit", "2T", 2048.0),
    ],
)
def test_sizes_are_numbers_in_the_unit_of_the_option_or_have_a_unit(name, value, size):
    assert getattr(load_config({name: value}), name) == size
    option = SizeType(ENGINE[name].unit, whole=isinstance(size, int))
    assert option.convert(str(value), None, None) == size


@pytest.mark.parametrize("value", ["x", "12 apples", "-1GiB", "nan", "", "9" * 5000, "9" * 5000 + "GiB", -1])
def test_wrong_sizes_are_refused(value):
    with pytest.raises(pumice.ConfigError, match="cache_ram: should be"):
        load_config({"cache_ram": value})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("temperature", -1, "temperature must be a number, at least 0, not -1"),
        ("temperature", True, "temperature must be a number, at least 0, not True"),
        ("top_p", 2, "top_p must be a number, at least 0 and at most 1, not 2"),
        ("top_k", 1.5, "top_k must be an integer, at least -1, not 1.5"),
        ("rng", "dice", "rng must be one of pcg64, mt19937, not 'dice'"),
        ("rng", ["pcg64"], "rng must be one of pcg64, mt19937, not"),
        ("logit_bias", {"a": 1}, "logit_bias must be a mapping of token ids to numbers, not {'a': 1}"),
        ("dry_sequence_breakers", "ab", "dry_sequence_breakers must be a list of strings, not 'ab'"),
        ("ignore_eos", 1, "ignore_eos must be true or false, not 1"),
    ],
)
def test_a_value_is_checked_by_its_definition(name, value, message):
    with pytest.raises(pumice.RequestError) as error:
        SAMPLING[name].check(value)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("name", CHAT)
def test_every_option_refuses_values_of_other_types(name):
    for value in (object(), 10**5000, float("nan")):  # the second has more digits than Python writes
        with pytest.raises(pumice.RequestError, match=f"^{name} must be [^\n]*$"):
            CHAT[name].check(value)


def test_keywords_take_precedence_over_sampling():
    params = {"top_k": 1, "seed": 2}
    assert sort_options({"sampling": params, "seed": 5}).sampling == {"top_k": 1, "seed": 5}
    with pytest.raises(pumice.RequestError, match="sampling must be a mapping"):
        sort_options({"sampling": 5})
    with pytest.raises(pumice.RequestError, match="sampling: max_tokens is no parameter of a sampler: give it as a k"):
        sort_options({"sampling": {"max_tokens": 5}})


@dataclasses.dataclass
class Favourite(Sampler):
    """A sampler of another plugin: its parameter is no option that Pumice knows."""

    favourite: Annotated[int, Ge(-1)] = -1

    def apply(self, candidates: Candidates) -> None:
        if self.favourite >= 0:
            candidates.logits[candidates.positions(np.array([self.favourite]))] = 1e4


class Plugin:
    @hookimpl
    def pumice_register_samplers(self, register):
        register("favourite", Favourite)


def test_options_of_a_single_prompt_take_precedence():
    shared = {"temperature": 0.8, "top_p": 0.5, "sampling": {"seed": 1, "top_k": 4}, "max_tokens": 3}
    merged = merge_options(shared, {"sampling": {"temperature": 0, "top_k": 2}, "seed": 5, "max_tokens": 7})
    parts = sort_options(merged)
    assert parts.sampling == {"temperature": 0, "top_p": 0.5, "seed": 5, "top_k": 2}
    assert parts.request == {"max_tokens": 7}
    assert sort_options(merge_options(shared, {})) == sort_options(shared)


def test_sampling_of_one_of_many_prompts_takes_precedence():
    with pumice.load(backend="cpu", n_ctx=256) as model:
        greedy = model.generate("Once", max_tokens=12, temperature=0)
        each = [{"sampling": {"temperature": 0}}, {}, {"temperature": 0}]
        done = model.generate_many(["Once"] * 3, each=each, temperature=5.0, seed=3, max_tokens=12)
        assert [one.tokens == greedy.tokens for one in done] == [True, False, True]
        with pytest.raises(pumice.RequestError, match="sampling") as error:
            model.generate_many(["Once"] * 2, each=[{}, {"sampling": 3}])
        assert error.value.prompt_index == 1


def test_parameters_of_other_samplers_are_given_in_sampling():
    config = {"samplers": ["favourite", "temperature", "greedy"]}
    with pumice.load(n_ctx=64, backend="numpy", config=config, plugins=[Plugin()]) as model:
        assert model.generate([1], sampling={"favourite": 5}, temperature=0, max_tokens=2).tokens == [5, 5]
        assert model.generate([1], favourite=5, temperature=0, max_tokens=2).tokens == [5, 5]
        assert model.generate([1], sampling={"favourite": 5}, favourite=6, temperature=0, max_tokens=1).tokens == [6]
        with pytest.raises(pumice.RequestError, match="favourite must be an integer, at least -1, not 'x'"):
            model.generate([1], sampling={"favourite": "x"})
        with pytest.raises(pumice.RequestError, match="unknown option 'favorite'; did you mean 'favourite'"):
            model.generate([1], sampling={"favorite": 5})


def test_a_wrong_name_is_an_error_that_names_the_nearest():
    with pumice.load(n_ctx=64, backend="numpy") as model:
        for options in ({"temprature": 1}, {"sampling": {"temprature": 1}}):
            with pytest.raises(pumice.RequestError, match="unknown option 'temprature'; did you mean 'temperature'"):
                model.generate([1], **options)
        with pytest.raises(pumice.RequestError, match="unknown option 'progres'; did you mean 'progress'"):
            model.generate([1], progres=print)
        with pytest.raises(pumice.RequestError, match="unknown option 'max_token'; did you mean 'max_tokens'"):
            model.chat([{"role": "user", "content": "Hi"}], max_token=1)
        with pytest.raises(pumice.RequestError, match="tools is an option of chats: use chat or chat_stream"):
            model.generate([1], tools=[])
        with pytest.raises(pumice.RequestError, match="unknown option 'tool'; did you mean 'tools'"):
            model.template.apply([{"role": "user", "content": "Hi"}], tool=[])
        for call in (model.embed, model.hidden, model.logits, model.rerank, model.score):
            with pytest.raises(pumice.RequestError, match="unknown option 'adapter'; did you mean 'adapters'"):
                call([1], [0], adapter={}) if call in (model.hidden, model.rerank) else call([1], adapter={})
    with pytest.raises(pumice.ConfigError, match="arguments: unknown key 'n_paralel'; did you mean 'n_parallel'"):
        pumice.load(n_paralel=2)


@pytest.mark.parametrize("method", ["generate", "agenerate", "stream", "astream", "generate_many", "request", "chat"])
def test_help_and_completion_show_every_option(method):
    function = getattr(pumice.Model, method)
    options = CHAT if method == "chat" else GENERATE
    parameters = inspect.signature(function).parameters
    for name, option in options.items():
        assert f"    {name} ({option.type_text}, default" in function.__doc__
        assert option.meaning[:40] in " ".join(function.__doc__.split())
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    assert len(str(inspect.signature(function))) < 200
    assert parameters["max_tokens"].default == (None if method == "chat" else 128)
