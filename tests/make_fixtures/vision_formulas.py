"""Make tests/fixtures/vision_formulas: rows of a picture by transformers' modules and by formulas in PyTorch.

    python tests/make_fixtures/vision_formulas.py path/to/llama.cpp [case...]

It needs torch, transformers, gguf and Pillow.

The rows of the cases that are there are kept as they are: ``git show 553cf67a:tests/make_fixtures/vision_formulas.py``
and f5c87526 have their formulas, and llama.cpp's libmtmd computes them too (``libmtmd.py``). A new case brings a
function of its name here, of its tensors. Also stored are metadata and digests of tensors of the projector that
llama.cpp's converter writes; it runs without its assertions, some of which want the sizes of the published models.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from llama_converter import projector

from checkpoints import weights, write_cases
from vision_files import picture
from vision_formulas import (
    CASES,
    FILES,
    FIXTURE,
    SIZE,
    SIZES,
    N,
    write_folder,
)

Weights = dict[str, Tensor]
SMALL = {"hidden_size": N, "num_attention_heads": 2, "intermediate_size": 48, "num_hidden_layers": 2}


def linear(w: Weights, name: str, x: Tensor) -> Tensor:
    weight = w[f"{name}.weight"]
    return F.linear(x, weight.reshape(len(weight), -1), w.get(f"{name}.bias"))


def norm(w: Weights, name: str, x: Tensor, eps: float = 1e-6) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], eps)


def rms(weight: Tensor, x: Tensor, eps: float = 1e-6) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def loaded(model: torch.nn.Module, values: Weights) -> torch.nn.Module:
    missing, unexpected = model.load_state_dict(values, strict=False)
    assert not unexpected, unexpected
    assert not [name for name in missing if "inv_freq" not in name and "head." not in name], missing
    return model.eval()


def below(w: Weights, prefix: str) -> Weights:
    return {name.removeprefix(prefix): value for name, value in w.items() if name.startswith(prefix)}


def cells(pixels: np.ndarray, merge: int, size: int, mean: list[float], std: list[float]) -> Tensor:
    """Return patches ``[n, 3, size, size]`` of an image, square by square of ``merge * merge``."""
    x = torch.tensor((pixels.astype(np.float32) / 255 - np.float32(mean)) / np.float32(std))
    rows, columns = x.shape[0] // size // merge, x.shape[1] // size // merge
    x = x.reshape(rows, merge, size, columns, merge, size, 3).permute(0, 3, 1, 4, 6, 2, 5)
    return x.reshape(-1, 3, size, size)


def resized(size: tuple[int, int], filter: Image.Resampling) -> np.ndarray:
    """Return the picture in a size of ``(height, width)``."""
    return np.array(Image.fromarray(picture(*SIZE)).resize(size[::-1], filter))


def patches_of(processor, mean, std, frames: int, tensors: str) -> tuple[dict[str, np.ndarray], dict]:
    """Return pixels by a processor that orders patches by square, and what it makes of the last picture."""
    values = {}
    for size in SIZES:
        made = processor(Image.fromarray(picture(*size)), return_tensors=tensors)
        pixels = np.array(made["pixel_values"], np.float32)
        pixels = pixels.reshape(len(pixels), 3, frames, -1)[:, :, 0].transpose(0, 2, 1)
        pixels = (pixels * np.float32(std) + np.float32(mean)) * 255
        values["pixels.{}x{}".format(*size)] = pixels.round().astype(np.uint8)
    return values, made


def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return attention ``[n, heads * d]`` of ``[n, heads, d]``."""
    scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)


def theirs(sources: Path, kind: str) -> dict:
    """Return metadata and tensors of the projector that llama.cpp's converter writes."""
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder) / kind, kind)
        return projector(sources, Path(folder) / kind, ["-O", str(sources / "convert_hf_to_gguf.py")])


if __name__ == "__main__":
    sources, *names = sys.argv[1:]
    stored = dict(np.load(FIXTURE)) if FIXTURE.exists() else {}
    for name in names or FILES:
        if formula := globals().get(name):
            shapes = FILES[name]["shapes"]
            with torch.no_grad():
                made = formula({key: torch.tensor(weights(key, shape)) for key, shape in shapes.items()})
            stored = {key: value for key, value in stored.items() if not key.startswith(f"{name}.")}
            stored |= {f"{name}.{key}": np.asarray(value) for key, value in made.items()}
        if CASES.get(name, {}).get("theirs"):  # None: MiMo's sound is missing, Nemotron's size is another
            CASES[name]["theirs"] = theirs(Path(sources), name)
        write_cases(FIXTURE.with_name("cases.json"), FILES)
        np.savez_compressed(FIXTURE, **stored)
