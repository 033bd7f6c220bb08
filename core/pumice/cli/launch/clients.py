"""Clients that `pumice launch` starts: the program of each, and how it learns of a server.

Environment variables, options and configuration keys are those of each client's documentation, November 2026.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ENTRIES = "entries"
"""Key of a list in place of a file's content."""
_CLINES_PROVIDER = "openai-compatible"


@dataclass(frozen=True)
class Endpoint:
    """A server, and the model to use there.

    Attributes:
        url: Address without a path, such as ``http://127.0.0.1:8080``.
        model: Name of the model in requests.
        api_key: Key of the server. Some clients insist on one, so it is never empty.
        n_ctx: Tokens of the model's context; 0: unknown.
        n_ctx_train: Tokens of context that it was trained for; 0: unknown.
    """

    url: str
    model: str
    api_key: str
    n_ctx: int
    n_ctx_train: int = 0

    @property
    def openai_url(self) -> str:
        """Base URL of OpenAI's protocol."""
        return f"{self.url}/v1"


@dataclass(frozen=True)
class Setup:
    """How to start a client: further arguments, and environment variables; an empty one hides one of the user's."""

    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ConfigFile:
    """A file of the user that a client reads its models from: JSON or YAML by its name.

    ``add`` puts an endpoint into the file's content and returns the part that it added, to be shown. The content of a
    file that is a list is the only value of a map, under ``ENTRIES``.
    """

    path: Callable[[], Path]
    add: Callable[[dict[str, Any], Endpoint], dict[str, Any]]
    is_list: bool = False


@dataclass(frozen=True)
class Client:
    """A program that talks to a server.

    Attributes:
        title: Name of the product.
        program: Its executable, as found on the PATH.
        install: Command that installs it.
        setup: Returns how to start it for an endpoint.
        min_ctx: Tokens of context below which its own prompt leaves little room.
        config_file: File that has to name the endpoint, for a client that takes it from nowhere else.
    """

    title: str
    program: str
    install: str
    setup: Callable[[Endpoint], Setup]
    min_ctx: int = 32768
    config_file: ConfigFile | None = None


def _claude(endpoint: Endpoint) -> Setup:
    """``ANTHROPIC_API_KEY`` of the user would take precedence over the token, so it is hidden."""
    models = dict.fromkeys(
        (
            "ANTHROPIC_MODEL",
            "ANTHROPIC_DEFAULT_OPUS_MODEL",
            "ANTHROPIC_DEFAULT_SONNET_MODEL",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL",
            "CLAUDE_CODE_SUBAGENT_MODEL",
        ),
        endpoint.model,
    )
    return Setup(
        environment={
            "ANTHROPIC_BASE_URL": endpoint.url,
            "ANTHROPIC_AUTH_TOKEN": endpoint.api_key,
            "ANTHROPIC_API_KEY": "",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            **models,
        }
    )


def _codex(endpoint: Endpoint) -> Setup:
    """A provider of its own, given as overrides of ``config.toml``; values are TOML, whose strings are JSON's."""
    settings = {
        "model": endpoint.model,
        "model_provider": "pumice",
        "model_providers.pumice.name": "Pumice",
        "model_providers.pumice.base_url": endpoint.openai_url,
        "model_providers.pumice.env_key": "PUMICE_API_KEY",
        "model_providers.pumice.wire_api": "responses",
        "model_context_window": endpoint.n_ctx,
    }
    arguments = [part for key, value in settings.items() for part in ("--config", f"{key}={json.dumps(value)}")]
    return Setup(arguments, {"PUMICE_API_KEY": endpoint.api_key})


def _cline(endpoint: Endpoint) -> Setup:
    return Setup(["--provider", _CLINES_PROVIDER, "--model", endpoint.model])


def _add_to_cline(settings: dict[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    """Cline passes over a provider without a date."""
    provider = {"provider": _CLINES_PROVIDER, "baseUrl": endpoint.openai_url}
    provider |= {"apiKey": endpoint.api_key, "model": endpoint.model}
    for key, value in {"version": 1, "lastUsedProvider": _CLINES_PROVIDER, "modes": {}}.items():
        settings.setdefault(key, value)
    entry = {"settings": provider, "updatedAt": "1970-01-01T00:00:00.000Z", "tokenSource": "manual"}
    settings.setdefault("providers", {})[_CLINES_PROVIDER] = entry
    return {"providers": {_CLINES_PROVIDER: entry}}


def _opencode(endpoint: Endpoint) -> Setup:
    """Configuration in the environment, which is merged over the user's files."""
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Pumice",
        "options": {"baseURL": endpoint.openai_url, "apiKey": endpoint.api_key},
        "models": {
            endpoint.model: {
                "name": endpoint.model,
                "limit": {"context": endpoint.n_ctx, "output": max(1, endpoint.n_ctx // 4)},
            }
        },
    }
    model = f"pumice/{endpoint.model}"
    config = {"provider": {"pumice": provider}, "model": model, "small_model": model}
    return Setup(environment={"OPENCODE_CONFIG_CONTENT": json.dumps(config)})


def _aider(endpoint: Endpoint) -> Setup:
    return Setup(
        ["--model", f"openai/{endpoint.model}", "--no-show-model-warnings"],
        {"OPENAI_API_BASE": endpoint.openai_url, "OPENAI_API_KEY": endpoint.api_key},
    )


def _goose(endpoint: Endpoint) -> Setup:
    return Setup(
        environment={
            "GOOSE_PROVIDER": "openai",
            "GOOSE_MODEL": endpoint.model,
            "GOOSE_CONTEXT_LIMIT": str(endpoint.n_ctx),
            "OPENAI_HOST": endpoint.url,
            "OPENAI_BASE_PATH": "v1/chat/completions",
            "OPENAI_API_KEY": endpoint.api_key,
        }
    )


def _openai_variables(endpoint: Endpoint) -> Setup:
    """The variables of OpenAI's own client, which many programs read."""
    return Setup(
        environment={
            "OPENAI_BASE_URL": endpoint.openai_url,
            "OPENAI_API_KEY": endpoint.api_key,
            "OPENAI_MODEL": endpoint.model,
        }
    )


def _copilot(endpoint: Endpoint) -> Setup:
    """A provider in the environment, for which no account is asked. An answer may take a quarter of the context."""
    n_answer = max(1, endpoint.n_ctx // 4)
    limits = {
        "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": str(endpoint.n_ctx - n_answer),
        "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": str(n_answer),
    }
    return Setup(
        environment={
            "COPILOT_PROVIDER_BASE_URL": endpoint.openai_url,
            "COPILOT_PROVIDER_API_KEY": endpoint.api_key,
            "COPILOT_MODEL": endpoint.model,
            **(limits if endpoint.n_ctx else {}),
        }
    )


def _hermes(endpoint: Endpoint) -> Setup:
    return Setup(
        environment={
            "HERMES_INFERENCE_PROVIDER": "custom",
            "HERMES_INFERENCE_MODEL": endpoint.model,
            "CUSTOM_BASE_URL": endpoint.openai_url,
            "OPENAI_API_KEY": endpoint.api_key,
        }
    )


def _kimi(endpoint: Endpoint) -> Setup:
    return Setup(
        environment={
            "KIMI_MODEL_NAME": endpoint.model,
            "KIMI_MODEL_PROVIDER_TYPE": "openai",
            "KIMI_MODEL_BASE_URL": endpoint.openai_url,
            "KIMI_MODEL_API_KEY": endpoint.api_key,
            **({"KIMI_MODEL_MAX_CONTEXT_SIZE": str(endpoint.n_ctx)} if endpoint.n_ctx else {}),
        }
    )


def _pi(endpoint: Endpoint) -> Setup:
    return Setup(["--provider", "pumice", "--model", endpoint.model])


def _add_to_pi(content: dict[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    model = {"id": endpoint.model, **_context("contextWindow", endpoint)}
    provider = {"baseUrl": endpoint.openai_url, "api": "openai-completions", "apiKey": endpoint.api_key}
    entry = {**provider, "models": [model]}
    content.setdefault("providers", {})["pumice"] = entry
    return {"providers": {"pumice": entry}}


def _open_webui(endpoint: Endpoint) -> Setup:
    return Setup(
        ["serve"],
        {
            "OPENAI_API_BASE_URL": endpoint.openai_url,
            "OPENAI_API_KEY": endpoint.api_key,
            "ENABLE_OLLAMA_API": "False",
            "DEFAULT_MODELS": endpoint.model,
        },
    )


def _zed(endpoint: Endpoint) -> Setup:
    """Zed takes a provider's key from a variable of the provider's name."""
    return Setup(environment={"PUMICE_API_KEY": endpoint.api_key})


def _add_to_zed(settings: dict[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    model = {"name": endpoint.model, "display_name": endpoint.model, "max_tokens": endpoint.n_ctx or 32768}
    provider = {"api_url": endpoint.openai_url, "available_models": [model]}
    compatible = settings.setdefault("language_models", {}).setdefault("openai_compatible", {})
    compatible["Pumice"] = provider
    return {"language_models": {"openai_compatible": {"Pumice": provider}}}


def _add_to_continue(config: dict[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    model = {
        "name": f"Pumice {endpoint.model}",
        "provider": "openai",
        "model": endpoint.model,
        "apiBase": endpoint.openai_url,
        "apiKey": endpoint.api_key,
        "roles": ["chat", "edit", "apply"],
    }
    for key, value in {"name": "Local", "version": "0.0.1", "schema": "v1"}.items():
        config.setdefault(key, value)
    models = config.get("models") or []
    config["models"] = [*(row for row in models if row.get("name") != model["name"]), model]
    return {"models": [model]}


def _add_to_droid(settings: dict[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    name = f"custom:{endpoint.model}-pumice"
    model = {"id": name, "model": endpoint.model, "displayName": f"Pumice {endpoint.model}"}
    model |= {"baseUrl": endpoint.openai_url, "apiKey": endpoint.api_key, "provider": "generic-chat-completion-api"}
    models = settings.get("customModels") or []
    settings["customModels"] = [*(row for row in models if row.get("id") != name), model]
    settings.setdefault("sessionDefaultSettings", {})["model"] = name
    return {"customModels": [model], "sessionDefaultSettings": {"model": name}}


def _openclaw(endpoint: Endpoint) -> Setup:
    """Its terminal, without the gateway for other channels."""
    return Setup(["tui", "--local"])


def _add_to_openclaw(content: dict[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    model = {"id": endpoint.model, "name": endpoint.model, **_context("contextWindow", endpoint)}
    provider = {"baseUrl": endpoint.openai_url, "apiKey": endpoint.api_key, "api": "openai-completions"}
    entry = {**provider, "models": [model]}
    primary = f"pumice/{endpoint.model}"
    content.setdefault("models", {}).setdefault("providers", {})["pumice"] = entry
    defaults = content.setdefault("agents", {}).setdefault("defaults", {})
    defaults.setdefault("model", {})["primary"] = primary
    return {"models": {"providers": {"pumice": entry}}, "agents": {"defaults": {"model": {"primary": primary}}}}


def _add_to_vscode(content: dict[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    """A custom endpoint of Copilot Chat, for which no account is asked. An answer may take a quarter of the context."""
    n_ctx = endpoint.n_ctx or 32768
    model = {"id": endpoint.model, "name": endpoint.model, "url": f"{endpoint.openai_url}/chat/completions"}
    limits = {"maxInputTokens": n_ctx - n_ctx // 4, "maxOutputTokens": max(1, n_ctx // 4)}
    models = [{**model, "toolCalling": True, "vision": False, **limits}]
    provider = {"name": "Pumice", "vendor": "customendpoint", "apiType": "chat-completions"}
    entry = {**provider, "apiKey": endpoint.api_key, "models": models}
    content[ENTRIES] = [*(row for row in content[ENTRIES] if row.get("name") != "Pumice"), entry]
    return {ENTRIES: [entry]}


def _context(key: str, endpoint: Endpoint) -> dict[str, int]:
    """Return the context's size under this key, if it is known."""
    return {key: endpoint.n_ctx} if endpoint.n_ctx else {}


def _no_setup(endpoint: Endpoint) -> Setup:
    """A client that has everything from its file."""
    return Setup()


def _vscode_models() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "Code" / "User" / "chatLanguageModels.json"
    from pumice.config import user_directory

    return user_directory() / "Code" / "User" / "chatLanguageModels.json"


def _droid_settings() -> Path:
    return Path.home() / ".factory" / "settings.json"


def _openclaw_config() -> Path:
    return Path.home() / ".openclaw" / "openclaw.json"


def _zed_settings() -> Path:
    from pumice.config import user_directory

    return user_directory() / "zed" / "settings.json"


def _cline_providers() -> Path:
    return Path.home() / ".cline" / "data" / "settings" / "providers.json"


def _pi_models() -> Path:
    return Path.home() / ".pi" / "agent" / "models.json"


def _continue_config() -> Path:
    return Path.home() / ".continue" / "config.yaml"


CLIENTS = {
    "aider": Client("aider", "aider", "python -m pip install aider-chat", _aider, 16384),
    "claude": Client("Claude Code", "claude", "npm install -g @anthropic-ai/claude-code", _claude, 65536),
    "cline": Client(
        "Cline", "cline", "npm install -g cline", _cline, config_file=ConfigFile(_cline_providers, _add_to_cline)
    ),
    "codex": Client("Codex", "codex", "npm install -g @openai/codex", _codex),
    "continue": Client(
        "Continue",
        "cn",
        "npm install -g @continuedev/cli",
        _no_setup,
        config_file=ConfigFile(_continue_config, _add_to_continue),
    ),
    "copilot": Client("GitHub Copilot CLI", "copilot", "npm install -g @github/copilot", _copilot),
    "droid": Client(
        "Droid", "droid", "npm install -g droid", _no_setup, config_file=ConfigFile(_droid_settings, _add_to_droid)
    ),
    "goose": Client("goose", "goose", "see https://goose-docs.ai", _goose),
    "hermes": Client("Hermes Agent", "hermes", "pip install hermes-agent", _hermes),
    "kimi": Client("Kimi Code", "kimi", "npm install -g @moonshot-ai/kimi-code", _kimi),
    "open-webui": Client("Open WebUI", "open-webui", "pip install open-webui", _open_webui, 4096),
    "openclaw": Client(
        "OpenClaw",
        "openclaw",
        "npm install -g openclaw (Node.js 24)",
        _openclaw,
        config_file=ConfigFile(_openclaw_config, _add_to_openclaw),
    ),
    "opencode": Client("opencode", "opencode", "npm install -g opencode-ai", _opencode),
    "pi": Client(
        "pi",
        "pi",
        "npm install -g @mariozechner/pi-coding-agent",
        _pi,
        16384,
        ConfigFile(_pi_models, _add_to_pi),
    ),
    "qwen": Client("Qwen Code", "qwen", "npm install -g @qwen-code/qwen-code", _openai_variables),
    "vscode": Client(
        "VS Code",
        "code",
        "see https://code.visualstudio.com (1.122 or later)",
        _no_setup,
        config_file=ConfigFile(_vscode_models, _add_to_vscode, is_list=True),
    ),
    "zed": Client(
        "Zed", "zed", "see https://zed.dev/download", _zed, config_file=ConfigFile(_zed_settings, _add_to_zed)
    ),
}
"""Clients by the name that `pumice launch` takes."""
