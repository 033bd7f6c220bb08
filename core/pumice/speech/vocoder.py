"""The vocoder of a model that speaks: a second model, which turns audio codes into frames of sound."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pumice.config import Config, Layer, merge_layers
from pumice.errors import ModelClosedError, ModelError, RequestError
from pumice.hub.projectors import OFF, find_vocoder
from pumice.speech.waveform import samples_per_frame, waveform

ARCHITECTURE = "wavtokenizer-dec"
MOST_CODES = 2304  # that are decoded at once: 30 seconds, and the rest of a word
NO_VOCODER = (
    "this model has no vocoder, which turns its audio codes into sound: put one file *wavtokenizer*.gguf beside it, or "
    "give it by the option vocoder"
)


class CodeModel(Protocol):
    """The interface of a loaded vocoder."""

    @property
    def n_vocab(self) -> int: ...

    def embed(
        self, texts: Sequence[Sequence[int]], *, normalize: bool, pooling: Literal["none"]
    ) -> list[NDArray[np.float32]]: ...

    def close(self) -> None: ...


class Vocoder:
    """A loaded vocoder. One speech is decoded at a time.

    Attributes:
        n_codes: audio codes that it knows.
        samples_per_code: samples of each.
    """

    def __init__(self, model: CodeModel, width: int, path: Path) -> None:
        """Raises ModelError for frames that are no spectra."""
        self.n_codes, self.samples_per_code = model.n_vocab, samples_per_frame(width)
        if not self.samples_per_code:
            raise ModelError(f"{path}: not a vocoder: its frames have {width} values, which are no spectrum")
        self._model = model
        self._thread = ThreadPoolExecutor(1, "pumice-vocoder")

    def decode(self, codes: Sequence[int]) -> Future[NDArray[np.float32]]:
        """Return the samples of codes ``[n * samples_per_code]``, which a thread computes. Raises RequestError."""
        check_codes(codes, self.n_codes)
        return self._thread.submit(self._decode, list(codes))

    def _decode(self, codes: list[int]) -> NDArray[np.float32]:
        (frames,) = self._model.embed([codes], normalize=False, pooling="none")
        samples = waveform(frames)
        if not np.isfinite(samples).all():
            raise RequestError("speech: a sample is not a finite number; the vocoder's file may be damaged")
        return samples

    def close(self) -> None:
        """Free the memory, after the speech that is being decoded."""
        self._thread.shutdown(cancel_futures=True)
        self._model.close()


class LazyVocoder:
    """The vocoder of a model's file, opened on first use. Thread-safe.

    Args:
        model: the file of the model that speaks.
        config: its configuration.
        open: opens a vocoder's file.
    """

    def __init__(self, model: Path, config: Config, open: Callable[[Path, Config], Vocoder]) -> None:
        self._model = model
        self._config = config
        self._open = open
        self._lock = threading.Lock()
        self._vocoder: Vocoder | None = None
        self._closed = False

    @property
    def is_there(self) -> bool:
        """True if there is a file to open."""
        return find_vocoder(self._model, self._config.vocoder) is not None

    def __call__(self) -> Vocoder:
        """Return the vocoder.

        Raises:
            RequestError: there is none.
            ModelError: the file is no vocoder.
            ModelClosedError: after ``close``.
        """
        with self._lock:
            if self._closed:
                raise ModelClosedError("the model is closed")
            if self._vocoder is None:
                path = find_vocoder(self._model, self._config.vocoder)
                if path is None:
                    raise RequestError(NO_VOCODER)
                self._vocoder = self._open(path, vocoder_config(self._config))
            return self._vocoder

    def close(self) -> None:
        """Close the vocoder if it is open; it cannot be opened again."""
        with self._lock:
            self._closed = True
            if self._vocoder is not None:
                self._vocoder.close()
                self._vocoder = None


def vocoder_config(config: Config) -> Config:
    """Return the configuration of a vocoder: without what fits the model that speaks, and for one speech at a time."""
    alone = {"mmproj": OFF, "vocoder": OFF, "draft": "", "chat_template": "", "speculate": "off"}
    caches = {"cache_ram": 0, "cache_disk": "", "cache_saved": ""}
    sizes = {"n_ctx": MOST_CODES, "n_batch": MOST_CODES, "n_parallel": 1, "fit": False}
    own = merge_layers([*config.layers, Layer("vocoder", {**alone, **caches, **sizes})])
    return replace(own, adapters={}, override_kv={})  # layers of mappings are merged


def check_codes(codes: Sequence[int], n_codes: int) -> None:
    """Raise RequestError for codes that a vocoder does not know, for none, and for too many."""
    if not 1 <= len(codes) <= MOST_CODES:
        raise RequestError(f"speech: {len(codes)} audio codes; 1 to {MOST_CODES} are decoded at once")
    if not 0 <= min(codes) <= max(codes) < n_codes:
        raise RequestError(f"speech: an audio code is none of the vocoder's {n_codes}: it is that of another model")
