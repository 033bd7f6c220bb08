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
    "doctor",
    "tokenize",
    "embed",
    "bench",
    "gguf",
    "convert",
    "export-lora",
    "quantize",
    "imatrix",
    "control-vector",
    "perplexity",
)

COMMANDS = {name: f"pumice.cli.{name.replace('-', '_')}:command" for name in _NAMES}

BUNDLED_COMMANDS = {"serve": "pumice_server.command:command", "batch": "pumice_server.batch.command:command"}
"""Those that bundled plugins register by the hook of commands, here too so that help need not load the plugins."""
