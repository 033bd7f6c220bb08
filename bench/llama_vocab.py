"""llama.cpp's tokenizers, called through the C interface of llama-cpp-python."""

import ctypes
import tempfile
from pathlib import Path
from typing import Any

import gguf
from llama_cpp import llama_cpp


@llama_cpp.llama_log_callback
def _quiet(level: int, text: bytes, data: Any) -> None:
    pass


llama_cpp.llama_log_set(_quiet, None)
llama_cpp.llama_backend_init()


class LlamaVocab:
    """llama.cpp with only a vocabulary loaded."""

    def __init__(self, path: str | Path) -> None:
        params = llama_cpp.llama_model_default_params()
        params.vocab_only = True
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self.vocab = llama_cpp.llama_model_get_vocab(self._model)
        self._buffer = (ctypes.c_int32 * 10000)()

    @classmethod
    def from_metadata(cls, metadata: dict[str, Any]) -> "LlamaVocab":
        """Create the vocabulary described by ``metadata``."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "vocab.gguf"
            write_gguf(path, metadata)
            return cls(path)

    def __del__(self) -> None:
        if getattr(self, "_model", None):
            llama_cpp.llama_model_free(self._model)

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        data = text.encode()
        if len(data) + 2 > len(self._buffer):
            self._buffer = (ctypes.c_int32 * (2 * len(data)))()
        n = llama_cpp.llama_tokenize(
            self.vocab, data, len(data), self._buffer, len(self._buffer), add_special, parse_special
        )
        return self._buffer[:n]

    def piece(self, token: int, special: bool) -> bytes:
        """Return a token's text."""
        buffer = ctypes.create_string_buffer(1024)
        n = llama_cpp.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, special)
        return buffer.raw[:n]


def write_gguf(path: str | Path, metadata: dict[str, Any]) -> None:
    """Write a GGUF file without tensors, with the keys that llama.cpp requires of any model."""
    writer = gguf.GGUFWriter(path, "llama")
    for key in ("context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count"):
        writer.add_uint32(f"llama.{key}", 8)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    for key, value in metadata.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif key.endswith("precompiled_charsmap"):
            writer.add_key_value(key, list(value), gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT8)
        else:
            writer.add_array(key, value.tolist() if hasattr(value, "tolist") else value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
