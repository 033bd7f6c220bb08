"""The layout of an attention layer's keys and values on the device."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.plugin import type_size
from pumice.plugin.unstable import CODINGS, KV_TYPES, KVState, Limits

BLOCK = 32  # values per scale

# Supported by shaders/cache.glsl: floats, and codes of this many bits.
FLOATS = ("f32", "f16", "bf16")
CODE_BITS = (4, 5, 8)


@dataclass(frozen=True)
class Rows:
    """Layout of values in the cache (shaders/cache.glsl): sizes in words per row, and rows per cell."""

    words: int
    scale_words: int  # words of scales at the beginning of a row
    heads: int  # heads per row: all for a quantized cell, which has one row; else 1
    head_dim: int

    @property
    def dim(self) -> int:
        """Values per row."""
        return self.heads * self.head_dim


def is_quantized(kv_type: str) -> bool:
    return KV_TYPES[kv_type] in CODINGS


def can_hold(state: KVState, limits: Limits) -> bool:
    """Return True if the kernels can store these keys and values: types of cache.glsl, heads in words of eight."""
    coding = CODINGS.get(KV_TYPES[limits.kv_type])
    if coding is None:
        return limits.kv_type in FLOATS and limits.can_hold(state)
    supported = coding.is_affine and coding.bits in CODE_BITS
    return supported and limits.can_hold(state) and state.k_dim % 8 == state.v_dim % 8 == 0


def rows(kv_type: str, n_head: int, dim: int) -> Rows:
    type = KV_TYPES[kv_type]
    if type not in CODINGS:
        return Rows(-(-dim // 8) * 8 * type_size(type) // 4, 0, 1, dim)
    n_blocks = n_head * dim // BLOCK
    scale_words = -(-n_blocks * (1 + CODINGS[type].has_minimum) // 4) * 4
    return Rows(scale_words + n_blocks * CODINGS[type].bits, scale_words, n_head, dim)


def cache_defines(kv_type: str) -> dict[str, str | int]:
    """Return the macros of shader variants for this type (shaders/cache.glsl)."""
    coding = CODINGS.get(KV_TYPES[kv_type])
    if coding is None:
        return {f"CACHE_{kv_type.upper()}": 1}
    return {"CACHE_BITS": coding.bits, "CACHE_OFFSET": coding.offset, "CACHE_MINIMUM": int(coding.has_minimum)}


@dataclass(frozen=True)
class CacheLayout:
    """Rows are ``[block, head, cell]``, values behind the keys; without values the keys are used as values."""

    keys: Rows
    values: Rows
    v_offset: int  # offset of the values in words
    words: int

    @classmethod
    def of(cls, state: KVState, limits: Limits) -> CacheLayout:
        n_cells = limits.n_blocks[state.window] * limits.block_size
        keys = rows(limits.kv_type, state.n_head_kv, state.k_dim)
        n_keys = n_cells * state.n_head_kv // keys.heads
        if not state.v_dim:
            return cls(keys, keys, 0, n_keys * keys.words)
        values = rows(limits.kv_type, state.n_head_kv, state.v_dim)
        n_values = n_cells * state.n_head_kv // values.heads
        return cls(keys, values, n_keys * keys.words, n_keys * keys.words + n_values * values.words)

    @property
    def push(self) -> dict[str, int]:
        """Return the push constants that locate rows and their scales in shaders/cache.glsl."""
        return {
            "k_row_words": self.keys.words,
            "v_row_words": self.values.words,
            "k_scale_words": self.keys.scale_words,
            "v_scale_words": self.values.scale_words,
            "v_cache": self.v_offset,
        }
