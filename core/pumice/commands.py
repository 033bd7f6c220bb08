"""The commands that come with Pumice: names, in the order of ``pumice --help``, and where each is imported from."""

_NAMES = (
    "chat",
    "run",
    "info",
    "pull",
    "list",
    "rm",
    "ps",
    "config",
    "plugins",
    "devices",
    "tokenize",
    "bench",
    "gguf",
    "quantize",
    "perplexity",
)

COMMANDS = {name: f"pumice.cli.{name}:command" for name in _NAMES}
