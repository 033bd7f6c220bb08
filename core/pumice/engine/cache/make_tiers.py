"""The tiers of a loaded model, by its configuration."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from pumice.cache_tiers import DiskTier, RamTier
from pumice.cache_tiers.identity import identity_of
from pumice.config import Config
from pumice.engine.cache.tiers import Tiers
from pumice.engine.placement.runner import Runner
from pumice.errors import ModelError

log = logging.getLogger("pumice")

_IRRELEVANT_KEYS = {
    *("cache_ram", "cache_disk", "cache_saved", "cache_disk_limit", "chat_template", "lookahead"),
    *("draft_max", "draft_min", "draft_p_min", "draft_n_ctx", "draft_n_gpu_layers", "n_draft", "speculate"),
    *("prefill_tokens", "max_queue", "memory_limit", "models", "n_batch", "n_parallel", "plugins", "samplers"),
    "sampling",
    *("sandbox", "sandbox_read", "sandbox_write"),
    # known from the placed graphs; these do not say which GPU ``devices``, ``main_gpu`` and ``split_mode`` choose
    *("backend", "backends", "fit", "fit_target", "kv_offload", "n_cpu_ffn", "n_cpu_moe", "n_gpu_layers"),
    *("kv_rotate", "override_tensors", "tensor_split"),
    *("mlock", "mmap", "numa"),
    *("cache_share", "fit_ctx"),
    "kv_type",  # known from the limits
    *("mmproj", "image_min_tokens", "image_max_tokens"),  # known from the rows of images
    "vocoder",
}
"""Keys of the configuration that change no value in the cache, or whose effect is hashed apart from them."""


def make_tiers(
    config: Config, runner: Runner, files: Sequence[str], plugins: Sequence[tuple[str, str | None]]
) -> Tiers | None:
    """Return the configured tiers behind the cache of a compiled model; None without any.

    Args:
        files: the model's files, and those of adapters and drafts.
        plugins: names and versions of those in use.

    Raises:
        ConfigError: the folder cannot be used.
        ModelError: a file cannot be read.
    """
    if not (config.cache_ram or config.cache_folder):
        return None
    tiers = tiers_of(config, runner, files, plugins)
    if tiers is None:
        log.warning(
            "cache_ram, cache_disk, cache_saved: not used: on %s, this model's cache cannot leave the device",
            ", ".join(runner.placed.backends_used),
        )
    return tiers


def tiers_of(
    config: Config, runner: Runner, files: Sequence[str], plugins: Sequence[tuple[str, str | None]]
) -> Tiers | None:
    """Like ``make_tiers``, also if none are configured; None if the cache cannot leave the device."""
    form = runner.cache.form
    loses_states = runner.model.recurrent and not runner.cache.keeps_states
    if form is None or loses_states or runner.model.encodes or not _has_cache(runner):
        return None
    limits = runner.limits
    settings = {name: getattr(config, name) for name in type(config).model_fields if name not in _IRRELEVANT_KEYS}
    facts = (limits.block_size, limits.kv_type, settings, list(plugins), runner.placed.describe())
    try:
        identity = identity_of(files, *facts)
    except OSError as error:
        raise ModelError(f"{error.filename}: cannot be read: {error.strerror}") from None
    ram = RamTier(config.cache_ram * 2**20) if config.cache_ram else None
    folder = Path(os.path.abspath(os.path.expanduser(config.cache_folder)))
    disk = DiskTier(folder, int(config.cache_disk_limit * 2**30), config.cache_option) if config.cache_folder else None
    return Tiers(runner, form, identity, ram, disk, saves_all=bool(config.cache_disk))


def _has_cache(runner: Runner) -> bool:
    return bool(runner.limits.n_blocks) or runner.cache.keeps_states
