"""The definitions of the options: what else states a type, bound or default of an option agrees with them."""

import dataclasses
import inspect
import typing
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import numpy as np
import pytest
import yaml
from annotated_types import Ge

import pumice
from pumice.chat import ChatRequest
from pumice.cli.vocabulary import SizeType
from pumice.config import Config, load_config
from pumice.engine import Request
from pumice.gguf import KV_TYPES
from pumice.grammar import Grammar, ReasoningBudget
from pumice.options import (
    CHAT,
    ENGINE,
    GENERATE,
    OUTPUT,
    REQUEST,
    RNG,
    SAMPLING,
    TEMPLATE,
    KVType,
    SamplingParams,
    merge_options,
    sort_options,
)
from pumice.plugin import Candidates, Sampler, hookimpl
from pumice.sampler.random import RNGS
from pumice_samplers import SAMPLERS

ROOT = Path(__file__).parents[2]
TABLES = {"GENERATE": GENERATE, "REQUEST": REQUEST, "TEMPLATE": TEMPLATE, "ENGINE": ENGINE}


def default(field: dataclasses.Field) -> object:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


@pytest.mark.parametrize("table", TABLES)
def test_every_option_is_described(table):
    for name, option in TABLES[table].items():
        assert option.name == name
        assert option.meaning.endswith("."), name
        assert option.group, name
        assert all(flag.startswith("-") for flag in option.flags), name


@pytest.mark.parametrize("table", [GENERATE, CHAT, ENGINE], ids=["generate", "chat", "engine"])
def test_every_flag_means_one_option(table):
    flags = [flag for option in table.values() for flag in option.flags]
    assert len(flags) == len(set(flags))


@pytest.mark.parametrize("name", SAMPLERS)
def test_parameters_of_bundled_samplers_are_defined(name):
    hints = typing.get_type_hints(SAMPLERS[name], include_extras=True)
    for field in dataclasses.fields(SAMPLERS[name]):
        option = SAMPLING[field.name]
        assert default(field) == option.default
        bounds = getattr(hints[field.name], "__metadata__", ())
        if name != "greedy" and field.name != "seed":  # other samplers and the context check these
            assert bounds_of(bounds) == dict(option.limits), field.name


def bounds_of(metadata: tuple) -> dict[str, float]:
    keys = ("ge", "gt", "le", "lt")
    return {key: getattr(bound, key) for bound in metadata for key in keys if getattr(bound, key, None) is not None}


def test_every_sampling_option_is_a_parameter_of_a_bundled_sampler():
    assert SAMPLING.keys() == {field.name for cls in SAMPLERS.values() for field in dataclasses.fields(cls)}
    assert typing.get_args(RNG) == tuple(RNGS)


def test_sampling_params_have_every_sampling_option():
    hints = typing.get_type_hints(SamplingParams)
    assert hints.pop("extra")
    assert hints == {name: option.type | None for name, option in SAMPLING.items()}


def test_requests_have_every_option():
    fields = {field.name: field for field in dataclasses.fields(Request)}
    assert fields.keys() == {*REQUEST, "prompt", "media", "sampling", "grammar", "budget", "end_tokens"}
    for name, option in REQUEST.items():
        assert default(fields[name]) == {"max_tokens": None, "stop": ()}.get(name, option.default), name
    hints = typing.get_type_hints(Request)
    assert hints["grammar"] == Grammar | None
    assert hints["budget"] == ReasoningBudget | None


def test_requests_of_chats_have_every_option():
    fields = {field.name: field for field in dataclasses.fields(ChatRequest)}
    assert fields.keys() == {*TEMPLATE, "messages", "media"}
    for name, option in TEMPLATE.items():
        assert default(fields[name]) == option.default, name


def test_the_configuration_has_every_option_with_its_default_and_bounds():
    defaults = yaml.safe_load((ROOT / "registry.yaml").read_text())
    assert Config.model_fields.keys() == {*ENGINE, "plugins"}
    for name, option in ENGINE.items():
        assert defaults[name] == option.default, name
        assert bounds_of(tuple(Config.model_fields[name].metadata)) == dict(option.limits), name
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


@pytest.mark.parametrize("value", ["x", "12 apples", "-1GiB", "nan", "", -1])
def test_wrong_sizes_are_refused(value):
    with pytest.raises(pumice.ConfigError, match="cache_ram: should be"):
        load_config({"cache_ram": value})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("temperature", -1, "temperature must be a number, at least 0, not -1"),
        ("temperature", True, "temperature must be a number, at least 0, not True"),
        ("temperature", float("nan"), "temperature must be a number, at least 0, not nan"),
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


def test_numbers_of_numpy_are_numbers():
    SAMPLING["top_k"].check(np.int64(3))
    SAMPLING["top_p"].check(np.float32(0.5))
    SAMPLING["temperature"].check(1)


def test_sampling_params_check_names_and_values():
    params = SamplingParams(temperature=0.5, top_k=3, extra={"no_repeat": 2})
    assert params.to_dict() == {"temperature": 0.5, "top_k": 3, "no_repeat": 2}
    assert repr(params) == "SamplingParams(temperature=0.5, top_k=3, extra={'no_repeat': 2})"
    assert dataclasses.replace(params, top_k=4).to_dict() == {"temperature": 0.5, "top_k": 4, "no_repeat": 2}
    with pytest.raises(
        pumice.RequestError, match="unknown sampling parameter 'temprature'; did you mean 'temperature'"
    ):
        SamplingParams(temprature=1)
    with pytest.raises(pumice.RequestError, match=r"unknown sampling parameter 'no_repeat'; .* belong into extra"):
        SamplingParams(no_repeat=1)
    with pytest.raises(pumice.RequestError, match="top_p must be a number, at least 0 and at most 1, not 3"):
        SamplingParams(top_p=3)


def test_keywords_are_sorted_by_what_takes_them():
    options = {"max_tokens": 3, "n": 2, "regex": "a", "tools": [], "temperature": 1.0, "no_repeat": 2}
    parts = sort_options(options)
    assert parts.request == {"max_tokens": 3, "n": 2}
    assert parts.output == {"regex": "a"}
    assert parts.template == {"tools": []}
    assert parts.sampling == {"temperature": 1.0, "no_repeat": 2}
    assert {*REQUEST, *OUTPUT, *SAMPLING, "sampling"} == {*GENERATE, "n"}


@pytest.mark.parametrize("params", [SamplingParams(top_k=1, seed=2), {"top_k": 1, "seed": 2}])
def test_keywords_take_precedence_over_sampling(params):
    assert sort_options({"sampling": params, "seed": 5}).sampling == {"top_k": 1, "seed": 5}
    with pytest.raises(pumice.RequestError, match="sampling must be SamplingParams or a mapping"):
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


@pytest.mark.parametrize("kind", [dict, pumice.SamplingParams])
def test_options_of_a_single_prompt_take_precedence(kind):
    shared = {"temperature": 0.8, "top_p": 0.5, "sampling": kind(seed=1, top_k=4), "max_tokens": 3}
    merged = merge_options(shared, {"sampling": kind(temperature=0, top_k=2), "seed": 5, "max_tokens": 7})
    parts = sort_options(merged)
    assert parts.sampling == {"temperature": 0, "top_p": 0.5, "seed": 5, "top_k": 2}
    assert parts.request == {"max_tokens": 7}
    assert sort_options(merge_options(shared, {})) == sort_options(shared)


def test_sampling_of_one_of_many_prompts_takes_precedence():
    with pumice.load(backend="cpu", n_ctx=256) as model:
        greedy = model.generate("Once", max_tokens=12, temperature=0)
        each = [{"sampling": {"temperature": 0}}, {}, {"sampling": pumice.SamplingParams(temperature=0)}]
        done = model.generate_many(["Once"] * 3, each=each, temperature=5.0, seed=3, max_tokens=12)
        assert [one.tokens == greedy.tokens for one in done] == [True, False, True]
        with pytest.raises(pumice.RequestError, match="sampling") as error:
            model.generate_many(["Once"] * 2, each=[{}, {"sampling": 3}])
        assert error.value.prompt_index == 1


def test_parameters_of_other_samplers_are_given_in_sampling():
    config = {"samplers": ["favourite", "temperature", "greedy"]}
    with pumice.load(n_ctx=64, backend="numpy", config=config, plugins=[Plugin()]) as model:
        for params in ({"favourite": 5}, SamplingParams(extra={"favourite": 5})):
            assert model.generate([1], sampling=params, temperature=0, max_tokens=2).tokens == [5, 5]
        assert model.generate([1], favourite=5, temperature=0, max_tokens=2).tokens == [
            5,
            5,
        ]  # checked at run time only
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
            model.apply_template([{"role": "user", "content": "Hi"}], tool=[])
    with pytest.raises(pumice.ConfigError, match="arguments: unknown key 'n_paralel'; did you mean 'n_parallel'"):
        pumice.load(n_paralel=2)


def test_values_are_those_of_their_types():
    """NumPy's numbers, tuples and other mappings are what the types of the options allow."""
    options = {"top_k": np.int64(3), "top_p": np.float32(0.5), "max_tokens": np.int64(2), "stop_tokens": {5}}
    options |= {"logit_bias": MappingProxyType({np.int64(7): np.float32(50)}), "dry_sequence_breakers": ("a", "b")}
    with pumice.load(n_ctx=64, backend="numpy") as model:
        assert model.generate([1], dry_multiplier=0.1, **options).tokens == [7, 7]


def test_loading_takes_every_key_of_the_configuration():
    params = SamplingParams(top_k=1, extra={"min_p": 0.5})
    with pumice.load(backend="numpy", n_ctx=64, max_queue=3, samplers=("top_k", "min_p", "dist"), sampling=params) as m:
        assert m.config.max_queue == 3
        assert m.config.samplers == ["top_k", "min_p", "dist"]
        assert m.sampling == {"top_k": 1, "min_p": 0.5, "min_keep": 0, "seed": -1, "rng": "pcg64"}


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
