"""Tiers of memory behind the device: blocks of the KV cache and recurrent states in host memory and on disk."""

from pumice.cache_tiers.disk import DiskTier, check_folder
from pumice.cache_tiers.entry import Entry, Tally
from pumice.cache_tiers.ram import RamTier

__all__ = ["DiskTier", "Entry", "RamTier", "Tally", "check_folder"]
