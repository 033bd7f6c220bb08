"""Projector files of the tiny models that transformers made, with llama.cpp's names, and pictures by a formula."""

import io
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from gguf_files import write_gguf
from pumice.architecture import MediaKind
from pumice.config import load_config
from pumice.engine.media.projector import Projector
from pumice.engine.messages import MediaValues
from pumice.registry import get_registry

FIXTURE = Path(__file__).parent / "fixtures" / "vision.npz"
_LAYER = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_out", "layer_norm1": "ln1", "layer_norm2": "ln2", "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}  # fmt: skip
_OTHER = {
    "embeddings.patch_embedding": "v.patch_embd", "embeddings.position_embedding": "v.position_embd",
    "pre_layrnorm": "v.pre_ln", "post_layernorm": "v.post_ln", "modality_projection.proj": "mm.model.fc",
    "multi_modal_projector.linear_1": "mm.0", "multi_modal_projector.linear_2": "mm.2",
}  # fmt: skip
_KEYS: dict[str, dict[str, Any]] = {
    "idefics3": {"clip.use_gelu": True, "projector.scale_factor": 2, "preproc_image_size": 64, "block_count": 2},
    "mlp": {"block_count": 3},
}
_MEANS = {
    "idefics3": ([0.5] * 3, [0.5] * 3),
    "mlp": ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]),
}


def picture(width: int, height: int) -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    return np.stack([(x * 5 + y) % 256, (y * 7) % 256, (x * y) % 256], -1).astype(np.uint8)


def encoded(image: Any, format: str = "PNG", **options: Any) -> bytes:
    """The file of uint8 pixels ``[height, width, 3]``, or of a Pillow image."""
    from PIL import Image

    data = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(data, format, **options)
    return data.getvalue()


def write_projector(path: Path, kind: str, **more: Any) -> Path:
    """Write the projector of a type: 32 pixels in 4 x 4 patches, width 32 to 64."""
    mean, std = _MEANS[kind]
    keys: dict[str, Any] = {
        "image_size": 32,
        "patch_size": 8,
        "embedding_length": 32,
        "feed_forward_length": 48,
        "attention.head_count": 4,
        "attention.layer_norm_epsilon": 1e-6 if kind == "idefics3" else 1e-5,
        "projection_dim": 64,
        "image_mean": mean,
        "image_std": std,
        **_KEYS[kind],
        **more,
    }
    metadata = {
        "general.architecture": "clip",
        "clip.has_vision_encoder": True,
        "clip.projector_type": kind,
        **{name if name.startswith("clip.") else f"clip.vision.{name}": value for name, value in keys.items()},
    }
    with np.load(FIXTURE) as file:
        prefix = f"{kind}.tensor."
        tensors = {_name(name.removeprefix(prefix)): file[name] for name in file if name.startswith(prefix)}
    return write_gguf(path, metadata, tensors)


def _name(name: str) -> str:
    if name.endswith("class_embedding"):
        return "v.class_embd"
    stem, _, kind = name.rpartition(".")
    if ".layers." in stem:
        number, _, rest = stem.partition(".layers.")[2].partition(".")
        return f"v.blk.{number}.{_LAYER[rest]}.{kind}"
    return f"{next(new for old, new in _OTHER.items() if stem.endswith(old))}.{kind}"


def opened(path: Path, backend: str = "numpy", **options: Any) -> Projector:
    """Return the projector of a file, or of the file ``mmproj.gguf`` in a folder."""
    config = load_config(overrides={"backend": backend, **options})
    return Projector(path / "mmproj.gguf" if path.is_dir() else path, config, get_registry(config))


def parts_of(path: Path, values: MediaValues, backend: str = "numpy", kind: MediaKind = "image") -> list[Any]:
    """Return the texts and embeddings that a projector makes of an image or a sound."""
    with closing(opened(path, backend)) as projector:
        return projector.encode(values, kind=kind)
