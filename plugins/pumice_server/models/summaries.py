"""Descriptions of served models, loaded or not, in the formats of Ollama and llama-server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pumice
from pumice.cli.named_models import media_of, projector_of, summarize_models
from pumice.plugin.unstable import ModelSpec, transcribes
from pumice_server.answer_types import ListedModel, OllamaDetails
from pumice_server.models.model_texts import ModelTexts
from pumice_server.models.served_model import ServedModel
from pumice_server.pools import FACTS

#: llama.cpp's numbers of tokenizers, by `tokenizer.ggml.model`.
_VOCAB_TYPES = {"llama": 1, "gpt2": 2, "bert": 3, "t5": 4, "rwkv": 5, "plamo2": 6}
_REASONING = ("<think", "<|think", "[THINK]", "<seed:think>", "<mm:think>", "enable_thinking", "reasoning_content")
_UNITS = ((10**9, "B", 1), (10**6, "M", 2), (10**3, "K", 0))


async def summary_of(served_model: ServedModel) -> pumice.Summary | None:
    """Return the summary of a model's header; None if the model is not on this machine yet."""
    return (await summaries_of([served_model]))[0][1]


async def summaries_of(served_models: Sequence[ServedModel]) -> list[tuple[ServedModel, pumice.Summary | None]]:
    """Return models with their summaries. Unread headers are read together."""
    unread = [
        served_model for served_model in served_models if not served_model.service and served_model.summary is None
    ]
    if unread:
        summaries = await FACTS(_summaries, [served_model.spec for served_model in unread])
        for served_model, (summary, media) in zip(unread, summaries, strict=True):
            served_model.summary, served_model.media = summary, media
    return [
        (served_model, served_model.service.model.summary if served_model.service else served_model.summary)
        for served_model in served_models
    ]


def _summaries(specs: Sequence[ModelSpec]) -> list[tuple[pumice.Summary | None, Sequence[str]]]:
    """Return the summaries of models, and the kinds of media that they take."""
    projectors = [projector_of(spec.path, _mmproj(spec)) for spec in specs]
    summaries = summarize_models([*(spec.path for spec in specs), *filter(None, projectors)])
    of_projectors = iter(summaries[len(specs) :])
    return [
        (summary, media_of([summary, *([next(of_projectors)] if projector else [])]))
        for summary, projector in zip(summaries, projectors, strict=False)
    ]


def _mmproj(spec: ModelSpec) -> str:
    return str(spec.options.get("mmproj") or spec.options.get("config", {}).get("mmproj") or "")


def listed(served_model: ServedModel, summary: pumice.Summary | None, name: str = "") -> ListedModel:
    """Return an item of Ollama's ``/api/tags``; ``name`` is a variant's."""
    return ListedModel(
        name=name or served_model.name,
        model=name or served_model.name,
        modified_at=time_text(summary.modified if summary and summary.modified else served_model.created),
        size=summary.n_bytes if summary else served_model.spec.size,
        digest=summary.digest if summary else "",
        details=details(summary),
    )


def details(summary: pumice.Summary | None) -> OllamaDetails:
    family = summary.architecture if summary else ""
    return OllamaDetails(
        parent_model="",
        format="gguf",
        family=family,
        families=[family] if family else [],
        parameter_size=human(summary.n_parameters) if summary else "",
        quantization_level=summary.file_type if summary else "",
    )


def capabilities(
    summary: pumice.Summary | None, service: ModelTexts | None = None, media: Sequence[str] = ()
) -> list[str]:
    """Return the capabilities of a model by Ollama's names.

    Args:
        summary: summary of the model's file.
        service: a loaded model, which knows what it takes.
        media: kinds of media that one takes which is not loaded.
    """
    if summary is None:
        return ["completion"]
    metadata = summary.metadata
    media = service.model.facts.media if service else media
    template = str(metadata.get("tokenizer.chat_template", ""))
    embeds = f"{summary.architecture}.pooling_type" in metadata
    fills_in = any(f"tokenizer.ggml.{name}_token_id" in metadata for name in ("fim_pre", "prefix"))
    abilities = {
        "embedding": embeds,
        "completion": not embeds and not transcribes(metadata),
        "vision": "image" in media,
        "audio": "audio" in media,
        "tools": "tools" in template or "tokenizer.chat_template.tool_use" in metadata,
        "insert": fills_in,
        "thinking": any(mark in template for mark in _REASONING),
    }
    return [name for name, can in abilities.items() if can]


def meta(summary: pumice.Summary) -> dict[str, Any]:
    """Return llama-server's ``meta`` of a model."""
    return {
        "architecture": summary.architecture,
        "vocab_type": _VOCAB_TYPES.get(str(summary.metadata.get("tokenizer.ggml.model", "")), 0),
        "n_vocab": summary.n_vocab,
        "n_ctx_train": summary.size("context_length"),
        "n_embd": summary.size("embedding_length"),
        "n_params": summary.n_parameters,
        "size": summary.n_bytes,
        "ftype": summary.file_type,
    }


def human(n: int) -> str:
    """Return a number of parameters in Ollama's format: 8.0e9 is ``8B``, 1.24e9 is ``1.2B``."""
    for unit, letter, digits in _UNITS:
        if n >= unit:
            return f"{n / unit:.{0 if n % unit == 0 else digits}f}{letter}"
    return str(n)


def time_text(seconds: float) -> str:
    """Return seconds since 1970 in Ollama's format."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
