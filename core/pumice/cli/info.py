"""``pumice info``: properties of a model file."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.confined import ConfinedCommand
from pumice.cli.fit import device_table, placement_of
from pumice.cli.named_models import locate_model
from pumice.cli.options import json_option, load_options, model_argument
from pumice.cli.output import echo
from pumice.cli.vocabulary import option
from pumice.errors import ModelError
from pumice.wording import format_bytes

if TYPE_CHECKING:
    from pumice.gguf import GGUFFile


@click.command("info", cls=ConfinedCommand)
@model_argument
@json_option
@option("--graph", is_flag=True, group="Output", help="Show the graph instead: operations, placement, memory plan.")
@load_options
def command(model: str, as_json: bool, graph: bool, config: dict[str, Any], **options: Any) -> None:
    """Show the properties of a model.

    Architecture, parameters, size, quantization, context length, tokenizer, and what would lie on which device. Options
    of the context, the cache and the placement apply to the latter and to --graph. The default is the demo model.
    """
    path = locate_model(model)
    if graph and as_json:
        raise click.UsageError("give either --graph or --json")
    if graph:
        from pumice.api import describe_graph

        echo(describe_graph(model, config=config, **options))
        return
    from pumice.model_files.opening import open_model

    with open_model(path) as file:
        facts = describe(file)
    try:
        import pumice

        plan = pumice.plan(model, config=config, **options)
    except ModelError as error:
        facts["placement"], shown = None, [f"{'placement':<13} - ({error})"]
    else:
        facts["placement"], shown = plan.placement, [f"{'placement':<13} {placement_of(plan)}", "", *device_table(plan)]
    echo(json.dumps(facts, indent=2) if as_json else "\n".join([format_facts(facts), *shown]))


def describe(file: GGUFFile) -> dict[str, Any]:
    """Return the properties of a file as JSON; None for missing ones."""
    metadata = file.metadata
    parameters: Counter[str] = Counter()
    tensors: Counter[str] = Counter()
    for tensor in file.tensors.values():
        parameters[tensor.type.name] += math.prod(tensor.shape)
        tensors[tensor.type.name] += 1
    return {
        "path": str(file.path),
        "gguf_version": file.version,
        "architecture": file.architecture,
        "name": metadata.get("general.name"),
        "author": metadata.get("general.author"),
        "license": metadata.get("general.license"),
        "description": metadata.get("general.description"),
        "parameters": sum(parameters.values()),
        "bytes": file.n_bytes,
        "n_tensors": len(file.tensors),
        "quantization": {
            name: {"tensors": tensors[name], "parameters": count} for name, count in parameters.most_common()
        },
        "n_layers": metadata.get(f"{file.architecture}.block_count"),
        "n_embd": metadata.get(f"{file.architecture}.embedding_length"),
        "n_ctx_train": metadata.get(f"{file.architecture}.context_length"),
        "tokenizer": metadata.get("tokenizer.ggml.model"),
        "pre_tokenizer": metadata.get("tokenizer.ggml.pre"),
        "n_vocab": len(metadata["tokenizer.ggml.tokens"]) if "tokenizer.ggml.tokens" in metadata else None,
    }


def format_facts(facts: dict[str, Any]) -> str:
    """Return the properties as readable lines."""
    mix = ", ".join(
        f"{name} {100 * part['parameters'] / max(facts['parameters'], 1):.1f}% ({part['tensors']} tensors)"
        for name, part in facts["quantization"].items()
    )
    tokenizer = "/".join(str(facts[key]) for key in ("tokenizer", "pre_tokenizer") if facts[key])
    lines = {
        "architecture": facts["architecture"],
        **{key: facts[key] for key in ("name", "author", "license", "description")},
        "parameters": f"{facts['parameters']:,}",
        "size": f"{format_bytes(facts['bytes'])} in {facts['n_tensors']} tensors, GGUF version {facts['gguf_version']}",
        "quantization": mix,
        "layers": facts["n_layers"],
        "embedding": facts["n_embd"],
        "context": facts["n_ctx_train"] and f"{facts['n_ctx_train']} tokens in training",
        "tokenizer": tokenizer and f"{tokenizer}, {facts['n_vocab']} tokens",
    }
    return "\n".join(f"{key:<13} {value if value not in (None, '') else '-'}" for key, value in lines.items())
