"""LoRA adapters and control vectors: an error, or float32 pairs and directions with the shapes in the file."""

from collections.abc import Iterable
from struct import pack

import numpy as np

import gguf_bytes as raw
from fuzz.files import scratch
from pumice.adapters.adapter import is_control_vector, read_adapter, read_control_vector
from pumice.errors import GGUFError, ModelError
from pumice.gguf import GGUFFile

MODULES = ("pumice.adapters.adapter",)
MAX_LEN = 1200
TOKENS = (
    b"general.type", b"general.architecture", b"adapter.type", b"adapter.lora.alpha",
    b"adapter.alora.invocation_tokens", b"controlvector", b"direction.1", b".lora_a", b".lora_b", b"token_embd.weight",
    b"_norm.weight", b"llama", b"lora",
)  # fmt: skip


def seeds() -> Iterable[bytes]:
    text = raw.STRING
    lora = [
        raw.entry("general.type", text, raw.string("adapter")),
        raw.entry("adapter.type", text, raw.string("lora")),
        raw.entry("general.architecture", text, raw.string("llama")),
    ]
    tensors = [raw.tensor("blk.0.w.lora_a", [4, 2]), raw.tensor("blk.0.w.lora_b", [2, 3], 0, 32)]
    for alpha in (
        raw.entry("adapter.lora.alpha", raw.F32, pack("<f", 16)),
        raw.entry("adapter.lora.alpha", text, raw.string("x")),
    ):
        yield raw.gguf([*lora, alpha], tensors, bytes(range(64)))
    vector = [raw.entry("general.architecture", text, raw.string("controlvector"))]
    yield raw.gguf(vector, [raw.tensor("direction.1", [4]), raw.tensor("direction.2", [4], 0, 32)], bytes(64))


def check(data: bytes) -> None:
    try:
        file = GGUFFile.open(scratch("adapter.gguf", data))
        adapter = read_control_vector(file, 4) if is_control_vector(file) else read_adapter(file, "llama")
    except (ModelError, GGUFError) as error:
        assert str(error).isprintable(), str(error)
        return
    assert adapter.pairs or adapter.directions
    for name, pair in adapter.pairs.items():
        assert pair.down.dtype == pair.up.dtype == np.float32
        pair.fits(name, (3, 4))
    for direction in adapter.directions.values():
        assert direction.shape == (4,)
