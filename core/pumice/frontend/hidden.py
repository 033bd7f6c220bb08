"""Hidden states of layers, for texts in any form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pumice.errors import PromptTooLongError, RequestError
from pumice.frontend.engine import ModelEngine, check_open
from pumice.frontend.prompts import prompt_ids
from pumice.wording import show_python

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    LayerRows = dict[int | str, NDArray[np.float32]]


def hidden_states(
    engine: ModelEngine, texts: Sequence[object], layers: Sequence[int | str], adapters: Mapping[str, float] | None
) -> list[LayerRows]:
    """Return the rows of each text by layer, as ``Model.hidden``. Raises RequestError."""
    check_open(engine)
    if isinstance(layers, str) or not isinstance(layers, Sequence) or not layers:
        raise RequestError(f"hidden: layers must be a list of layers, not {show_python(layers)}")
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
    if not every:
        return []
    names = list(dict.fromkeys(map(str, layers)))
    rows = engine.hidden(every, layers, adapters)
    return [{layer: values[:, names.index(str(layer))] for layer in layers} for values in rows]
