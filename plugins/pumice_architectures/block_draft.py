"""Draft models that draft a block of tokens at once, from cached features of the target's layers (DFlash)."""

from __future__ import annotations

from typing import Any, ClassVar

from pumice.plugin import N_TOKENS, GraphBuilder, HParams, Tensor
from pumice.plugin.nn.blocks import attention_sinks, linear_then_scale
from pumice.plugin.nn.hyper import sliding_window
from pumice.plugin.unstable import DraftBlock
from pumice_architectures.dflash2 import has_selector, selected
from pumice_architectures.drafts import DraftDecoder
from pumice_architectures.dspark import chained, first_of_chain, has_chain

LONGEST_BLOCK = 256  # tokens; published drafts have at most 16


class BlockDraft(DraftDecoder):
    """``features`` fills the caches; the main graph takes the last token and masks, which attend to each other."""

    scaled = frozenset({"fc", "markov_w2"})
    heads_of_logits = ("output.weight", "token_embd.weight")
    #: True if confidence is computed from the hidden states before the last norm, not after it.
    is_sure_before_norm: ClassVar[bool] = False

    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)
        self.causal = hparams.get_bool("attention.causal", False)
        self.target_layers = hparams.integers("target_layers")
        if not self.target_layers:
            raise hparams.wrong("target_layers", "is empty, expected the numbers of the target's layers")
        self.block_size = hparams.get_int("block_size", 0)
        mask = hparams.metadata.get("tokenizer.ggml.mask_token_id")
        self.mask = mask if isinstance(mask, int) else None
        if not 0 <= self.block_size <= LONGEST_BLOCK:
            raise hparams.wrong("block_size", f"is {self.block_size}, it must be at most {LONGEST_BLOCK}")

    def features(self, g: GraphBuilder) -> None:
        """Read ``features [t, n_target_layers * n_embd]``; each layer caches keys and values of them."""
        x: Tensor = g.input("features", (N_TOKENS, len(self.target_layers) * self.n_embd))
        x = self.norm(g, linear_then_scale(g, x, "fc", self.n_embd), "enc.output_norm")
        g.output("hidden", g.get_rows(x, g.output_ids))
        for i in range(self.n_layer):
            with g.layer(i) as blk:
                g.kv_store(*self.keys_and_values(g, x, blk, i), window=self.window(i))

    def keys_and_values(self, g: GraphBuilder, x: Tensor, blk: str, i: int) -> tuple[Tensor, Tensor | None]:
        """Return the keys and values that layer ``i`` caches for ``x [t, n_embd]``."""
        raise NotImplementedError

    def seen(self, g: GraphBuilder, blk: str, i: int) -> dict[str, Any]:
        """Return options of attention: layer ``i`` attends to its cache and to the block."""
        sinks = attention_sinks(g, blk, self.heads(i).n_head, may_lack=True)
        return {"window": self.window(i), "sinks": sinks, "causal": self.causal, "cache": g.cache(i)}

    def is_sliding(self, i: int) -> bool:
        raise NotImplementedError

    def window(self, i: int) -> int:
        """Return the window, which extends to both sides without a causal mask; a block never exceeds it."""
        window = sliding_window(self.hparams) if self.is_sliding(i) else 0
        if not window:
            return 0
        if window < max(2, self.block_size):
            raise self.hparams.wrong(
                "attention.sliding_window", f"is {window}, expected at least the tokens of a block"
            )
        return window if self.causal else 2 * (window - 1)

    def head(self, g: GraphBuilder, x: Tensor) -> Tensor:
        chains, selects = has_chain(g), has_selector(g, self.hparams)
        if self.mask is not None and self.block_size > 1:
            first = first_of_chain(self.hparams) if chains else 1
            g.drafts_block(DraftBlock(self.block_size, self.mask, first))
        whole = chains or selects  # they depend on other tokens of a block
        x = self.last_stream(g, x if whole else g.get_rows(x, g.output_ids))
        normed = self.norm(g, x, "output_norm")
        logits = self.logits(g, normed)
        if chains:
            logits = chained(g, self.hparams, logits, x if self.is_sure_before_norm else normed)
        if selects:
            logits = selected(g, self.hparams, logits, normed)
        return g.get_rows(logits, g.output_ids) if whole else logits
