"""Mamba: state spaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pumice.plugin.convert import Conversion, ConvertError, LazyTensor


class Mamba(Conversion):
    """Mamba, and Falcon Mamba with its norms."""

    architecture = "mamba"
    pre_tokenizers = ("olmo", "gpt-2")

    def metadata(self) -> dict[str, Any]:
        c = self.config
        n_embd = c.need("hidden_size", "d_model")
        n_inner = c.first("intermediate_size", "d_inner") or 2 * n_embd
        if n_inner != 2 * n_embd:
            raise ConvertError(
                f"{c.path}: 'intermediate_size' is {n_inner}, and must be twice 'hidden_size', {2 * n_embd}"
            )
        return {
            "context_length": 1 << 20,  # a state has none
            "embedding_length": n_embd,
            "feed_forward_length": 0,
            "attention.head_count": 0,
            "block_count": self.n_layer,
            "ssm.conv_kernel": c.first("conv_kernel", "d_conv") or 4,
            "ssm.inner_size": n_inner,
            "ssm.state_size": c.first("state_size", "d_state") or 16,
            "ssm.time_step_rank": c.first("time_step_rank", "dt_rank") or -(-n_embd // 16),
            "attention.layer_norm_rms_epsilon": float(c.first("layer_norm_epsilon", "rms_norm_eps") or 1e-5),
            "ssm.dt_b_c_rms": c.get("model_type") == "falcon_mamba",
        }

    def convert(self, name: str, tensor: LazyTensor) -> Iterator[tuple[str, LazyTensor]]:
        if name.endswith(".A_log"):
            tensor = tensor.map(lambda x: -np.exp(x))
        if name.endswith("conv1d.weight"):
            tensor = tensor.reshape(tensor.shape[0], tensor.shape[-1])
        yield from super().convert(name, tensor)
