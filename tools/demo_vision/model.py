"""The model in plain PyTorch: Idefics3's vision transformer and projection, and a llama model, by the same names.

Laurençon et al. 2024 (arXiv:2408.12637); pictures are one square tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .dialogues import END_ID, IMAGE_ID


@dataclass(frozen=True)
class ModelConfig:
    n_vocab: int = 512
    n_embd: int = 192
    n_layer: int = 4
    n_head: int = 6
    n_head_kv: int = 3
    n_ff: int = 320
    n_ctx: int = 512
    rope_base: float = 10_000.0
    norm_eps: float = 1e-5
    image_size: int = 96
    patch_size: int = 8
    merge: int = 3
    vision_embd: int = 128
    vision_layer: int = 5
    vision_head: int = 4
    vision_ff: int = 512
    vision_eps: float = 1e-6

    @property
    def side(self) -> int:
        """Patches a side."""
        return self.image_size // self.patch_size

    @property
    def n_rows(self) -> int:
        """Tokens of a picture."""
        return (self.side // self.merge) ** 2


class VisionLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        n, self.n_head = config.vision_embd, config.vision_head
        self.layer_norm1 = nn.LayerNorm(n, config.vision_eps)
        self.self_attn = nn.ModuleDict({f"{name}_proj": nn.Linear(n, n) for name in ("q", "k", "v", "out")})
        self.layer_norm2 = nn.LayerNorm(n, config.vision_eps)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(n, config.vision_ff), "fc2": nn.Linear(config.vision_ff, n)})

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer_norm1(x)
        q, k, v = (_heads(self.self_attn[f"{name}_proj"](h), self.n_head) for name in "qkv")
        x = x + self.self_attn["out_proj"](_joined(F.scaled_dot_product_attention(q, k, v)))
        h = self.mlp["fc1"](self.layer_norm2(x))
        return x + self.mlp["fc2"](F.gelu(h, approximate="tanh"))


class TextLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        n, self.n_head, self.n_head_kv = config.n_embd, config.n_head, config.n_head_kv
        n_kv = n // config.n_head * config.n_head_kv
        self.input_layernorm = nn.RMSNorm(n, config.norm_eps)
        widths = {"q_proj": n, "k_proj": n_kv, "v_proj": n_kv, "o_proj": n}
        self.self_attn = nn.ModuleDict({name: nn.Linear(n, to, bias=False) for name, to in widths.items()})
        self.post_attention_layernorm = nn.RMSNorm(n, config.norm_eps)
        self.mlp = nn.ModuleDict({
            "gate_proj": nn.Linear(n, config.n_ff, bias=False),
            "up_proj": nn.Linear(n, config.n_ff, bias=False),
            "down_proj": nn.Linear(config.n_ff, n, bias=False),
        })  # fmt: skip

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        h = self.input_layernorm(x)
        q = _rotated(_heads(self.self_attn["q_proj"](h), self.n_head), cos, sin)
        k = _rotated(_heads(self.self_attn["k_proj"](h), self.n_head_kv), cos, sin)
        v = _heads(self.self_attn["v_proj"](h), self.n_head_kv)
        groups = self.n_head // self.n_head_kv
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)
        x = x + self.self_attn["o_proj"](_joined(y))
        h = self.post_attention_layernorm(x)
        return x + self.mlp["down_proj"](F.silu(self.mlp["gate_proj"](h)) * self.mlp["up_proj"](h))


def _heads(x: Tensor, n_head: int) -> Tensor:
    return x.unflatten(-1, (n_head, -1)).transpose(1, 2)


def _joined(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x [..., n, d] on the pairs (i, i + d/2); cos and sin [n, d / 2]."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class VisionModel(nn.Module):
    """Names below ``model.vision_model`` of the checkpoint."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        n = config.vision_embd
        self.embeddings = nn.ModuleDict({
            "patch_embedding": nn.Conv2d(3, n, config.patch_size, config.patch_size),
            "position_embedding": nn.Embedding(config.side**2, n),
        })  # fmt: skip
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList(VisionLayer(config) for _ in range(config.vision_layer))})
        self.post_layernorm = nn.LayerNorm(n, config.vision_eps)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return [batch, patches, vision_embd] of pixels [batch, 3, size, size] from -1 to 1."""
        x = self.embeddings["patch_embedding"](pixels).flatten(2).transpose(1, 2)
        x = x + self.embeddings["position_embedding"].weight
        for layer in self.encoder["layers"]:
            x = layer(x)
        return self.post_layernorm(x)


class Seeing(nn.Module):
    """The whole model; ``covered`` is a classifier of patches, of use in training alone."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ModelConfig, n_kinds: int) -> None:
        super().__init__()
        self.config = config
        self.vision_model = VisionModel(config)
        self.connector = nn.Linear(config.vision_embd * config.merge**2, config.n_embd, bias=False)
        self.text_model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(config.n_vocab, config.n_embd),
            "layers": nn.ModuleList(TextLayer(config) for _ in range(config.n_layer)),
            "norm": nn.RMSNorm(config.n_embd, config.norm_eps),
        })  # fmt: skip
        self.covered = nn.Linear(config.vision_embd, n_kinds)
        d = config.n_embd // config.n_head
        angle = torch.outer(
            torch.arange(config.n_ctx, dtype=torch.float32),
            config.rope_base ** (-torch.arange(0, d, 2, dtype=torch.float32) / d),
        )
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                into_residual = name.endswith(("out_proj.weight", "fc2.weight", "o_proj.weight", "down_proj.weight"))
                n_layer = config.vision_layer if name.startswith("vision_model") else config.n_layer
                nn.init.normal_(parameter, std=0.03 / (2 * n_layer) ** 0.5 if into_residual else 0.03)

    def patches(self, pictures: Tensor) -> Tensor:
        """Return [batch, patches, vision_embd] of pictures uint8 [batch, size, size, 3]."""
        return self.vision_model((pictures.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.5)

    def rows(self, patches: Tensor) -> Tensor:
        """Return [batch, n_rows, n_embd]: a row of each square of patches, with their values side by side."""
        c, (batch, _, n) = self.config, patches.shape
        cells = patches.view(batch, c.side // c.merge, c.merge, c.side // c.merge, c.merge, n)
        return self.connector(cells.transpose(2, 3).reshape(batch, c.n_rows, -1))

    def read(self, tokens: Tensor, rows: Tensor, pictures: Tensor) -> Tensor:
        """Return hidden states [batch, n, n_embd] of tokens [batch, n].

        Args:
            tokens: those with IMAGE_ID stand for rows of pictures, in order.
            rows: rows of all pictures, [pictures, n_rows, n_embd].
            pictures: numbers of the pictures of each text, [batch, 2].
        """
        is_image = tokens == IMAGE_ID
        place = (is_image.cumsum(1) - 1).clamp(min=0, max=2 * self.config.n_rows - 1)
        picture = pictures.gather(1, place // self.config.n_rows)
        image_rows = rows.flatten(0, 1)[picture * self.config.n_rows + place % self.config.n_rows]
        x = torch.where(is_image[..., None], image_rows.float(), self.text_model["embed_tokens"](tokens))
        n = tokens.shape[1]
        for layer in self.text_model["layers"]:
            x = layer(x, self.cos[:n], self.sin[:n])
        return self.text_model["norm"](x)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.text_model["embed_tokens"].weight)

    def checkpoint(self) -> dict[str, Tensor]:
        """Return the tensors by their names in a checkpoint, without what is of use in training alone."""
        tensors = {name: tensor for name, tensor in self.state_dict().items() if not name.startswith("covered.")}
        tensors["connector.modality_projection.proj.weight"] = tensors.pop("connector.weight")
        return {f"model.{name}": tensor.detach().float().cpu().contiguous() for name, tensor in tensors.items()}

    def of_checkpoint(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return tensors of a checkpoint by their names here."""
        named = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
        named["connector.weight"] = named.pop("connector.modality_projection.proj.weight")
        return named


@torch.no_grad()
def answers(model: Seeing, pictures: Tensor, starts: list[list[int]], most: int) -> list[list[int]]:
    """Return the likeliest tokens after each text of the same number of tokens, up to the end.

    Each text is about the picture of its place in ``pictures`` [batch, size, size, 3].
    """
    tokens = torch.tensor(starts, device=pictures.device)
    rows = model.rows(model.patches(pictures))
    own = torch.arange(len(starts), device=pictures.device)[:, None].expand(-1, 2)
    ended = torch.zeros(len(starts), dtype=torch.bool, device=pictures.device)
    for _ in range(most):
        chosen = model.logits(model.read(tokens, rows, own)[:, -1]).argmax(-1).masked_fill(ended, END_ID)
        tokens = torch.cat((tokens, chosen[:, None]), 1)
        ended |= chosen == END_ID
        if ended.all():
            break
    made = tokens[:, len(starts[0]) :].tolist()
    return [ids[: ids.index(END_ID)] if END_ID in ids else ids for ids in made]


def config_json(config: ModelConfig) -> dict[str, Any]:
    """Return ``config.json`` of the checkpoint."""
    text = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": config.n_embd,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.n_head_kv,
        "head_dim": config.n_embd // config.n_head,
        "intermediate_size": config.n_ff,
        "vocab_size": config.n_vocab,
        "max_position_embeddings": config.n_ctx,
        "rope_theta": config.rope_base,
        "rms_norm_eps": config.norm_eps,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": END_ID,
        "pad_token_id": END_ID,
    }
    vision = {
        "model_type": "idefics3_vision",
        "hidden_size": config.vision_embd,
        "intermediate_size": config.vision_ff,
        "num_hidden_layers": config.vision_layer,
        "num_attention_heads": config.vision_head,
        "image_size": config.image_size,
        "patch_size": config.patch_size,
        "layer_norm_eps": config.vision_eps,
        "hidden_act": "gelu_pytorch_tanh",
    }
    return {
        "architectures": ["Idefics3ForConditionalGeneration"],
        "model_type": "idefics3",
        "text_config": text,
        "vision_config": vision,
        "scale_factor": config.merge,
        "image_token_id": IMAGE_ID,
        "pad_token_id": END_ID,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
