"""gpt-oss: rows of gate and up are interleaved."""

from __future__ import annotations

from collections.abc import Iterator

from pumice.plugin.convert import Conversion, LazyTensor, mxfp4


class GptOss(Conversion):
    """gpt-oss, whose expert matrices are transposed."""

    architecture = "gpt-oss"
    required = ("rope_theta",)
    needed = {"swiglu_limit": 7.0, "swiglu_alpha": 1.702}
    window_period = 2
    pre_tokenizers = ["gpt-4o"]
    computed = {
        "attention.sliding_window": lambda self: self.config.need("sliding_window"),
        "expert_feed_forward_length": lambda self: self.config.need("intermediate_size"),
    }

    def rename(self, name: str) -> str | None:
        new_name = super().rename(name)
        return f"{new_name}.weight" if new_name and new_name.endswith("sinks") else new_name

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith(("_proj_blocks", "_proj_scales")):
            yield from self._blocks(name, tensor)
            return
        is_bias = name.endswith("_proj_bias")
        base, suffix = name.removesuffix("_bias"), "bias" if is_bias else "weight"
        if base.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensor = tensor if is_bias else tensor.transpose(0, 2, 1)
            if base.endswith("down_proj"):
                yield from super().convert(f"{base}.{suffix}", tensor)
            else:
                for first, part in enumerate(("gate_proj", "up_proj")):
                    yield from super().convert(base.replace("gate_up_proj", f"{part}.{suffix}"), tensor[:, first::2])
        else:
            yield from super().convert(name, tensor)

    def _blocks(self, name: str, blocks: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        """Join the bytes and scales of MXFP4 experts, which are separate tensors in checkpoints."""
        base = name.removesuffix("_blocks")
        if name.endswith("_scales"):
            return
        scales = self.folder.tensors[f"{base}_scales"]
        if base.endswith("down_proj"):
            yield self.names(f"{base}.weight"), mxfp4(blocks, scales)
        else:
            for first, part in enumerate(("gate_proj", "up_proj")):
                new = self.names(base.replace("gate_up_proj", f"{part}.weight"))
                yield new, mxfp4(blocks[:, first::2], scales[:, first::2])
