"""Resolve names of models: find them on this machine, or fetch them from the Hugging Face Hub or the web."""

from pumice.hub.locate import ClientFetch, Located, fetch, locate
from pumice.hub.media import MediaFetch, media_host

__all__ = ["ClientFetch", "Located", "MediaFetch", "fetch", "locate", "media_host"]
