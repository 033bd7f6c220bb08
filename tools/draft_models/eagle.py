"""An EAGLE-3 head (arXiv:2503.01840) for a trained llama model, in plain PyTorch.

At the position of a token, the head reads the token's embedding and the hidden state of the position before it, and
returns a hidden state, from which the target's output matrix computes the logits of the next token. The first hidden
state of a draft is projected from the inputs of three layers of the target; later ones are the head's own.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tools.demo_model.model import Block, Llama, ModelConfig, rotate

N_FEATURES = 3


def target_layers(config: ModelConfig) -> list[int]:
    """Return the layers of the target whose outputs the head reads: early, middle and late."""
    return [2, config.n_layer // 2, config.n_layer - 1]


def with_features(target: Llama, tokens: Tensor, layers: list[int]) -> tuple[Tensor, Tensor]:
    """Return logits ``[batch, n, n_vocab]``, and ``features [batch, n, 3 n_embd]``: the inputs of these layers."""
    n = tokens.shape[1]
    x, features = target.embedding(tokens), []
    for i, block in enumerate(target.blocks):
        if i in layers:
            features.append(x)
        x = block(x, target.cos[:n], target.sin[:n], None, None)
    return F.linear(target.norm(x), target.embedding.weight), torch.cat(features, dim=-1)


class Eagle(nn.Module):
    """The head of a target with this configuration."""

    def __init__(self, config: ModelConfig, n_ff: int) -> None:
        super().__init__()
        n, n_kv = config.n_embd, config.n_head_kv * config.head_dim
        self.config = config
        self.n_ff = n_ff
        self.fc = nn.Linear(N_FEATURES * n, n, bias=False)
        self.token_norm = nn.RMSNorm(n, config.norm_eps)
        self.hidden_norm = nn.RMSNorm(n, config.norm_eps)
        self.q = nn.Linear(2 * n, n, bias=False)
        self.k = nn.Linear(2 * n, n_kv, bias=False)
        self.v = nn.Linear(2 * n, n_kv, bias=False)
        self.output = nn.Linear(n, n, bias=False)
        self.ffn_norm = nn.RMSNorm(n, config.norm_eps)
        self.gate = nn.Linear(n, n_ff, bias=False)
        self.up = nn.Linear(n, n_ff, bias=False)
        self.down = nn.Linear(n_ff, n, bias=False)
        self.norm = nn.RMSNorm(n, config.norm_eps)

    @torch.no_grad()
    def begin_as(self, target: Llama) -> None:
        """Take the weights of the target's last layer, which training then changes, and the latest of the features."""
        block, n = target.blocks[-1], self.config.n_embd
        assert isinstance(block, Block)
        self.fc.weight.mul_(0.05)
        self.fc.weight[:, -n:] += torch.eye(n, device=self.fc.weight.device)
        attention = block.attention
        for matrix, other in ((self.q, attention.q), (self.k, attention.k), (self.v, attention.v)):
            matrix.weight.mul_(0.3)
            matrix.weight[:, n:] = other.weight
        pairs = [
            (self.output, attention.output),
            (self.hidden_norm, block.attention_norm),
            (self.ffn_norm, block.ffn_norm),
            (self.norm, target.norm),
        ]
        if self.n_ff == self.config.n_ff:
            pairs += [(self.gate, block.gate), (self.up, block.up), (self.down, block.down)]
        for module, other in pairs:
            module.weight.copy_(other.weight)

    def unrolled(self, tokens: Tensor, features: Tensor, target: Llama, n_steps: int) -> list[Tensor]:
        """Return the logits ``[batch, n, n_vocab]`` of ``n_steps`` steps of drafting from every position.

        Step 0 reads the target's features. Step i reads the head's hidden states of step i - 1 at the last position;
        its attention reads keys of step 0 up to i positions ago, and those of the later steps at the i positions since.
        """
        n = tokens.shape[1]
        cos, sin = target.cos[:n], target.sin[:n]
        embedded = self.token_norm(target.embedding(tokens))
        hidden = _behind(self.fc(features))
        keys: list[Tensor] = []
        values: list[Tensor] = []
        results = []
        for _ in range(n_steps):
            x = torch.cat((embedded, self.hidden_norm(hidden)), dim=-1)
            q, k, v = (self._heads(matrix(x)) for matrix in (self.q, self.k, self.v))
            q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
            groups = self.config.n_head // self.config.n_head_kv
            keys.append(k.repeat_interleave(groups, dim=1))
            values.append(v.repeat_interleave(groups, dim=1))
            x = hidden + self.output(_attend(q, keys, values).transpose(1, 2).flatten(2))
            h = self.ffn_norm(x)
            x = x + self.down(F.silu(self.gate(h)) * self.up(h))
            results.append(F.linear(self.norm(x), target.embedding.weight))
            hidden = _behind(x)
        return results

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)


def _behind(x: Tensor) -> Tensor:
    """Return the rows of the position before each; zeros before the first."""
    return F.pad(x, (0, 0, 1, 0))[:, :-1]


def _attend(q: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """Return the attention ``[batch, n_head, n, head_dim]`` of the last of the steps with these keys and values.

    Position p reads step 0 up to p - last, and step j at p - last + j.
    """
    n, last = q.shape[2], len(keys) - 1
    if not last:
        return F.scaled_dot_product_attention(q, keys[0], values[0], is_causal=True)
    scale = q.shape[-1] ** -0.5
    shifted = [(_shift(k, last - j), _shift(v, last - j)) for j, (k, v) in enumerate(zip(keys, values, strict=True))][
        1:
    ]
    allowed = torch.ones(n, n, dtype=torch.bool, device=q.device).tril(-last)
    scores = [(q @ keys[0].transpose(-1, -2)).masked_fill(~allowed, -torch.inf)]
    scores += [(q * k).sum(-1, keepdim=True) for k, _ in shifted]
    weights = torch.softmax(torch.cat(scores, dim=-1).float() * scale, dim=-1).to(q.dtype)
    y = weights[..., :n] @ values[0]
    for i, (_, v) in enumerate(shifted):
        y = y + weights[..., n + i : n + i + 1] * v
    return y


def _shift(x: Tensor, n: int) -> Tensor:
    """Return the rows ``n`` positions before each; zeros before the first."""
    return F.pad(x, (0, 0, n, 0))[:, :, : x.shape[2]] if n else x


def loss_of(steps: list[Tensor], logits: Tensor, n_confirmed: int = 1) -> tuple[Tensor, list[float]]:
    """Return the mean cross-entropy with the target's probabilities, and how often the likeliest tokens agree.

    Step i from position p guesses what the target expects at p; earlier steps read the true tokens up to p. The first
    ``n_confirmed`` positions and those without enough past for a step do not count.
    """
    target = logits.float().softmax(-1).flatten(0, 1)
    best, total, agree = logits.argmax(-1), logits.new_zeros((), dtype=torch.float32), []
    weight = 1.0
    for i, guessed in enumerate(steps):
        log_p = guessed.float().log_softmax(-1).flatten(0, 1)
        losses = -(target * log_p).sum(-1).view_as(best)[:, n_confirmed + i :]
        total = total + weight * losses.mean()
        weight *= 0.8
        agree.append((guessed.argmax(-1) == best)[:, n_confirmed + i :].float().mean())
    return total, torch.stack(agree).tolist()
