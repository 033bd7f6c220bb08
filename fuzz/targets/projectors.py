"""Projectors with changed metadata: an error, or graphs whose largest result stays below a limit."""

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

import hearing_models
import vision_formulas
import vision_models
from fuzz.draw import Draw
from fuzz.files import folder
from gguf_files import write_gguf
from pumice.config import load_config
from pumice.convert import ConvertOptions
from pumice.engine.media.encoders import trace_projector
from pumice.errors import PumiceError
from pumice.gguf import GGMLType, GGUFFile
from pumice.graph import N_TOKENS, Graph
from pumice.model_files.opening import open_model
from pumice.registry import get_registry
from vision_files import write_projector

MODULES = ("pumice_architectures.hearing", "pumice_architectures.vision", "pumice.engine.media.projector")
MAX_LEN = 24
RUNS = 50
CASES = [
    *((vision_models, kind) for kind in ("dots3note", "gemma4", "granite4vision", "qwen25vl", "hunyuanvl")),
    *((hearing_models, kind) for kind in ("mimo", "granitespeech", "gemma4")),
    (vision_formulas, "cogvlm2"),
    (None, "mlp"),
]
"""Modules of the tests that write checkpoints, and the kind; without a module it is a file."""
MOST_BYTES = 6 << 30
"""Of one result of a graph: attention by a mask over all pairs of the most patches of a small encoder takes as many."""


def seeds() -> Iterable[bytes]:
    for i in range(len(CASES)):
        yield bytes([i, 3, 1, 200])
        yield bytes([i, 5, 2, 1, 2]) + bytes([i, 7, 2, 2, 0])


@cache
def stored(number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return metadata and tensors of a projector."""
    (module, kind), path = CASES[number], folder() / f"{number}"
    if module:
        module.write_folder(path, kind)
    else:
        write_projector(path, kind)
    with open_model(path, options=ConvertOptions(GGMLType.F32, mmproj=True)) as file:
        metadata = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in file.metadata.items()}
        return metadata, {name: tensor.dequantize() for name, tensor in file.tensors.items()}


def changed(value: Any, draw: Draw) -> Any:
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, list):
        return [changed(item, draw) for item in value[: 1 + draw.below(len(value) + 1)]] if value else value
    if isinstance(value, float):
        return float(draw.integer())
    return min(max(draw.integer(), 0), 2**31 - 1)


def largest(graph: Graph, n_rows: int) -> int:
    """Return the bytes of a graph's largest result at the most rows."""
    sizes = {N_TOKENS: n_rows, **graph.sizes}
    shapes = [node.output.shape for node in graph.nodes] + [tensor.shape for tensor in graph.inputs.values()]
    return max(4 * math.prod(sizes.get(n, 1) if isinstance(n, str) else int(n) for n in shape) for shape in shapes)


def check(data: bytes) -> None:
    draw = Draw(data)
    metadata, tensors = stored(draw.below(len(CASES)))
    keys = [key for key in metadata if key.startswith("clip.")]
    for _ in range(1 + draw.below(2)):
        key = draw.choice(keys)
        metadata = {**metadata, key: changed(metadata[key], draw)}
    path = write_gguf(folder() / "projector.gguf", metadata, tensors)
    config = load_config()
    with GGUFFile.open(path) as file:
        try:
            traced = trace_projector(file, get_registry(config))
        except PumiceError as error:
            assert str(error).isprintable(), str(error)
            return
    for encoder, graphs in traced:
        for n_rows, graph in zip([encoder.n_rows, *(stage.n_rows for stage in encoder.stages)], graphs, strict=True):
            assert largest(graph, n_rows) <= MOST_BYTES, (metadata, largest(graph, n_rows))
