"""Models by name: found on this machine, or fetched from the Hugging Face Hub or another web address."""

from pumice.hub.locate import Located, fetch, locate

__all__ = ["Located", "fetch", "locate"]
