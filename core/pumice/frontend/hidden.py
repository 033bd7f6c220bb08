"""Hidden states of layers, for texts in any form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from pumice.engine.messages import MAX_NAME, ReadLayers, Terms, check_adapters
from pumice.errors import PromptTooLongError, RequestError
from pumice.frontend.answer import Answer
from pumice.frontend.engine import ModelEngine, check_open
from pumice.frontend.prompts import prompt_ids
from pumice.wording import show_python

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    LayerRows = dict[int | str, NDArray[np.float32]]


def hidden_states(
    engine: ModelEngine,
    texts: Sequence[object],
    layers: Sequence[int | str],
    adapters: Mapping[str, float] | None,
    terms: Terms,
) -> Answer[list[LayerRows]]:
    """Return the answer of ``Model.hidden``: the rows of each text by layer."""
    chosen: dict[str, int | str] = {}

    def begin() -> Future[Sequence[NDArray[np.float32]]]:
        check_open(engine)
        if isinstance(layers, str) or not isinstance(layers, Sequence) or not layers:
            raise RequestError(f"hidden: layers must be a list of layers, not {show_python(layers)}")
        for layer in layers:
            if isinstance(layer, bool) or not isinstance(layer, (int, str)):
                raise RequestError(f"hidden: a layer is a number or a name, not {show_python(layer)}")
            if len(layer) > MAX_NAME if isinstance(layer, str) else not -(2**31) <= layer < 2**31:
                raise RequestError(f"hidden: the model has no layer {show_python(layer)}")
        check_adapters(adapters)
        every = _token_ids(engine, texts)
        chosen.update((str(layer), layer) for layer in layers)
        if every:
            return engine.client.ask(ReadLayers, every, list(chosen.values()), adapters, terms)
        future: Future[Sequence[NDArray[np.float32]]] = Future()
        future.set_result([])
        return future

    def by_layer(rows: Sequence[NDArray[np.float32]]) -> list[LayerRows]:
        places = list(chosen)
        return [{layer: values[:, places.index(str(layer))] for layer in layers} for values in rows]

    return Answer(begin, by_layer)


def _token_ids(engine: ModelEngine, texts: Sequence[object]) -> list[list[int]]:
    every: list[list[int]] = []
    for index, text in enumerate(texts):
        try:
            ids = prompt_ids(engine, text)
            if not ids:
                raise RequestError("hidden: the text has no tokens")
            if len(ids) > engine.facts.n_ctx:
                raise PromptTooLongError(len(ids), engine.facts.n_ctx)
        except RequestError as error:
            error.prompt_index = index if len(texts) > 1 else None
            raise
        every.append(ids)
    return every
