"""The bundled commands: their groups in ``pumice --help``, and the module that each is imported from."""

GROUPS = {
    "Use a model": ("chat", "run", "speak", "serve", "launch", "batch", "embed", "tokenize"),
    "Fetch models": ("pull", "list", "rm", "info", "ps"),
    "Make models": ("convert", "quantize", "create", "imatrix", "gguf", "export-lora", "control-vector"),
    "Measure": ("fit", "bench", "perplexity"),
    "Set up": ("config", "plugins", "devices", "doctor"),
}
"""Headings of ``pumice --help`` and their commands; commands of plugins come last."""

DESTRUCTIVE = frozenset(["rm"])
"""Commands that are never suggested for a mistyped name."""

BUNDLED_COMMANDS = {"serve": "pumice_server.command:command", "batch": "pumice_server.batch.command:command"}
"""Commands of bundled plugins, repeated here so that help does not load the plugins."""

COMMANDS = {
    name: f"pumice.cli.{name.replace('-', '_')}:command"
    for names in GROUPS.values()
    for name in names
    if name not in BUNDLED_COMMANDS
}
