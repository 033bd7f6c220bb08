"""What the process of an engine may do."""

from __future__ import annotations

import contextlib
import glob
import itertools
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pumice.config import Config
from pumice.errors import EngineError, PluginError, SandboxError
from pumice.gguf.split import SPLIT_NAME
from pumice.guard import guarded
from pumice.process.codec import Load, decode_command
from pumice.registry import Registry, get_registry
from pumice.running import directory
from pumice.sandbox import Access, Launch, Policy, interpreter, launch, make_cache, missing, switched_off

WORKER = "pumice.process.worker"
_WEIGHTS = (".gguf", ".safetensors")
_MOST_FILES = 200
_STRENGTHS = ("off", "auto", "on")


_READER = "pumice.process.reader"
_READER_SECONDS = 60  # of processor time

_kept: tuple[Config, Sequence[str]] | None = None


def keep_sandbox(config: Config, models: Sequence[str]) -> None:
    """From now on start no engine that is confined less than ``config`` says, or reads others than these models.

    ``models``: files and folders, with the weights that links in these lead to now.
    """
    global _kept
    _kept = config, [os.path.realpath(file) for model in models for file in (model, *_linked(Path(model)))]


def launch_engine(order: bytes) -> Launch:
    """How the engine of an encoded ``Load`` is started. Raises as ``engine_policy``."""
    load = decode_command(order)
    if not isinstance(load, Load):
        raise EngineError(f"{type(load).__name__} orders no engine")
    if _kept and _is_weaker(load.config, _kept[0]):
        raise SandboxError(f"{load.path}: the sandbox cannot be weakened while the server runs: start it again")
    for file in (load.path, *files_beside(load.config)):
        _check_served(file)
    return launch(WORKER, policy=engine_policy(load.path, load.config, get_registry(load.config)))


def is_confined(config: Config) -> bool:
    """Whether the configuration wants processes confined. Raises SandboxError where it demands what is not there."""
    if config.sandbox == "off" or switched_off():
        return False
    if config.sandbox == "on" and (absent := missing()):
        raise SandboxError(f"sandbox: on, but {'; '.join(absent)}; see `pumice doctor`")
    return True


def engine_policy(path: Path, config: Config, registry: Registry) -> Policy | None:
    """The policy of an engine for the model at ``path``; None: the configuration wants none.

    Until the model is loaded the engine may start Python, confined as it is: kernels are compiled, drivers are tried.
    Raises SandboxError where the configuration demands what the system does not have.
    """
    if not is_confined(config):
        return None
    files = tuple(os.path.abspath(file) for model in (path, *files_beside(config)) for file in _files_of(model))
    told = directory()
    with contextlib.suppress(OSError):
        told.mkdir(mode=0o700, parents=True, exist_ok=True)
    write = (str(told), *map(_absolute, config.sandbox_write))
    access = Access((*files, *map(_absolute, config.sandbox_read)), write)
    for backend in _backends(config, registry):
        access |= backend
    return Policy(access | _plugins(registry), make_cache(), execute=interpreter(), required=config.sandbox == "on")


def launch_reader(order: bytes) -> Launch:
    """How a reader of headers is started; the order is a list of files' names.

    It gets an empty one in the place of a file that is not served. Raises EngineError.
    """
    try:
        paths = [Path(os.path.abspath(os.fsdecode(name))) for name in msgspec.msgpack.decode(order, type=list[bytes])]
    except (msgspec.MsgspecError, ValueError) as error:
        raise EngineError(f"the order of a reader is wrong: {error}") from None
    files = tuple(file for path in paths if _is_served(path) for file in _files_of(path))
    policy = Policy(Access(files), limits={"CPU": _READER_SECONDS, "FSIZE": 0})
    names = [str(path) if _is_served(path) else "" for path in paths]
    return launch(_READER, names, None if switched_off() else policy)


def files_beside(config: Config) -> list[Path]:
    """What an engine reads beside its model."""
    return [Path(file) for file in (config.draft, *(each.file for each in config.adapters.values())) if file]


def _check_served(file: Path) -> None:
    if not _is_served(file):
        raise SandboxError(
            f"{file}: the server was not started with this model: name it on the command line of "
            "`pumice serve` or below `models:` in the configuration, and start the server again"
        )


def _is_served(file: Path) -> bool:
    real = Path(os.path.realpath(file))
    return _kept is None or any(real.is_relative_to(model) for model in _kept[1])


def _is_weaker(config: Config, than: Config) -> bool:
    more = set(config.sandbox_read) - set(than.sandbox_read) or set(config.sandbox_write) - set(than.sandbox_write)
    grows = (config.memory_limit or math.inf) > (than.memory_limit or math.inf)
    return bool(more) or grows or _STRENGTHS.index(config.sandbox) < _STRENGTHS.index(than.sandbox)


def _files_of(model: Path) -> Iterator[str]:
    """The file of a model and its other parts, or a folder and the weights that its links lead to.

    In the cache of huggingface_hub all files are links to the folder ``blobs``. Elsewhere the maker of a folder may
    have put links to whatever files of the user they could think of: no folder is read for those in it.

    The policy is passed in a variable of the environment, which many files do not fit in. Raises SandboxError.
    """
    yield str(model)
    if not model.is_dir():
        if part := SPLIT_NAME.fullmatch(model.name):
            parts = glob.glob(str(model.parent / f"{glob.escape(part['prefix'])}-*-of-{part['count']}.gguf"))
            yield from parts if len(parts) <= _MOST_FILES else [str(model.parent)]
    elif model.parent.name == "snapshots" and not (model.parents[1] / "blobs").is_symlink():
        yield str(model.parents[1] / "blobs")
    else:
        targets = list(itertools.islice(_linked(model), _MOST_FILES + 1))
        if len(targets) > _MOST_FILES:
            raise SandboxError(
                f"{model}: more than {_MOST_FILES} links to weights outside of it, which the sandbox does not allow: "
                "put the files themselves there"
            )
        for target in targets:
            _check_served(Path(target))
        yield from targets


def _linked(model: Path) -> Iterator[str]:
    """Files of weights elsewhere that links in a folder lead to."""
    folder = os.path.realpath(model)
    links = (os.path.realpath(file) for file in model.rglob("*") if file.is_symlink()) if model.is_dir() else ()
    for target in links:
        if target.endswith(_WEIGHTS) and os.path.isfile(target) and not Path(target).is_relative_to(folder):
            yield target


def _backends(config: Config, registry: Registry) -> Iterator[Access]:
    """What the backends that the engine may take ask for. One that fails asks for nothing: the engine will say why."""
    for name in {config.backend, *config.backends} & set(registry.backends):
        with contextlib.suppress(PluginError):
            backend = registry.backends.find(name)
            if config.backend in ("auto", name) or not backend.offload:
                yield guarded(backend.access, f"{registry.backends.describe(name)}: access")()


def _plugins(registry: Registry) -> Access:
    """Folders of plugins, which may lie elsewhere than what Python imports from."""
    return Access(tuple(str(Path(file).parent) for file in registry.files()))


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))
