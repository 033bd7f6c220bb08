"""The command ``pumice serve``."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from pumice.cli.cluster import cluster_options, take_cluster
from pumice.cli.messages import show_logs
from pumice.cli.options import locate_model, no_sandbox_option, parse_settings, require_file
from pumice_server.arguments import ServeCommand
from pumice_server.choice import choose_models, make_specs, take_adapters
from pumice_server.defaults import default_options, take_chat, take_compat, take_sampling
from pumice_server.environment import predict_route
from pumice_server.keys import Keys
from pumice_server.settings import Settings

_QUEUE_PER_SEQUENCE = 16  # requests that may wait, for each sequence that runs


@click.command("serve", cls=ServeCommand)
@click.argument("names", metavar="[MODEL]...", nargs=-1)
@click.option("-m", "--model", multiple=True, metavar="MODEL", help="A model, as an option.")
@click.option(
    "-hf", "-hfr", "--hf-repo", multiple=True, metavar="REPO", help="A model, as OWNER/REPOSITORY[:QUANT] of the Hub."
)
@click.option("-hff", "--hf-file", metavar="FILE", help="A file of that repository.")
@click.option("-mu", "--model-url", multiple=True, metavar="URL", help="A model, as a web address.")
@click.option("-hft", "--hf-token", metavar="TOKEN", help="For repositories that are private or gated.")
@click.option("--offline", is_flag=True, help="Fetch nothing; use what is here.")
@click.option("--models-dir", type=click.Path(path_type=Path), metavar="DIR", help="A folder of models.")
@click.option("--models-catalogue", is_flag=True, help="The models that the configuration names.")
@click.option("-a", "--alias", metavar="NAMES", help="Names that the model is served under, separated by commas.")
@click.option(
    "--models-max", default=4, show_default=True, type=click.IntRange(0), help="Most models loaded at once; 0: any."
)
@click.option(
    "--models-memory", type=click.FloatRange(0), metavar="GIB", help="Memory for all; 0: any.  [default: 90 %]"
)
@click.option("--sleep-idle-seconds", type=float, metavar="SECONDS", help="Unload models that nobody used for so long.")
@click.option(
    "--host",
    multiple=True,
    metavar="ADDRESS",
    help="Address to listen on; several, separated by commas.  [default: 127.0.0.1]",
)
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="0: any that is free.")
@click.option("--api-key", multiple=True, metavar="KEYS", envvar="LLAMA_API_KEY", help="Keys that clients must give.")
@click.option("--api-key-file", type=click.Path(path_type=Path), metavar="FILE", help="A file of keys, one a line.")
@click.option("--ssl-key-file", type=click.Path(path_type=Path), metavar="FILE", help="The private key of TLS, as PEM.")
@click.option(
    "--ssl-cert-file", type=click.Path(path_type=Path), metavar="FILE", help="The certificates of TLS, as PEM."
)
@click.option(
    "--conversations", type=click.Path(path_type=Path), metavar="FILE", help="Keep the page's conversations in FILE."
)
@click.option("--insecure", is_flag=True, help="Listen without a key where others on the network can ask.")
@click.option("--allowed-host", multiple=True, metavar="NAME", help="A name that clients may call this server by.")
@click.option(
    "--cors-origin",
    "--cors-origins",
    multiple=True,
    metavar="URL",
    help="A web page's origin that may ask; localhost: this machine's; *: all.",
)
@click.option("--ui/--no-ui", "--webui/--no-webui", "page", default=True, help="Serve the web page.")
@click.option("--slots/--no-slots", default=True, help="Serve /slots.")
@click.option("--metrics", is_flag=True, help="Serve /metrics, which only --compat leaves out otherwise.")
@click.option("--tags", metavar="NAMES", help="Tags of the model in lists, separated by commas.")
@click.option(
    "--compat",
    type=click.Choice(["llama-server"]),
    help="Answer as that server does where clients of others would be wrong about it.",
)
@click.option(
    "-kvu/-no-kvu",
    "--kv-unified/--no-kv-unified",
    default=None,
    help="With --compat: do not divide -c by -np.",
)
@click.option(
    "-c", "--ctx-size", "n_ctx", type=click.IntRange(0), help="Tokens of a request's context; 0: the model's."
)
@click.option("-np", "--parallel", "n_parallel", type=int, help="Most requests computed at once; others wait.")
@click.option("-b", "--batch-size", "n_batch", type=int, help="Most tokens computed in one step.")
@click.option("-ngl", "--gpu-layers", "--n-gpu-layers", "n_gpu_layers", metavar="N", help="Layers on a GPU; all, auto.")
@click.option("-t", "--threads", type=int, help="Threads of the backend cpu.")
@click.option("-ctk", "--cache-type-k", metavar="TYPE", help="Type of the key/value cache, such as f16 or q8_0.")
@click.option("-ctv", "--cache-type-v", metavar="TYPE", help="The same: keys and values have one type.")
@click.option("--backend", metavar="NAME", help="Backend to compute on, or auto.")
@click.option("--chat-template", metavar="NAME", help="Name of a chat template, or a template.")
@click.option("--chat-template-file", type=click.Path(path_type=Path), metavar="FILE", help="A file with one.")
@click.option("--max-queue", type=click.IntRange(1), metavar="N", help="Most requests that wait.  [default: 16 x -np]")
@click.option("--max-requests-per-minute", default=0, type=click.IntRange(0), metavar="N", help="Of each key; 0: any.")
@click.option("--max-tokens-per-minute", default=0, type=click.IntRange(0), metavar="N", help="Of each key; 0: any.")
@click.option(
    "-to", "--timeout", default=600.0, show_default=True, type=click.FloatRange(1), help="Seconds of a request."
)
@click.option("--context-shift/--no-context-shift", help="Forget the older half of a full context, and go on.")
@click.option("--slot-save-path", type=click.Path(path_type=Path), metavar="DIR", help="Where slots are saved.")
@click.option("-r", "--reverse-prompt", "stop", multiple=True, metavar="TEXT", help="Ends answers, by default.")
@click.option(
    "--pooling",
    type=click.Choice(["mean", "cls", "last", "rank"]),
    help="Which hidden states embeddings are of; rank: as the model has it.",
)
@click.option("--allow-pull", is_flag=True, help="Clients may have models fetched.")
@click.option("--lora", multiple=True, metavar="FILES", help="LoRA adapters, separated by commas.")
@click.option("--lora-scaled", multiple=True, metavar="FILE:SCALE,...", help="Those that are stronger or weaker.")
@click.option("--lora-init-without-apply", is_flag=True, help="Apply none until POST /lora-adapters says so.")
@click.option("--control-vector", multiple=True, metavar="FILES", help="Control vectors, separated by commas.")
@click.option("--control-vector-scaled", multiple=True, metavar="FILE:SCALE,...", help="Stronger or weaker ones.")
@click.option(
    "--control-vector-layer-range",
    type=(click.IntRange(min=1), click.IntRange(min=1)),
    metavar="FIRST LAST",
    help="Layers that they change; all if not given.",
)
@click.option("--set", "config", multiple=True, metavar="KEY=VALUE", help="Any key of a configuration file.")
@no_sandbox_option
@default_options
@cluster_options
@click.option("--log-jsonl", is_flag=True, help="Log as lines of JSON, each request too.")
@click.option("-v", "--verbose", "--log-verbose", is_flag=True, help="Say on stderr what is going on.")
def command(names: tuple[str, ...], **options: Any) -> None:
    """Serve models over HTTP.

    Clients are those of OpenAI, Anthropic, Ollama and llama-server. MODEL is a GGUF file, or a name such as
    hf.co/owner/repository:Q4_K_M; without it the demo model is served. One is loaded at once, several are when they are
    first asked for. Options are named as those of llama-server; of its others some are ignored with a warning, some
    refused with a reason. Ctrl-C, or SIGTERM, gives requests 30 seconds to end.
    """
    cluster, replicas = take_cluster(options)
    compat = take_compat(options)
    settings = Settings(
        host=",".join(options.pop("host")) or "127.0.0.1",
        port=options.pop("port"),
        keys=Keys(options.pop("api_key"), options.pop("api_key_file")),
        compat=compat,
        page=options.pop("page"),
        slots=options.pop("slots"),
        metrics=options.pop("metrics") or not compat,
        verbose=options["verbose"],
        predict_route=predict_route(os.environ),
        hosts=options.pop("allowed_host"),
        origins=[url for each in options.pop("cors_origin") for url in each.split(",")],
        timeout=options.pop("timeout"),
        tls_key=options.pop("ssl_key_file"),
        tls_certificate=options.pop("ssl_cert_file"),
        keep_alive=_seconds(options.pop("sleep_idle_seconds")),
        slot_folder=options.pop("slot_save_path"),
        allow_pull=options.pop("allow_pull"),
        context_shift=options.pop("context_shift"),
        max_models=options.pop("models_max"),
        max_memory=_memory(options.pop("models_memory"), cluster is not None),
        conversations=options.pop("conversations"),
        max_requests=options.pop("max_requests_per_minute"),
        max_tokens_per_minute=options.pop("max_tokens_per_minute"),
        max_tokens=-1 if (most := options.pop("predict")) is None else most,
        stop=options.pop("stop"),
        pooling=None if (pooling := options.pop("pooling")) == "rank" else pooling,
        chat=take_chat(options),
    )
    _log(options.pop("verbose"), options.pop("log_jsonl"))
    _environment(options.pop("hf_token"), options.pop("offline"))
    settings.check(options.pop("insecure"))
    try:
        from pumice.cli.confinement import one_thread

        with one_thread():
            from pumice_server.serving import listen, serve
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is not installed: pip install 'pumice[server]'") from None
    paths = choose_models(names, options)
    aliases, tags = _names(options.pop("alias")), _names(options.pop("tags"))
    if compat:
        aliases.sort()  # the first is that of answers
    if aliases and len(paths) > 1:
        raise click.UsageError("-a names one model: several have the names of their files, or of the catalogue")
    adapters = take_adapters(options)
    if adapters and len(paths) > 1:
        raise click.UsageError("adapters are for one model: give others theirs in the catalogue")
    if cluster is None:  # whose machines may have other files
        for path in paths:
            require_file(path)
    with listen(settings) as sockets:
        if len(paths) == 1:
            locate_model(paths[0])
        specs = make_specs(paths, aliases, _load_options(paths, adapters, options), tags)
        if cluster is None:
            serve(specs, settings, sockets)
            return
        with cluster.connected():
            serve(specs, settings, sockets, lambda spec, _, deliver: cluster.load(spec, replicas, deliver))


def _log(verbose: bool, as_json: bool) -> None:
    if as_json:
        from pumice_server.logs import log_json

        log_json()
    elif verbose:
        show_logs(verbose=True)


def _environment(token: str | None, offline: bool) -> None:
    """What huggingface_hub reads when it is imported."""
    if token:
        os.environ["HF_TOKEN"] = token
    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"


def _names(given: str | None) -> list[str]:
    return [each.strip() for each in (given or "").split(",") if each.strip()]


def _seconds(idle: float | None) -> float:
    return math.inf if idle is None or idle < 0 else idle


def _memory(gibibytes: float | None, elsewhere: bool) -> int:
    """Bytes; if not given nine tenths of this machine's, and any number where models are elsewhere."""
    from pumice.plugin import host_memory_bytes

    if gibibytes is None and elsewhere:
        return 0
    return int(0.9 * host_memory_bytes()) if gibibytes is None else int(gibibytes * 2**30)


def _load_options(paths: Sequence[str], adapters: Mapping[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of ``pumice.load``, from llama-server's options."""
    config: dict[str, Any] = parse_settings(options.pop("config"))
    key_type, value_type = options.pop("cache_type_k"), options.pop("cache_type_v")
    if key_type and value_type and key_type != value_type:
        raise click.UsageError("-ctk and -ctv differ: keys and values have one type here")
    threads = options.pop("threads")
    if threads is not None and threads > 0:
        config["cpu"] = {**config.get("cpu", {}), "threads": threads}
    template = _template(options.pop("chat_template"), options.pop("chat_template_file"))
    n_parallel, max_queue = options["n_parallel"], options.pop("max_queue")
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
    options["n_gpu_layers"] = _layers(options["n_gpu_layers"])
    return {**options, "kv_type": key_type or value_type, "config": config}


def _layers(given: str | None) -> int | None:
    if given in (None, "all", "auto"):
        return None
    try:
        return int(given)
    except ValueError:
        raise click.UsageError(f"-ngl: expected a number, all or auto, not {given!r}") from None


def _template(given: str | None, file: Path | None) -> str | None:
    if file is None:
        return given
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise click.ClickException(f"cannot read the chat template: {file}: {reason}") from None
