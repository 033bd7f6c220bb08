"""Loading a model: a thread opens GPUs while the rest of the package is imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from pumice.options import ENGINE, EngineOptions, documented
from pumice.switching import without_collections
from pumice.tracebacks import short_traceback

if TYPE_CHECKING:
    from pumice.engine.placement.runner import Observer
    from pumice.model import Model


@short_traceback
@documented(ENGINE)
def load(
    path: str | Path | None = None,
    *,
    config: Mapping[str, object] | None = None,
    plugins: Sequence[object] = (),
    progress: Callable[[int, int], None] | None = None,
    observer: Observer | None = None,
    **options: Unpack[EngineOptions],
) -> Model:
    """Load a model, or the demo model. Options that are not given, or None, come from the configuration.

    Args:
        path: GGUF file, Hugging Face folder, or name of a model such as ``"hf.co/owner/repository:Q4_K_M"``, which is
            downloaded if it is not on this machine. None loads the demo model.
        config: Further settings, with the keys of a configuration file: options of backends, such as
            ``{"cpu": {"threads": 2}}``.
        plugins: Modules or other objects with hooks, as plugins for this load only. Their names replace those of
            installed plugins.
        progress: Called with the number of finished steps and of all steps while the model compiles.
        observer: Receives values inside each step, for example a ``pumice.imatrix.Collector``. With an observer the
            device computes one step at a time, which is slower.

    Raises:
        PumiceError: HubError, GGUFError, ModelError, ConfigError, PluginError or BackendError.
    """
    with without_collections(makes_old=True):  # imports, too, make many objects that stay
        from pumice.model_files.locating import locate_configured
        from pumice.registry.settings import get_registry

        file, settings = locate_configured(path, config, options)
        registry = get_registry(settings, plugins)
        from pumice.engine.placement.backends import OpeningBackends
        from pumice.host_memory import numa_policy

        with numa_policy(settings.numa):
            opening = OpeningBackends(registry, settings)
        try:
            from pumice.local_engine import load_model
        except BaseException:
            opening.close()
            raise
        return load_model(file, settings, progress=progress, observer=observer, opening=opening, begins_text=True)
