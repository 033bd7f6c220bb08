"""The bundled commands: their groups in ``pumice --help``, and the module that each is imported from."""

GROUPS = {
    "Use a model": ("chat", "run", "speak", "transcribe", "serve", "route", "launch", "batch", "embed", "tokenize"),
    "Fetch models": ("pull", "list", "rm", "info", "ps"),
    "Make models": ("convert", "quantize", "create", "imatrix", "gguf", "export-lora", "control-vector"),
    "Measure": ("fit", "bench", "perplexity", "check"),
    "Set up": ("config", "plugins", "devices", "doctor"),
}
"""Headings of ``pumice --help`` and their commands; commands of plugins come last."""

DESTRUCTIVE = frozenset(["rm"])
"""Commands that are never suggested for a mistyped name."""

OTHER_NAMES = {
    "cp": "`pumice create NAME` makes a model of another one, by a Modelfile with FROM",
    "copy": "`pumice create NAME` makes a model of another one, by a Modelfile with FROM",
    **dict.fromkeys(
        ("cuda", "rocm", "metal", "gpu"),
        "GPUs are used by themselves, through Vulkan or MLX; no CUDA or ROCm is needed; `pumice devices` lists them",
    ),
    "migrate": 'the pages "Coming from ..." of the documentation translate commands of other programs',
    "delete": "`pumice rm` removes a downloaded or created model",
    "remove": "`pumice rm` removes a downloaded or created model",
    "download": "`pumice pull` downloads a model",
    "get": "`pumice pull` downloads a model",
    "generate": "`pumice run` continues a prompt",
    "load": "`pumice serve` loads models and serves them",
    "ls": "`pumice list` lists downloaded and created models",
    "models": "`pumice list` lists downloaded and created models",
    "push": "Pumice publishes no models; `hf upload` of huggingface_hub does",
    "server": "`pumice serve` serves models over HTTP",
    "show": "`pumice info` shows the properties of a model",
    "start": "`pumice serve` serves models over HTTP",
    "stop": "Ctrl-C ends a command; POST /models/unload frees a model of `pumice serve`",
    "unload": "Ctrl-C ends a command; POST /models/unload frees a model of `pumice serve`",
}
"""Commands of Ollama, LM Studio and llama.cpp that have another name here, or none, with what to do instead."""

BUNDLED_COMMANDS = {
    "serve": "pumice_server.command.serve:command",
    "route": "pumice_server.routing.command:command",
    "batch": "pumice_server.batch.command:command",
}
"""Commands of bundled plugins, repeated here so that help does not load the plugins."""

COMMANDS = {
    name: f"pumice.cli.{name.replace('-', '_')}:command"
    for names in GROUPS.values()
    for name in names
    if name not in BUNDLED_COMMANDS
}
