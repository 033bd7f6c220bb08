"""Resolve names of models: find them on this machine, or fetch them from the Hugging Face Hub or the web."""

from pumice.hub.catalogue import ChatDefaults, chat_defaults
from pumice.hub.locate import ClientFetch, Located, fetch, locate
from pumice.hub.media import MediaFetch, media_host
from pumice.hub.modelfile import parse_modelfile

__all__ = [
    "ChatDefaults",
    "ClientFetch",
    "Located",
    "MediaFetch",
    "chat_defaults",
    "fetch",
    "locate",
    "media_host",
    "parse_modelfile",
]
