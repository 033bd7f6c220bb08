"""The definition of every option: name, type, bounds, default, meaning, command-line flags, group. Each stands once.

``definitions`` has a ``TypedDict`` for each set of options, whose keys carry an ``Option``. Type checkers and editors
read the classes: ``def generate(self, prompt, **options: Unpack[GenerateOptions])``. Everything else derives from the
tables here, which hold the same options by name:

========== ==================================================== =======================================
table      class                                                taken by
========== ==================================================== =======================================
SAMPLING   ``SamplingOptions``, parameters of bundled samplers  ``generate``, configuration: ``sampling``
OUTPUT     ``OutputOptions``, the form of the text              ``generate``, a request's body
REQUEST    ``RequestOptions`` and ``n``, the rest of a request  ``generate``, ``engine.Request``
QUEUE      ``QueueOptions``, those of any request                ``embed``, ``rerank``, ``score``, ``hidden``
GENERATE   ``GenerateOptions``: these three, and ``sampling``   ``generate``, ``stream``
TEMPLATE   ``TemplateOptions``                                  ``template.apply``, ``ChatRequest``
CHAT       ``ChatOptions``: ``GENERATE`` and ``TEMPLATE``       ``chat``, ``chat_stream``
ENGINE     ``EngineOptions``                                    ``pumice.load``, configuration files
========== ==================================================== =======================================

How to use a table::

    option = SAMPLING["temperature"]
    option.flags                  # ("--temp", "--temperature"): the first one in --help, the others as hidden aliases
    option.group, option.meaning  # "Sampling", "Temperature: above 1 flattens ..."
    option.type, option.limits    # float, {"ge": 0}
    option.default                # 0.8
    option.check(-1)              # RequestError: temperature must be a number, at least 0, not -1

To add an option, add a key and its meaning to a class in ``definitions``. A request's option also needs a field of
``engine.Request``, one of a chat a field of ``ChatRequest``, one of the engine a field of ``Config`` and its default in
registry.yaml; tests/core/test_options.py says what is missing. Parameters of samplers from other plugins have no key
here: they are given as ``sampling={"name": value}``.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from pumice.errors import RequestError
from pumice.options.definitions import (
    RNG,
    Algorithm,
    ChatOptions,
    CountedOptions,
    EngineOptions,
    GenerateOptions,
    KVType,
    OutputOptions,
    QueueOptions,
    RequestOptions,
    SamplingOptions,
    TemplateOptions,
)
from pumice.options.functions import LayerFunction, LogitsProcessor, StoppingCriteria
from pumice.options.option import Option, documented, read_options, show_type

__all__ = [
    "CHAT",
    "ENGINE",
    "GENERATE",
    "OUTPUT",
    "QUEUE",
    "REQUEST",
    "RNG",
    "SAMPLING",
    "TEMPLATE",
    "Algorithm",
    "ChatOptions",
    "CountedOptions",
    "EngineOptions",
    "GenerateOptions",
    "KVType",
    "LayerFunction",
    "LogitsProcessor",
    "Option",
    "OutputOptions",
    "QueueOptions",
    "RequestOptions",
    "SamplingOptions",
    "SortedOptions",
    "StoppingCriteria",
    "TemplateOptions",
    "documented",
    "merge_options",
    "read_options",
    "show_type",
    "sort_options",
]

SAMPLING = read_options(SamplingOptions)
OUTPUT = read_options(OutputOptions)
TEMPLATE = read_options(TemplateOptions)
ENGINE = read_options(EngineOptions)
_COUNTED = read_options(CountedOptions, GenerateOptions, RequestOptions, OutputOptions, SamplingOptions)
REQUEST = {name: _COUNTED[name] for name in _COUNTED if name not in {*OUTPUT, *SAMPLING, "sampling"}}
QUEUE = {name: REQUEST[name] for name in QueueOptions.__annotations__}
GENERATE = {name: _COUNTED[name] for name in _COUNTED if name != "n"}
CHAT = {**TEMPLATE, **GENERATE}


class SortedOptions(NamedTuple):
    """Keywords of a request or a chat by what takes them. Unknown names are parameters of samplers."""

    request: dict[str, Any]
    output: dict[str, Any]
    template: dict[str, Any]
    sampling: dict[str, Any]


_PART = {**dict.fromkeys(REQUEST, 0), **dict.fromkeys(OUTPUT, 1), **dict.fromkeys(TEMPLATE, 2)}


def sort_options(options: Mapping[str, Any]) -> SortedOptions:
    """Sort keywords; those of samplers take precedence over ``sampling``, whose names are parameters of samplers.

    Raises:
        RequestError: ``sampling`` is no mapping, or has an option that is no parameter of a sampler.
    """
    parts = SortedOptions({}, {}, {}, {})
    for name, value in options.items():
        if name != "sampling":
            parts[_PART.get(name, 3)][name] = value
    named = _sampling(options)
    for name in named:
        if name in _PART:
            raise RequestError(f"sampling: {name} is no parameter of a sampler: give it as a keyword")
    return parts._replace(sampling={**named, **parts.sampling})


def merge_options(shared: Mapping[str, Any], single: Mapping[str, Any]) -> dict[str, Any]:
    """Return shared options with those of a single request, which take precedence in keywords and in ``sampling``.

    Raises:
        RequestError: ``sampling`` is no mapping.
    """
    named = _sampling(single)
    kept = {name: value for name, value in shared.items() if name not in named}
    sampling = {**_sampling(shared), **named}
    return {**kept, **single, **({"sampling": sampling} if sampling else {})}


def _sampling(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters in the option ``sampling``."""
    params = options.get("sampling")
    if params is None:
        return {}
    GENERATE["sampling"].check(params)
    return cast("Mapping[str, Any]", params)
