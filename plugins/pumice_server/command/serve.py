"""The command ``pumice serve``."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

import pumice
from pumice.cli.ahead import discard_engine, prepare_engine
from pumice.cli.cluster import cluster_options, take_cluster
from pumice.cli.files import InputFile, ModelName
from pumice.cli.messages import show_logs
from pumice.cli.named_models import locate_model, require_file
from pumice.cli.options import (
    engine_options,
    no_sandbox_option,
    parse_settings,
    separated,
    setting_option,
    take_template,
    template_options,
    threads_option,
)
from pumice.cli.structured_output import take_output
from pumice.cli.vocabulary import SizeType, defined, option
from pumice.options import ENGINE, REQUEST
from pumice_server.command.allowed_tools import allowed_servers, tool_options
from pumice_server.command.arguments import ServeCommand
from pumice_server.command.choice import (
    adapter_options,
    choose_models,
    make_specs,
    refuse_wrong,
    size_of,
    take_adapters,
    with_presets,
)
from pumice_server.command.defaults import default_options, take_chat, take_compat, take_sampling
from pumice_server.command.environment import predict_route
from pumice_server.command.listening_options import check_open_files, key_file_option, port_option
from pumice_server.command.presets import read_presets
from pumice_server.keys import APIKeys
from pumice_server.settings import Settings

if TYPE_CHECKING:
    from pumice.plugin.unstable import ModelSpec

_OF_ONE_MODEL = ("model", "hf_repo", "hf_file", "model_url", "alias", "tags")  # options that name it
_MOST_VOICES = 100
_QUEUE_PER_SEQUENCE = 16  # requests that may wait, for each sequence that runs


_model_option = partial(option, group="Model")
_further_model_option = partial(option, group="Model", advanced=True)
_security_option = partial(option, group="Security")
_further_security_option = partial(option, group="Security", advanced=True)
_server_option = partial(option, group="Server")
_further_server_option = partial(option, group="Server", advanced=True)


def _media_hosts(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[str]:
    if not values:
        return []
    from pumice.hub import media_host

    try:
        return [media_host(name) for name in separated(values)]
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _voices(ctx: click.Context, param: click.Parameter, folder: Path | None) -> dict[str, pumice.Voice | pumice.Audio]:
    """Return the voices of a folder by the names of their files."""
    if folder is None:
        return {}
    from pumice.plugin.unstable import VOICE_SOUNDS, read_voice

    kinds = (".json", *VOICE_SOUNDS)
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in kinds)
    return {
        file.stem: pumice.Voice.read(file) if file.suffix.lower() == ".json" else read_voice(file)
        for file in files[:_MOST_VOICES]
    }


@click.command("serve", cls=ServeCommand)
@click.argument("names", metavar="[MODEL]...", nargs=-1, type=ModelName())
@_model_option(
    "-m", "--model", multiple=True, metavar="MODEL", help="Model, instead of the argument MODEL. Repeatable."
)
@_model_option(
    "-hf",
    "--hf-repo",
    aliases=("-hfr",),
    multiple=True,
    metavar="REPO",
    help="Model of the Hugging Face Hub, as OWNER/REPOSITORY[:QUANTIZATION]. Repeatable.",
)
@_further_model_option("-hff", "--hf-file", metavar="FILE", help="File of the --hf-repo.")
@_further_model_option("-mu", "--model-url", multiple=True, metavar="URL", help="Model of a web address. Repeatable.")
@_further_model_option("-hft", "--hf-token", metavar="TOKEN", help="Token for private and gated repositories.")
@_model_option("--offline", is_flag=True, help="Download nothing; serve models of this machine.")
@_model_option("--models-dir", type=click.Path(path_type=Path), metavar="DIR", help="Serve the models in a folder.")
@_model_option("--models-catalogue", is_flag=True, help="Serve the models that the configuration names.")
@_further_model_option(
    "--models-preset",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Serve the models of an INI file, each section of which has a model's options (as llama-server's).",
)
@_model_option("-a", "--alias", metavar="NAMES", help="Names of the served model, separated by commas.")
@_further_model_option("--tags", metavar="NAMES", help="Tags of the models in lists, separated by commas.")
@_further_model_option(
    "--models-max",
    "max_models",
    default=4,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="Maximum number of loaded models; 0: unlimited.",
)
@_further_model_option(
    "--models-memory",
    type=SizeType("GiB"),
    metavar="SIZE",
    help="Maximum memory of all models: in GiB, or with a unit such as 500MiB; 0: unlimited.  [default: 90 % of the "
    "machine's]",
)
@_further_model_option(
    "--sleep-idle-seconds",
    type=click.FloatRange(-1),
    metavar="SECONDS",
    help="Unload a model after this many seconds without requests; -1: never.  [default: -1]",
)
@_further_model_option("--allow-pull", is_flag=True, help="Let clients download models.")
@_further_model_option(
    "--allow-uploads",
    default=0,
    type=SizeType("GiB"),
    metavar="SIZE",
    help="Let clients upload model files of at most SIZE altogether: in GiB, or with a unit such as 500MiB; 0: none.  "
    "[default: 0]",
)
@_server_option(
    "--host",
    multiple=True,
    metavar="ADDRESS",
    help="Address to listen on. Repeatable, or with commas.  [default: 127.0.0.1]",
)
@port_option
@_server_option(
    "-to",
    "--timeout",
    default=600.0,
    show_default=True,
    type=click.FloatRange(1),
    metavar="SECONDS",
    help="Request timeout in seconds, including time in the queue.",
)
@_further_server_option(
    "--max-queue",
    type=click.IntRange(1),
    metavar="N",
    help="Maximum number of waiting requests.  [default: 16 for each of --parallel]",
)
@_further_server_option(
    "--max-requests-per-minute",
    "max_requests",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="Maximum requests per minute and API key; 0: unlimited.",
)
@_further_server_option(
    "--max-tokens-per-minute",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="Maximum tokens per minute and API key; 0: unlimited.",
)
@_server_option("--ui/--no-ui", "page", aliases=("--webui/--no-webui",), default=True, help="Serve the web page.")
@_further_server_option(
    "--conversations",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Store the web page's conversations in FILE.",
)
@_further_server_option(
    "--batches", is_flag=True, help="Serve /v1/files and /v1/batches; files and results are kept in the cache folder."
)
@_further_security_option(
    "--allow-media-from",
    "media_hosts",
    multiple=True,
    metavar="HOSTS",
    callback=_media_hosts,
    help="Host from which images are fetched that requests name by https:// URLs. Repeatable, or with commas.",
)
@tool_options("Security")
@_further_server_option(
    "--voices",
    type=InputFile(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    callback=_voices,
    help="Folder of voices for /v1/audio/speech, read at startup: NAME.json (OuteTTS) or sounds (Pocket TTS).",
)
@_further_server_option("--hidden-states", is_flag=True, help="Serve /hidden-states.")
@_further_server_option("--slots/--no-slots", default=True, help="Serve /slots.")
@_further_server_option(
    "--slot-save-path",
    "slot_folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Existing folder for saved slots and their caches.",
)
@option(
    "--lora-dir",
    "adapter_folder",
    group="Adapters",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    advanced=True,
    help="Folder of adapters that clients may add by POST /lora-adapters.",
)
@_further_server_option("--metrics", is_flag=True, help="Serve /metrics; without --compat it is always served.")
@_further_server_option(
    "--compat",
    type=click.Choice(["llama-server"]),
    help="Answer as llama-server does where that would be wrong for clients of other servers.",
)
@_further_server_option(
    "-kvu/-no-kvu",
    "--kv-unified/--no-kv-unified",
    default=None,
    help="With --compat: do not divide --ctx-size by --parallel.",
)
@_further_server_option("--log-jsonl", is_flag=True, help="Log lines of JSON, including one for each request.")
@_security_option(
    "--api-key",
    multiple=True,
    metavar="KEYS",
    envvar="LLAMA_API_KEY",
    help="API keys that clients must send. Repeatable, or with commas.",
)
@key_file_option()
@_security_option(
    "--ssl-key-file", "tls_key", type=click.Path(path_type=Path), metavar="FILE", help="Private key for TLS (PEM)."
)
@_security_option(
    "--ssl-cert-file",
    "tls_certificate",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Certificates for TLS (PEM).",
)
@_further_security_option(
    "--insecure", is_flag=True, help="Listen on addresses that other machines reach, without an API key."
)
@_further_security_option(
    "--allowed-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Host name that clients may call the server by. Repeatable.",
)
@_further_security_option(
    "--cors-origins",
    "cors_origin",
    aliases=("--cors-origin",),
    multiple=True,
    metavar="URL",
    help="Origin of web pages that may send requests; localhost: those of this machine; *: all. Repeatable.",
)
@engine_options
@defined(
    ENGINE["n_parallel"],
    type=int,
    metavar="N",
    help="Maximum number of requests computed at once; others wait.  [default: 4]",
)
@defined(REQUEST["context_shift"], advanced=True)
@option("--no-context-shift", is_flag=True, hidden=True, group="Context", help="The default.")
@threads_option()
@template_options
@defined(
    REQUEST["stop"], multiple=True, metavar="TEXT", help="Text that ends the generation and is left out. Repeatable."
)
@option(
    "--pooling",
    type=click.Choice(["mean", "cls", "last", "rank"]),
    group="Embeddings",
    advanced=True,
    help="Pooling of the tokens' hidden states; rank: the model's.  [default: the model's]",
)
@adapter_options
@setting_option()
@no_sandbox_option
@default_options
@cluster_options
@option(
    "-v",
    "--verbose",
    aliases=("--log-verbose",),
    is_flag=True,
    help="Log progress and decisions of the library to standard error.",
)
def command(names: tuple[str, ...], **options: Any) -> None:
    """Serve models over HTTP.

    Serves the protocols of OpenAI, Anthropic, Ollama and llama-server. MODEL is a GGUF file, or a name such as
    hf.co/owner/repository:Q4_K_M; the default is the demo model. A single model loads at startup, several load on first
    use. Options have llama-server's names; its others are ignored with a warning, or refused with a reason. On Ctrl-C
    and SIGTERM, running requests have 30 seconds to finish.
    """
    check_open_files()
    _prepare_engine(names, options)
    cluster, replicas = take_cluster(options)
    preset_file = options.pop("models_preset")
    of_models = set(options)
    settings, others = _take_server(options, cluster is not None)
    of_models &= set(options)
    _log(others["verbose"], others["log_jsonl"])
    _environment(others["hf_token"], others["offline"])
    settings.check(others["insecure"])
    from pumice.cli.confinement import one_thread

    with one_thread():
        from pumice_server.command.beginning import begun, listen
    own_folders = _own_folders(settings) if cluster is None else {}  # machines of a cluster have other folders
    folder = options["models_dir"]
    specs = [] if preset_file is None else _preset_specs(preset_file, of_models, own_folders)
    paths = choose_models(names, options, bool(specs))
    aliases, tags = _names(options.pop("alias")), _names(options.pop("tags"))
    if settings.compat:
        aliases.sort()  # responses carry the first
    if aliases and len(paths) + len(specs) > 1:
        raise click.UsageError(
            "--alias names a single model; several have the names of their files, or of the catalogue"
        )
    adapters = take_adapters(options)
    if adapters and len(paths) + len(specs) > 1:
        kind = next(iter(adapters.values()))["kind"].replace("_", "-")
        raise click.UsageError(
            f"--{kind} applies to a single model; set the adapters of several models in the catalogue"
        )
    own = _load_options(adapters, options, own_folders)
    specs = with_presets(make_specs(paths, aliases, own, tags), specs)
    if cluster is None:  # machines of a cluster may have other files
        for spec in specs:
            require_file(spec.path)
        if len(specs) > 1:
            refuse_wrong(specs, folder)
    with listen(settings) as sockets:
        if len(specs) == 1:
            locate_model(specs[0].path)
        if cluster is None:
            with begun(specs, settings) as confine:
                _serve(specs, settings, sockets, own, confine=confine)
            return
        with cluster.connected():
            _serve(specs, settings, sockets, own, lambda spec, _, deliver: cluster.load(spec, replicas, deliver))


def _prepare_engine(names: Sequence[str], options: Mapping[str, Any]) -> None:
    """Start a process that imports an engine's modules meanwhile, if one model will be served by this machine."""
    several = ("models_dir", "models_catalogue", "models_preset", "address")
    n_models = len(names) + sum(len(options[name]) for name in ("model", "hf_repo", "model_url"))
    if n_models <= 1 and not any(options[name] for name in several):
        prepare_engine()
        click.get_current_context().call_on_close(discard_engine)  # after an error, while no engine has begun


def _serve(*arguments: Any, **named: Any) -> None:
    """Call ``serving.serve``, whose modules take a while to import. Raises ClickException if one is not installed."""
    from pumice.cli.confinement import one_thread

    try:
        with one_thread():
            from pumice_server.command.serving import serve
    except ModuleNotFoundError as error:
        from pumice.plugin.unstable import install_command

        raise click.ClickException(f"{error.name} is not installed: {install_command('server')}") from None
    serve(*arguments, **named)


def _take_server(options: dict[str, Any], elsewhere: bool) -> tuple[Settings, dict[str, Any]]:
    """Remove the options of the whole server, whose models may run elsewhere; return its settings, and the others."""
    compat = take_compat(options)
    own: dict[str, Any] = {
        "host": ",".join(options.pop("host")) or "127.0.0.1",
        "keys": APIKeys(options.pop("api_key"), options.pop("api_key_file")),
        "compat": compat,
        "metrics": options.pop("metrics") or not compat,
        "verbose": options["verbose"],
        "predict_route": predict_route(os.environ),
        "mcp_servers": allowed_servers(separated(options.pop("allow_tools")), options.pop("mcp_config")),
        "origins": [url for origins in options.pop("cors_origin") for url in origins.split(",")],
        "keep_alive": _seconds(options.pop("sleep_idle_seconds")),
        "uploads": _cache_folder("--allow-uploads", "uploads") if options["allow_uploads"] else None,
        "upload_bytes": int(options.pop("allow_uploads") * 2**30),
        "context_shift": options.pop("context_shift") and not options["no_context_shift"],
        "max_memory": _memory(options.pop("models_memory"), elsewhere),
        "batches": _cache_folder("--batches", "batches") if options.pop("batches") else None,
        "max_tokens": -1 if (limit := options.pop("max_tokens")) is None else limit,
        "pooling": None if (pooling := options.pop("pooling")) == "rank" else pooling,
        "chat": take_chat(options),
        "output": take_output(options),
    }
    same = options.keys() & {field.name for field in fields(Settings)} - own.keys()
    settings = Settings(**{name: options.pop(name) for name in same}, **own)
    del options["no_context_shift"]
    return settings, {name: options.pop(name) for name in ("verbose", "log_jsonl", "hf_token", "offline", "insecure")}


def _preset_specs(path: Path, of_models: Collection[str], own_folders: Mapping[str, Any]) -> list[ModelSpec]:
    """Return the models of a file of presets, with their options. The command line's take precedence."""
    from pumice.plugin.unstable import ModelSpec

    context = click.get_current_context()
    specs = []
    server_wide = (context.params.keys() - of_models) | {"models_dir", "models_catalogue"}
    for name, arguments in read_presets(path, command.params, server_wide).items():
        try:
            options = _merged(context, command.make_context(command.name, arguments))
            take_cluster(options)
            _take_server(options, elsewhere=True)
            paths = choose_models([], options, has_others=True)
            if len(paths) > 1:
                raise click.UsageError(f"names {len(paths)} models; name one")
            names = list(dict.fromkeys([name, *_names(options.pop("alias"))]))
            tags, adapters = _names(options.pop("tags")), take_adapters(options)
            model = paths[0] if paths else name
            specs.append(ModelSpec(names, model, _load_options(adapters, options, own_folders), size_of(model), tags))
        except (click.ClickException, pumice.PumiceError) as error:
            reason = error.format_message() if isinstance(error, click.ClickException) else str(error)
            raise click.UsageError(f"--models-preset: {path}: [{name}]: {reason}", context) from None
    return specs


def _merged(context: click.Context, own: click.Context) -> dict[str, Any]:
    """Return the options of a preset, but those that the command line gives; never its models."""
    options: dict[str, Any] = dict(own.params)
    for name, value in context.params.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE and name not in _OF_ONE_MODEL:
            options[name] = (*options[name], *value) if name == "config" else value
    for name in ("names", "models_preset"):
        del options[name]
    options |= {"models_dir": None, "models_catalogue": False}
    return options


def _log(verbose: bool, as_json: bool) -> None:
    if as_json:
        from pumice_server.logs import log_json

        log_json()
    elif verbose:
        show_logs(verbose=True)


def _cache_folder(option_name: str, name: str) -> Path:
    """Return a folder of the cache, for what an option keeps there. Raises ClickException without a home."""
    from pumice.plugin.unstable import cache_homes

    try:
        return cache_homes()[0] / "pumice" / name
    except RuntimeError as error:
        raise click.ClickException(f"{option_name}: {error}; set XDG_CACHE_HOME") from None


def _environment(token: str | None, offline: bool) -> None:
    """Set the variables that huggingface_hub reads when it is imported."""
    if token:
        os.environ["HF_TOKEN"] = token
    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _seconds(idle: float | None) -> float:
    return math.inf if idle is None or idle < 0 else idle


def _memory(gibibytes: float | None, elsewhere: bool) -> int:
    """Return bytes. The default is nine tenths of this machine's memory, or unlimited if models run elsewhere."""
    from pumice.plugin.unstable import host_memory_bytes

    if gibibytes is None and elsewhere:
        return 0
    return int(0.9 * host_memory_bytes()) if gibibytes is None else int(gibibytes * 2**30)


def _own_folders(settings: Settings) -> dict[str, Any]:
    """Return the keys of a configuration for the server's folders that engines use."""
    config: dict[str, Any] = {}
    if settings.slot_folder is not None:
        config["cache_saved"] = str(settings.slot_folder / ".cache")  # a name that no slot's file can have
    if settings.adapter_folder is not None:
        config["sandbox_read"] = [str(settings.adapter_folder.resolve())]
    return config


def _load_options(
    adapters: Mapping[str, Any], options: dict[str, Any], own_folders: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of ``pumice.load``, from llama-server's options."""
    given = parse_settings(options.pop("config"))
    config: dict[str, Any] = {**own_folders, **given}
    if read := [*own_folders.get("sandbox_read", ()), *given.get("sandbox_read", ())]:
        config["sandbox_read"] = read
    threads = options.pop("threads")
    if threads is not None and threads > 0:
        config["cpu"] = {**config.get("cpu", {}), "threads": threads}
    template = take_template(options)
    n_parallel, max_queue = options["n_parallel"], options.pop("max_queue")
    if n_parallel == 0:
        raise click.BadParameter("0 sequences serve nothing; give 1 or more, or -1 for the default", param_hint="'-np'")
    if n_parallel is not None and n_parallel < 1:
        options["n_parallel"] = n_parallel = None  # llama-server's -1: it decides
    defaults = take_sampling(options)
    sampling = {**options.pop("random"), **config.get("sampling", {}), **defaults["sampling"]}
    config |= {**defaults, "sampling": sampling}
    if adapters:
        config["adapters"] = {**config.get("adapters", {}), **adapters}
    if template is not None:
        config["chat_template"] = template
    config.setdefault("max_queue", max_queue or _QUEUE_PER_SEQUENCE * (n_parallel or 4))
    return {**options, "config": config}
