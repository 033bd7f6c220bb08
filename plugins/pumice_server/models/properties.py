"""llama-server's properties of a model, for ``/props``, without paths of this machine."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pumice
from pumice_server.answer_types import DevicePart, Properties
from pumice_server.models.figures import build_info
from pumice_server.models.generation_settings import generation_settings
from pumice_server.models.prompts import MEDIA_MARKER
from pumice_server.models.served_model import ServedModel
from pumice_server.models.service import Service
from pumice_server.settings import Settings

logger = logging.getLogger("pumice")

_MODALITIES = {"vision": "image", "video": "video", "audio": "audio"}


def properties(served_model: ServedModel, service: Service, settings: Settings) -> Properties:
    """Return the properties of a loaded model. The first call is slow, since it renders chats by the template.

    The path is the name of the file with ``compat``, else the name of the model.
    """
    model = service.model
    bos, eos = model.tokenizer.bos, model.tokenizer.eos
    capabilities = dict(_capabilities(service))
    return Properties(
        default_generation_settings={"params": generation_settings(service, {}), "n_ctx": model.n_ctx},
        n_ctx_train=model.facts.n_ctx_train,
        n_cache=model.facts.n_cache,
        total_slots=model.config.n_parallel,
        model_alias=service.name,
        model_ftype=model.summary.file_type,
        model_path=Path(served_model.spec.path).name if settings.compat else service.name,
        placement=[
            DevicePart(name=each.name, is_gpu=each.is_gpu, bytes=each.bytes, parts=each.parts, layers=each.layers)
            for each in model.facts.devices
        ],
        modalities={name: kind in model.facts.media for name, kind in _MODALITIES.items()},
        media_marker=MEDIA_MARKER,
        endpoint_slots=settings.slots,
        endpoint_props=False,
        endpoint_metrics=settings.metrics,
        chat_template=model.config.chat_template or model.metadata.get("tokenizer.chat_template", ""),
        chat_template_tool_use=model.metadata.get("tokenizer.chat_template.tool_use") or None,
        chat_template_caps=capabilities,
        tools_in="template" if capabilities.get("supports_tools") else "system message",
        bos_token="" if bos is None else model.tokenizer.token_text(bos),
        eos_token="" if eos is None else model.tokenizer.token_text(eos),
        build_info=build_info(settings.compat),
        ui=settings.page,
        cors_proxy_enabled=False,
    )


def _capabilities(service: Service) -> Mapping[str, bool]:
    """Return what the chat template supports; nothing for a template that cannot be compiled within its limits."""
    try:
        return service.model.template.capabilities(service.assumed_template)
    except (pumice.ModelError, pumice.TooExpensiveError) as error:
        logger.warning("%s: %s", service.name, error)
        return {}
