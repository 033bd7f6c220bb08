"""The commands that come with Pumice: names, in the groups of ``pumice --help``, and where each is imported from."""

GROUPS = {
    "Use a model": ("chat", "run", "serve", "batch", "embed", "tokenize"),
    "Fetch models": ("pull", "list", "rm", "info", "ps"),
    "Make models": ("convert", "quantize", "imatrix", "gguf", "export-lora", "control-vector"),
    "Measure": ("bench", "perplexity"),
    "Set up": ("config", "plugins", "devices", "doctor"),
}
"""The headings of ``pumice --help``, and the commands under each; those of plugins come last."""

DESTRUCTIVE = frozenset(["rm"])
"""Commands that no message suggests for a mistyped one."""

BUNDLED_COMMANDS = {"serve": "pumice_server.command:command", "batch": "pumice_server.batch.command:command"}
"""Those that bundled plugins register by the hook of commands, here too so that help need not load the plugins."""

COMMANDS = {
    name: f"pumice.cli.{name.replace('-', '_')}:command"
    for names in GROUPS.values()
    for name in names
    if name not in BUNDLED_COMMANDS
}
