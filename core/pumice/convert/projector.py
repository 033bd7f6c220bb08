"""`ProjectorConversion`: the conversion of the vision part of a checkpoint to a projector file (mmproj)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from pumice.convert.conversion import MOST_LAYERS, Conversion
from pumice.convert.folder import Folder
from pumice.errors import ConvertError
from pumice.gguf import GGMLType

PROCESSORS = ("processor_config.json", "preprocessor_config.json")  # the first that has a value


class ProjectorConversion(Conversion):
    """The conversion of a model class's vision encoder and projector, registered under the class's name.

    Attributes:
        projector_type: value of ``clip.projector_type``, by which a media encoder is found.
        type_key: key of that value, which is another one if a file may have a type for sound, too.
        activation: key of the feed-forward's activation: ``use_gelu``, ``use_silu`` or, for quick gelu, none.
        unnamed_activation: that activation, to be checked, if it has no key.
        rope_base: base of RoPE in the encoder.
        prefixes: start of the names of the tensors that are converted, without ``model.``.
        aliases: names in ``vision_config`` for those that are read here.
        usual: values of ``vision_config`` that the checkpoint may leave out.
        usual_processor: settings of preprocessing that the checkpoint may leave out.
        n_embd_key, eps_key: names in ``vision_config`` of the width and of the norms' epsilon.
        usual_eps: epsilon if the checkpoint has none.
    """

    architecture = "clip"
    has_vocabulary = False
    projector_type: str
    type_key = "projector_type"
    activation: str = "use_gelu"
    unnamed_activation: ClassVar[str] = ""
    rope_base: ClassVar[float] = 10000.0
    prefixes: tuple[str, ...] = ("vision_tower.", "multi_modal_projector.")
    float32 = frozenset({"v.position_embd"})
    aliases: ClassVar[Mapping[str, str]] = {}
    usual: ClassVar[Mapping[str, Any]] = {}
    usual_processor: ClassVar[Mapping[str, Any]] = {}
    n_embd_key: ClassVar[str] = "hidden_size"
    eps_key: ClassVar[str] = "layer_norm_eps"
    usual_eps: ClassVar[float] = 1e-6

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.config = folder.config
        values = self.config.section("vision_config", "the model has no vision encoder")
        renamed = {ours: values[theirs] for theirs, ours in self.aliases.items() if theirs in values}
        self.vision = values | {**self.usual, **values, **renamed}
        self.n_layer = self.count_layers()

    def count_layers(self) -> int:
        """Return the number of the encoder's blocks."""
        return self.vision.need("num_hidden_layers", "depth", most=MOST_LAYERS)

    @cached_property
    def processor(self) -> Mapping[str, Any]:
        """The settings of preprocessing."""
        merged: dict[str, Any] = {**self.usual_processor}
        for name in PROCESSORS[::-1]:
            values = self.folder.optional_json(name)
            merged |= values | values.get("image_processor", {})
        return merged

    def metadata(self) -> dict[str, Any]:
        self.check_encoder()
        vision = {f"vision.{key}": value for key, value in self.of_vision().items()}
        activation = {self.activation: True} if self.activation else {}
        return {"has_vision_encoder": True, self.type_key: self.projector_type, **activation, **vision}

    def check_encoder(self) -> None:
        """Raise ConvertError if the configuration has a value that the graph of the encoder does not have."""
        if own := self.activation.removeprefix("use_") or self.unnamed_activation:
            self.vision.expect_activation(own)
        (self.vision | self.vision.whole_rope).expect("rope_theta", self.rope_base)
        self.config.expect_activation("gelu", "projector_hidden_act")

    def pixel_limits(self, kind: str = "image", processor: Mapping[str, Any] | None = None) -> dict[str, int]:
        """Return the fewest and most pixels of an image or a video, as far as the checkpoint has them."""
        processor = self.processor if processor is None else processor
        size = processor.get("size")
        size = size if isinstance(size, dict) else {}
        limits = {"min_pixels": size.get("shortest_edge"), "max_pixels": size.get("longest_edge")}
        limits = {key: processor.get(key, edge) for key, edge in limits.items()}
        return {f"{kind}_{key}": (self.vision | limits).need(key) for key, n in limits.items() if n is not None}

    def of_vision(self) -> dict[str, Any]:
        """Return the keys ``clip.vision.*`` without that prefix."""
        return {
            "projection_dim": self.config.need("hidden_size"),
            "image_size": self.image_size(),
            "patch_size": self.side("patch_size"),
            "embedding_length": self.n_embd,
            "feed_forward_length": self.n_ff(),
            "block_count": self.n_layer,
            "attention.head_count": self.n_head,
            "attention.layer_norm_epsilon": self.epsilon(),
            "image_mean": self._channels("image_mean"),
            "image_std": self._channels("image_std"),
        }

    def image_size(self) -> int:
        """Return the pixels a side of images, or their largest side."""
        return self.side("image_size")

    def n_ff(self) -> int:
        return self.vision.need("intermediate_size")

    def epsilon(self) -> float:
        return float(self.vision.first(self.eps_key) or self.usual_eps)

    @property
    def n_embd(self) -> int:
        return self.vision.need(self.n_embd_key)

    @property
    def n_head(self) -> int:
        return self.vision.need("num_attention_heads", "num_heads")

    def side(self, key: str) -> int:
        """Return a size in pixels, which may stand there for both sides."""
        value = self.vision.first(key)
        return (self.vision | {key: value[0]}).need(key) if isinstance(value, list) else self.vision.need(key)

    def _channels(self, key: str) -> list[float]:
        values = self.processor.get(key)
        if not isinstance(values, list) or len(values) != 3:
            raise ConvertError(f"{self.folder.path / PROCESSORS[1]}: {key!r} is missing; expected three numbers")
        return [float(value) for value in values]

    def other_metadata(self) -> dict[str, Any]:
        return {"general.type": "mmproj"}

    def rename(self, name: str) -> str | None:
        name = name.removeprefix("model.")
        if not name.startswith(self.prefixes):
            return None
        for part, new in self.renames.items():
            name = re.sub(part, new, name)
        return name

    def forced_type(self, name: str, type: GGMLType) -> GGMLType | None:
        if ".patch_embd.weight" in name or ".patch_merger.weight" in name:
            return GGMLType.F16 if type is GGMLType.F16 else GGMLType.F32
        return super().forced_type(name, type)
