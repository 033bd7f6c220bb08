"""A llama model in plain PyTorch, with the conventions of GGUF's `llama` architecture: RMSNorm before each block,
rotary embeddings on interleaved pairs, grouped-query attention, SwiGLU, and the output tied to the token embedding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .tokenizer import BOS_ID, EOS_ID

IGNORED = -100


@dataclass(frozen=True)
class ModelConfig:
    n_vocab: int
    n_embd: int = 256
    n_layer: int = 6
    n_head: int = 4
    n_head_kv: int = 2
    n_ff: int = 768
    n_ctx: int = 512
    rope_base: float = 10_000.0
    norm_eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.n_embd // self.n_head


class Cache:
    """Keys and values of earlier tokens for one layer: [batch, n_head_kv, n, head_dim]."""

    def __init__(self) -> None:
        self.k: Tensor | None = None
        self.v: Tensor | None = None

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.k = k if self.k is None else torch.cat((self.k, k), dim=2)
        self.v = v if self.v is None else torch.cat((self.v, v), dim=2)
        return self.k, self.v


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x [..., n, head_dim] on the pairs (0, 1), (2, 3), ...; cos and sin [n, head_dim / 2]."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        n_kv = config.n_head_kv * config.head_dim
        self.q = nn.Linear(config.n_embd, config.n_embd, bias=False)
        self.k = nn.Linear(config.n_embd, n_kv, bias=False)
        self.v = nn.Linear(config.n_embd, n_kv, bias=False)
        self.output = nn.Linear(config.n_embd, config.n_embd, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, bias: Tensor | None, cache: Cache | None) -> Tensor:
        batch, n, _ = x.shape
        q, k, v = (
            projected.view(batch, n, -1, self.config.head_dim).transpose(1, 2)
            for projected in (self.q(x), self.k(x), self.v(x))
        )
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        if cache is not None:
            k, v = cache.extend(k, v)
        groups = self.config.n_head // self.config.n_head_kv
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        causal = bias is None and n > 1
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal)
        return self.output(y.transpose(1, 2).reshape(batch, n, -1))


class Block(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.n_embd, config.norm_eps)
        self.attention = Attention(config)
        self.ffn_norm = nn.RMSNorm(config.n_embd, config.norm_eps)
        self.gate = nn.Linear(config.n_embd, config.n_ff, bias=False)
        self.up = nn.Linear(config.n_embd, config.n_ff, bias=False)
        self.down = nn.Linear(config.n_ff, config.n_embd, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, bias: Tensor | None, cache: Cache | None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin, bias, cache)
        h = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    cos: Tensor
    sin: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.n_vocab, config.n_embd)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = nn.RMSNorm(config.n_embd, config.norm_eps)
        angle = torch.outer(
            torch.arange(config.n_ctx, dtype=torch.float32),
            config.rope_base ** (-torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim),
        )
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                into_residual = name.endswith(("attention.output.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * config.n_layer) ** 0.5 if into_residual else 0.02)

    def forward(
        self, tokens: Tensor, bias: Tensor | None = None, caches: list[Cache] | None = None, past: int = 0
    ) -> Tensor:
        """Return logits [batch, n, n_vocab] for tokens [batch, n] at positions past ... past + n - 1.

        `bias` is added to the attention scores (default: causal); `caches` contain the earlier tokens.
        """
        cos, sin = self.cos[past : past + tokens.shape[1]], self.sin[past : past + tokens.shape[1]]
        x = self.embedding(tokens)
        for i, block in enumerate(self.blocks):
            x = block(x, cos, sin, bias, caches[i] if caches else None)
        return F.linear(self.norm(x), self.embedding.weight)


def packed_loss(model: nn.Module, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy (nats) and the number of predicted tokens of packed rows [batch, n_ctx + 1].

    A story attends only to itself, and no token after an EOS is predicted.
    """
    tokens = rows[:, :-1]
    targets = rows[:, 1:].masked_fill(tokens == EOS_ID, IGNORED)
    story = (tokens == BOS_ID).cumsum(1)
    n = tokens.shape[1]
    causal = torch.ones(n, n, dtype=torch.bool, device=rows.device).tril()
    allowed = (story[:, :, None] == story[:, None, :]) & causal
    dtype = torch.bfloat16 if torch.is_autocast_enabled(rows.device.type) else torch.float32
    bias = torch.zeros(allowed.shape, dtype=dtype, device=rows.device).masked_fill_(~allowed, -torch.inf)[:, None]
    logits = model(tokens, bias)
    loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED, reduction="sum")
    return loss, (targets != IGNORED).sum()
