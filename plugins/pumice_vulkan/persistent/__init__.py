"""Tokens of llama-like models in one dispatch (shaders/persistent.comp): pattern, division of work, and a switch."""

from pumice_vulkan.persistent.path import PersistentPath, expect_cache, is_wanted
from pumice_vulkan.persistent.pattern import Decoder, find_decoder
from pumice_vulkan.persistent.shape import computes

__all__ = [
    "Decoder",
    "PersistentPath",
    "computes",
    "expect_cache",
    "find_decoder",
    "is_wanted",
]
