"""Make the table of model families in docs/families.md: what was compared with llama.cpp, and how near each backend is.

    python tests/make_fixtures/families.py [ARCHITECTURE...]    (minutes, most of them for a software Vulkan device)

Architectures that are not named keep their errors.
"""

import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

import pumice  # noqa: E402
import tiny_encoders  # noqa: E402
import tiny_t5  # noqa: E402
from checkpoints import FIXTURES, PROMPT, ROWS, checkpoint_of  # noqa: E402
from draft_steps import logits_of, write  # noqa: E402
from pumice.graph import GraphBuilder  # noqa: E402
from pumice.lazy import resolve  # noqa: E402
from pumice.model_files.opening import open_model  # noqa: E402
from pumice.plugin import HParams  # noqa: E402
from pumice.plugin.unstable import ArraySource  # noqa: E402
from pumice_architectures import ARCHITECTURES  # noqa: E402
from pumice_architectures.conversions import CONVERSIONS  # noqa: E402
from reference_models import error  # noqa: E402
from tiny_drafts import DRAFTS, FOR_TARGETS  # noqa: E402
from tiny_encoders import encoded  # noqa: E402
from tiny_models import N_CTX  # noqa: E402
from tiny_zoo import ZOO  # noqa: E402

ALL = ZOO | tiny_encoders.MODELS | DRAFTS | tiny_t5.MODELS
CASES = json.loads((FIXTURES / "cases.json").read_text())
LOGITS = np.load(FIXTURES / "logits.npz")

DOCS = TESTS.parent / "docs" / "families.md"
BEGIN, END = "<!-- families -->\n", "<!-- end of families -->\n"
BACKENDS = ("numpy", "cpu", "vulkan")
HEADER = "| architecture | keys beyond Llama's | tiny models | NumPy | CPU | Vulkan |\n" + "| --- " * 6 + "|\n"
UNKNOWN = ["?"] * len(BACKENDS)


def main(wanted: list[str]) -> None:
    os.environ["PUMICE_VULKAN_SOFTWARE"] = "1"
    before, table, after = parts(DOCS.read_text())
    errors = known_errors(table)
    for architecture in wanted or ARCHITECTURES:
        errors[architecture] = [measured(architecture, backend) for backend in BACKENDS]
        print(architecture, *errors[architecture], file=sys.stderr)
    DOCS.write_text(before + HEADER + "".join(rows(errors)) + after)


def parts(text: str) -> tuple[str, str, str]:
    """The page before the table, the table, and the rest."""
    start, stop = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:start], text[start:stop], text[stop:]


def known_errors(table: str) -> dict[str, list[str]]:
    """The last three cells of each architecture's row."""
    found = re.findall(r"^\| `(.+?)` \|.*?((?: \| [^|]+){3}) \|$", table, re.MULTILINE)
    return {architecture: cells.split(" | ")[1:] for architecture, cells in found}


def rows(errors: dict[str, list[str]]) -> Iterator[str]:
    usual = keys_of("llama") | keys_of("gpt2")
    for architecture in sorted(ARCHITECTURES):
        keys = ", ".join(f"`{key}`" for key in sorted(keys_of(architecture) - usual))
        cells = [f"`{architecture}`", keys or "-", ", ".join(models(architecture)), *errors.get(architecture, UNKNOWN)]
        yield f"| {' | '.join(cells)} |\n"


def models(architecture: str) -> list[str]:
    """The tiny models of a family; the checkpoints of one that llama.cpp does not have."""
    names = [name for name, model in ALL.items() if model.architecture == architecture]
    return names or [name for name in LOGITS.files if architecture_of(CASES[name]["config"]) == architecture]


def architecture_of(config: dict[str, Any]) -> str:
    return str(resolve(CONVERSIONS[config["architectures"][0]]).architecture)


def shapes_and_keys(name: str, folder: Path) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """The shapes of a tiny model's tensors, and its metadata."""
    if name in ALL:
        return ALL[name].shapes, ALL[name].keys()
    with open_model(checkpoint(name, folder)) as file:
        return {key: tensor.shape for key, tensor in file.tensors.items()}, dict(file.metadata)


def n_ctx(name: str) -> int:
    return N_CTX if name in ALL else 64


def checkpoint(name: str, folder: Path) -> Path:
    return checkpoint_of(folder / name, CASES[name])


def keys_of(architecture: str, names: Sequence[str] = ()) -> set[str]:
    """The metadata keys that the family looks for in these of its tiny models, or in any."""
    names = names or models(architecture)
    found = set()
    look = HParams._get

    def noted(hparams: HParams, key: str, default: object) -> object:
        found.add(key if hparams.architecture == architecture else f"{hparams.architecture}.{key}")
        return look(hparams, key, default)

    targets = {name: builder_of(target) for name, (target, _) in FOR_TARGETS.items() if name in names}
    with patch.object(HParams, "_get", noted), tempfile.TemporaryDirectory() as folder:
        for name in names:
            shapes, metadata = shapes_and_keys(name, Path(folder))
            tensors = {tensor: ArraySource(np.ones(shape)) for tensor, shape in shapes.items()}
            family = resolve(ARCHITECTURES[architecture])(HParams(metadata))
            g = None
            for build in family.graphs().values():
                g = GraphBuilder(tensors, family.n_layer, n_ctx(name), shared=g, target=targets.get(name))
                build(g)
    return found


def builder_of(name: str) -> GraphBuilder:
    """The builder of a model that is drafted for."""
    model = ZOO[name]
    tensors = {tensor: ArraySource(np.ones(shape)) for tensor, shape in model.shapes.items()}
    family = resolve(ARCHITECTURES[model.architecture])(HParams(model.keys()))
    g = GraphBuilder(tensors, family.n_layer, N_CTX)
    family.build(g)
    return g


def measured(architecture: str, backend: str) -> str:
    """The largest error of its models, rounded up to a power of ten, and what else computed a part of them."""
    largest, others = 0.0, set()
    for name, expected in expected_outputs(architecture).items():
        options = {"backend": backend, "kv_type": "f32", "n_ctx": n_ctx(name), "n_batch": 32}
        config = {"vulkan": {"activations": "float"}} if backend == "vulkan" else {}
        with tempfile.TemporaryDirectory() as folder:
            path, more = written(name, Path(folder))
            with pumice.load(path, **options, config=config | more) as model:
                largest = max(largest, error(given(name, model), expected))
                others |= set(model.backends) - {backend}
    text = f"1e{math.ceil(math.log10(largest))}" if largest else "-"
    return f"{text}, partly {' and '.join(sorted(others))}" if others else text


def written(name: str, folder: Path) -> tuple[Path, dict[str, str]]:
    """The file to load for a tiny model, and further configuration."""
    if name not in ALL:
        return checkpoint(name, folder), {}
    return write(name, folder) if name in DRAFTS else (ALL[name].write(folder / "model.gguf"), {})


def given(name: str, model: pumice.Model) -> np.ndarray:
    """Return the results of a tiny model for its tokens: logits, embeddings or scores."""
    if name not in ALL:
        return model.logits(PROMPT)[ROWS]
    if name in DRAFTS:
        return logits_of(name, model)
    if name in tiny_t5.MODELS:
        return model.logits(tiny_t5.DECODED, tiny_t5.PROMPT)
    return model.logits(ZOO[name].ids) if name in ZOO else encoded(model, ALL[name].metadata["pooling_type"])


def expected_outputs(architecture: str) -> dict[str, np.ndarray]:
    """Return llama.cpp's results for its models, logits, embeddings or scores, or transformers' logits."""
    found = {name: LOGITS[name].astype(np.float32) for name in models(architecture) if name not in ALL}
    fixtures = TESTS / "fixtures"
    others = ("tiny_embeddings.npz", "drafts.npz", "tiny_t5.npz")
    for path in [*(fixtures / "tiny_logits").iterdir(), *(fixtures / name for name in others)]:
        with np.load(path) as file:  # layers that draft have the names of their models
            found |= {name: file[name] for name in models(architecture) if name in file and name not in found}
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
