"""LoRA adapters and control vectors of a loaded model, added and removed while it answers requests."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import SupportsFloat

from pumice.config import AdapterOptions
from pumice.engine.messages import MAX_NAME, check_adapters, unknown_adapter, wrong_scale
from pumice.errors import ConfigError, RequestError
from pumice.frontend.engine import ModelEngine, check_open
from pumice.options.reading import SettingsReader
from pumice.wording import show_python


class Adapters(MutableMapping[str, float]):
    """The scale of each adapter for requests that give no ``adapters``, by name: ``model.adapters``.

    Running requests keep the adapters and scales with which they began; cached prompts are shared by equal scales only.
    """

    def __init__(self, engine: ModelEngine) -> None:
        self._engine = engine
        self._changing = threading.Lock()

    def add(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        scale: float = 1.0,
        layers: Sequence[int] = (),
    ) -> str:
        """Add the adapter of a file, which the next request can use. Requests wait while its kernels are prepared.

        Args:
            path: GGUF file of a LoRA adapter or of a control vector, or a folder of the package peft.
            name: Name in requests; None: the file's name without its ending.
            scale: Scale for requests that give none.
            layers: First and last layer that a control vector changes; empty: all that it has.

        Returns:
            The name.

        Raises:
            PumiceError: ModelError if the file does not fit the model, GGUFError if it cannot be read, RequestError for
                a name that exists or a wrong argument, BackendError if memory is short. The model is as before then.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise RequestError(f"path must be a path of a file or folder, not {show_python(path)}")
        chosen = Path(path).stem if name is None else name
        if not isinstance(chosen, str) or not 0 < len(chosen) <= MAX_NAME:
            raise RequestError(f"name must be a text of 1 to {MAX_NAME} characters, not {show_python(chosen)}")
        _check_scale(chosen, scale)
        given = {"file": os.path.abspath(path), "scale": scale, "layers": list(layers)}
        try:
            options = SettingsReader("adapters").record(AdapterOptions, given, chosen)
        except ConfigError as error:
            raise RequestError(str(error)) from None

        def added(adapters: dict[str, AdapterOptions]) -> dict[str, AdapterOptions]:
            if chosen in adapters:
                raise RequestError(f"adapters: {chosen!r} exists; remove it first, or give this one another name")
            return {**adapters, chosen: options}

        self._change(added)
        return chosen

    def __getitem__(self, name: str) -> float:
        return self._engine.config.adapters[name].scale

    def __setitem__(self, name: str, scale: float) -> None:
        _check_scale(name, scale)

        def scaled(adapters: dict[str, AdapterOptions]) -> dict[str, AdapterOptions]:
            options = self._known(adapters, name)
            return {**adapters, name: replace(options, scale=float(scale))}

        self._change(scaled)

    def __delitem__(self, name: str) -> None:
        def removed(adapters: dict[str, AdapterOptions]) -> dict[str, AdapterOptions]:
            self._known(adapters, name)
            return {other: options for other, options in adapters.items() if other != name}

        self._change(removed)

    def __iter__(self) -> Iterator[str]:
        return iter(self._engine.config.adapters)

    def __len__(self) -> int:
        return len(self._engine.config.adapters)

    def __repr__(self) -> str:
        return f"<adapters {dict(self)}>"

    def _change(self, changed: Callable[[dict[str, AdapterOptions]], dict[str, AdapterOptions]]) -> None:
        with self._changing:
            check_open(self._engine)
            self._engine.set_adapters(changed(self._engine.config.adapters))

    def _known(self, adapters: dict[str, AdapterOptions], name: str) -> AdapterOptions:
        if name not in adapters:
            raise unknown_adapter(name, adapters)
        return adapters[name]


def _check_scale(name: str, scale: object) -> None:
    """Raise RequestError unless an adapter's scale is a finite number."""
    if isinstance(scale, (bool, str)) or not isinstance(scale, SupportsFloat):
        raise wrong_scale(name, scale)
    check_adapters({name: float(scale)})
