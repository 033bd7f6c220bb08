"""Steps of layers and models that draft tokens."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import pumice
from places import taken
from pumice.architecture import DRAFT, FEATURES, MAIN
from pumice.engine import Engine
from pumice.engine.requests.batches import Part, batch_of
from tiny_drafts import DRAFTS, FOR_TARGETS, features_of, hidden_of
from tiny_models import IDS, N_CTX, TinyModel
from tiny_zoo import ZOO

N = len(IDS)


class Step(NamedTuple):
    """Inputs of a graph: tokens of a sequence from a position on, and others."""

    graph: str
    ids: Sequence[int]
    first: int
    inputs: Mapping[str, np.ndarray] = {}


def run(path: Path, steps: Sequence[Step], backend: str = "numpy", **options: Any) -> list[dict[str, np.ndarray]]:
    """The outputs of each step of one sequence."""
    with pumice.load(path, backend=backend, kv_type="f32", n_ctx=N_CTX, speculate="off", **options) as model:
        return outputs(model, steps)


def outputs(model: pumice.Model, steps: Sequence[Step]) -> list[dict[str, np.ndarray]]:
    """The outputs of each step of one sequence."""

    def steps_of(engine: Engine) -> Generator[None, None, list[dict[str, np.ndarray]]]:
        found = []
        with taken(engine, N) as (place,):
            for graph, ids, first, inputs in steps:
                batch = batch_of(engine.cache, [Part(place, ids, first, range(len(ids)))])
                given = engine.runner.outputs(replace(batch, inputs=inputs), graph)
                found.append({key: value.copy() for key, value in given.items()})
                yield
        return found

    return model.engine.thread.call(steps_of)


def whole(found: Sequence[dict[str, np.ndarray]], name: str) -> np.ndarray:
    return np.concatenate([each[name] for each in found])


def after_hidden(graph: str, tiny: TinyModel, lengths: Sequence[int]) -> list[Step]:
    """IDS and hidden states before them, in so many tokens a step."""
    ends = np.cumsum(lengths)
    return [
        Step(graph, IDS[end - n : end], end - n, {"hidden": hidden_of(tiny)[end - n : end]})
        for n, end in zip(lengths, ends, strict=True)
    ]


def block(graph: str, tiny: TinyModel, lengths: Sequence[int]) -> list[Step]:
    """Features of the first tokens, in so many a step, then the last eight at once."""
    ends = np.cumsum(lengths)
    features = [
        Step(FEATURES, IDS[end - n : end], end - n, {"features": features_of(tiny)[end - n : end]})
        for n, end in zip(lengths, ends, strict=True)
    ]
    return [*features, Step(graph, IDS[-8:], N - 8)]


def steps_for(name: str) -> list[Step]:
    """Return the steps of a draft whose logits are compared with llama.cpp's; it may be loaded with its target."""
    tiny = DRAFTS[name]
    graph = DRAFT if name in FOR_TARGETS else MAIN
    if tiny.architecture == "dflash":
        return block(graph, tiny, [N - 8])
    if tiny.architecture == "gemma4-assistant":  # each is drafted from the last position that is cached
        drafts = [Step(DRAFT, [IDS[i]], N - 1, {"hidden": hidden_of(tiny)[i : i + 1]}) for i in range(N)]
        return [Step(MAIN, IDS, 0), *drafts]
    return after_hidden(graph, tiny, [7, 1, N - 8])


def logits_of(name: str, model: pumice.Model) -> np.ndarray:
    """Return the logits of the last rows of the steps."""
    steps = steps_for(name)
    found = outputs(model, steps)
    return whole([each for each, step in zip(found, steps, strict=True) if step.graph == steps[-1].graph], "logits")


def write(name: str, folder: Path) -> tuple[Path, dict[str, str]]:
    """The file to load for a draft, its target's or its own, and further configuration."""
    path = DRAFTS[name].write(folder / f"{name}.gguf")
    if name not in FOR_TARGETS:
        return path, {}
    target = FOR_TARGETS[name][0]
    return ZOO[target].write(folder / f"{name}-target.gguf"), {"draft": str(path), "speculate": "off"}
