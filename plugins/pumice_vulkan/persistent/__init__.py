"""Tokens of llama-like models in one dispatch (shaders/persistent.comp): pattern, division of work, and a switch."""

from pumice_vulkan.persistent.path import PersistentPath, is_wanted
from pumice_vulkan.persistent.pattern import Decoder, find_decoder
from pumice_vulkan.persistent.shape import computes

__all__ = [
    "Decoder",
    "PersistentPath",
    "computes",
    "find_decoder",
    "is_wanted",
]
