"""Tokens of llama-like models in one dispatch (shaders/persistent.comp): pattern, division of work, and a switch."""

from pumice_vulkan.persistent.path import BUCKET as PERSISTENT_BUCKET
from pumice_vulkan.persistent.path import PersistentPath, expect_cache, is_wanted

__all__ = ["PERSISTENT_BUCKET", "PersistentPath", "expect_cache", "is_wanted"]
