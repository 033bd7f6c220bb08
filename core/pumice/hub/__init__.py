"""Models by name: found on this machine, or fetched from the Hugging Face Hub or another web address."""

from pumice.hub.locate import ClientFetch, Located, fetch, locate

__all__ = ["ClientFetch", "Located", "fetch", "locate"]
