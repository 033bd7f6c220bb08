"""Texts that a llama model writes itself, to train a head for it: a head drafts what its target would say."""

from __future__ import annotations

import torch
from torch import Tensor

from tools.demo_model.model import Cache, Llama

TEMPERATURES = [0.0, 0.0, 0.5, 1.0]
"""Temperatures of the rows, in turns."""


@torch.no_grad()
def continued(target: Llama, prompts: Tensor, length: int, bos: int, eos: int) -> Tensor:
    """Return rows ``[batch, length]`` that begin with ``prompts [batch, n]`` and go on as the target does.

    Half of the rows never end; in the others, a text that ends is followed by another one.
    """
    batch, n = prompts.shape
    temperatures = torch.tensor(TEMPERATURES, device=prompts.device).repeat(-(-batch // len(TEMPERATURES)))[:batch]
    endless = torch.arange(batch, device=prompts.device) // len(TEMPERATURES) % 2 == 0
    caches = [Cache() for _ in target.blocks]
    rows = prompts.new_empty((batch, length))
    rows[:, :n] = prompts
    tokens = prompts
    for end in range(n, length):
        logits = target(tokens, caches=caches, past=end - tokens.shape[1])[:, -1].float()
        logits[endless, eos] = -torch.inf
        noise = -torch.empty_like(logits).exponential_().log()  # Gumbel's, so that the largest sum is a sample
        chosen = (logits + temperatures[:, None] * noise).argmax(-1)
        rows[:, end] = torch.where(rows[:, end - 1] == eos, bos, chosen)
        tokens = rows[:, end : end + 1]
    return rows
