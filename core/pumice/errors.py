"""Every error a user can cause. Each message is one line: what is wrong, where, and what to do."""


class PumiceError(Exception):
    """Base of all errors that Pumice raises on purpose."""


class GGUFError(PumiceError):
    """A GGUF file that is truncated, inconsistent or not GGUF. The message names the field and its offset."""


class ModelError(PumiceError):
    """A valid file whose model cannot run: unknown architecture, missing or misshapen tensor, bad metadata."""


class TokenizerError(PumiceError):
    """A tokenizer that the file does not describe fully, or of an unknown kind."""


class ConfigError(PumiceError):
    """A wrong key or value in a configuration file or an argument."""


class PluginError(PumiceError):
    """A plugin that failed to load, or two plugins that claim one name."""


class BackendError(PumiceError):
    """A backend that is unknown, unavailable on this machine, or out of memory."""


class RequestError(PumiceError):
    """A generation request that cannot be served: prompt too long, empty, or with bad parameters."""


class HubError(PumiceError):
    """A model that cannot be found or fetched: an unknown name, no access, no network, a damaged download."""
