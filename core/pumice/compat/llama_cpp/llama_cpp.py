"""The functions of llama.cpp that packages call beside ``Llama``: vocabularies, and steps of one sequence.

Handles of models, contexts, vocabularies and memories are numbers.
"""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pumice.compat.llama_cpp.sequence import SequenceMethods

__all__ = [
    "GGML_TYPE_F16",
    "GGML_TYPE_F32",
    "GGML_TYPE_Q4_0",
    "GGML_TYPE_Q8_0",
    "LLAMA_POOLING_TYPE_CLS",
    "LLAMA_POOLING_TYPE_LAST",
    "LLAMA_POOLING_TYPE_MEAN",
    "LLAMA_POOLING_TYPE_NONE",
    "LLAMA_POOLING_TYPE_RANK",
    "LLAMA_POOLING_TYPE_UNSPECIFIED",
    "LLAMA_SPLIT_MODE_LAYER",
    "LLAMA_SPLIT_MODE_NONE",
    "LLAMA_TOKEN_ATTR_CONTROL",
    "LLAMA_TOKEN_ATTR_NORMAL",
    "LLAMA_TOKEN_ATTR_USER_DEFINED",
    "llama_batch_free",
    "llama_batch_init",
    "llama_decode",
    "llama_get_logits",
    "llama_get_memory",
    "llama_memory_seq_rm",
    "llama_model_get_vocab",
    "llama_supports_gpu_offload",
    "llama_token_get_attr",
    "llama_token_to_piece",
    "llama_vocab_eos",
    "llama_vocab_n_tokens",
    "llama_vocab_p",
]

GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q4_0, GGML_TYPE_Q8_0 = 0, 1, 2, 8
LLAMA_SPLIT_MODE_NONE, LLAMA_SPLIT_MODE_LAYER = 0, 1
LLAMA_POOLING_TYPE_UNSPECIFIED, LLAMA_POOLING_TYPE_NONE = -1, 0
LLAMA_POOLING_TYPE_MEAN, LLAMA_POOLING_TYPE_CLS, LLAMA_POOLING_TYPE_LAST, LLAMA_POOLING_TYPE_RANK = 1, 2, 3, 4
LLAMA_TOKEN_ATTR_NORMAL, LLAMA_TOKEN_ATTR_CONTROL, LLAMA_TOKEN_ATTR_USER_DEFINED = 4, 8, 16

HANDLES: weakref.WeakValueDictionary[int, SequenceMethods] = weakref.WeakValueDictionary()
llama_vocab_p = int
_Text = ctypes.Array[ctypes.c_char]


@dataclass
class LlamaBatch:
    """Tokens of a step, of which the first ``n_tokens`` count; all belong to the one sequence."""

    n_tokens: int
    token: list[int]
    pos: list[int]
    n_seq_id: list[int]
    seq_id: list[list[int]]
    logits: list[bool]


def llama_supports_gpu_offload() -> bool:
    """Return True: a GPU with a Vulkan driver can compute layers."""
    return True


def llama_model_get_vocab(model: int) -> int:
    """Return the vocabulary of a model."""
    return model


def llama_vocab_n_tokens(vocab: int) -> int:
    """Return the number of tokens."""
    return HANDLES[vocab]._tokens_of.n_vocab


def llama_vocab_eos(vocab: int) -> int:
    """Return the token that ends texts; -1 without one."""
    return HANDLES[vocab].token_eos()


def llama_token_get_attr(vocab: int, token: int) -> int:
    """Return the kind of a token."""
    vocabulary = HANDLES[vocab]._tokens_of.vocabulary
    if token in vocabulary.control:
        return LLAMA_TOKEN_ATTR_CONTROL
    return LLAMA_TOKEN_ATTR_USER_DEFINED if token in vocabulary.user_defined else LLAMA_TOKEN_ATTR_NORMAL


def llama_token_to_piece(vocab: int, token: int, buf: _Text, length: int, lstrip: int, special: bool) -> int:
    """Write the bytes of a token to a buffer, and return their number; if it has no room, minus that."""
    piece = HANDLES[vocab]._tokens_of.token_bytes(token, special=bool(special))
    if len(piece) > length:
        return -len(piece)
    ctypes.memmove(buf, piece, len(piece))
    return len(piece)


def llama_batch_init(n_tokens: int, embd: int, n_seq_max: int) -> LlamaBatch:
    """Return a batch with room for ``n_tokens`` tokens."""
    zeros = [0] * n_tokens
    return LlamaBatch(0, [*zeros], [*zeros], [*zeros], [[0] for _ in zeros], [False] * n_tokens)


def llama_batch_free(batch: LlamaBatch) -> None:
    """Do nothing: Python frees a batch."""


def llama_get_memory(ctx: int) -> int:
    """Return the memory of a context."""
    return ctx


def llama_memory_seq_rm(mem: int, seq_id: int, p0: int, p1: int) -> bool:
    """Forget the positions of the sequence from ``p0`` on; return False for a range that ends earlier."""
    llama = HANDLES[mem]
    if p1 >= 0:
        return False
    llama.n_tokens = min(llama.n_tokens, max(0, p0))
    return True


def llama_decode(ctx: int, batch: LlamaBatch) -> int:
    """Read the tokens of a batch after those of the sequence; return 1 if the context has no room for them."""
    llama = HANDLES[ctx]
    if llama.n_tokens + batch.n_tokens > llama.n_ctx():
        return 1
    llama.eval(batch.token[: batch.n_tokens])
    return 0


def llama_get_logits(ctx: int) -> ctypes._Pointer[ctypes.c_float]:
    """Return the logits of the latest batch, float32 ``[n_tokens, n_vocab]``; with ``logits_all=False`` the last."""
    return HANDLES[ctx].latest_scores.ctypes.data_as(ctypes.POINTER(ctypes.c_float))


_TOKENIZE = ctypes.CFUNCTYPE(
    *(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32),
    *(ctypes.POINTER(ctypes.c_int32), ctypes.c_int32, ctypes.c_bool, ctypes.c_bool),
)


def _tokenize(vocab: int, text: int, length: int, tokens: int, most: int, add_special: bool, parse: bool) -> int:
    """Write the tokens of a text in UTF-8; return their number, or minus that if they do not fit."""
    ids = HANDLES[vocab].tokenize(ctypes.string_at(text, length) if length else b"", add_special, parse)
    if len(ids) > most:
        return -len(ids)
    ctypes.memmove(tokens, np.array(ids, np.int32).tobytes(), 4 * len(ids))
    return len(ids)


class _Library:
    """The functions that are called from outside of Python."""

    llama_tokenize = _TOKENIZE(_tokenize)


_lib = _Library()
