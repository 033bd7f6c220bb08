"""Batched sampling of stories from the trained model."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer

from .model import Cache, Llama
from .tokenizer import BOS_ID, EOS_ID


@torch.no_grad()
def sample(
    model: Llama,
    tokenizer: Tokenizer,
    count: int,
    *,
    temperature: float = 0.8,
    seed: int = 1,
    prompt: str = "",
    device: torch.device,
) -> list[str]:
    """Return `count` texts that begin with `prompt`, each up to its EOS or the context limit, unfiltered."""
    generator = torch.Generator(device).manual_seed(seed)
    prompt_ids = [BOS_ID, *tokenizer.encode(prompt).ids]
    tokens = torch.tensor([prompt_ids] * count, device=device)
    caches = [Cache() for _ in model.blocks]
    ended = torch.zeros(count, dtype=torch.bool, device=device)
    fresh, past = tokens, 0
    while tokens.shape[1] < model.config.n_ctx and not ended.all():
        logits = model(fresh, caches=caches, past=past)[:, -1].float()
        past += fresh.shape[1]
        fresh = torch.multinomial(torch.softmax(logits / temperature, dim=-1), 1, generator=generator)
        fresh = fresh.masked_fill(ended[:, None], EOS_ID)
        ended |= fresh[:, 0] == EOS_ID
        tokens = torch.cat((tokens, fresh), dim=1)
    return [tokenizer.decode(row, skip_special_tokens=True) for row in tokens.tolist()]
