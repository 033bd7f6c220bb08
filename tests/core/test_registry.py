import importlib.metadata
import json
import subprocess
import sys

import pytest

from installed_plugins import backend_plugin, install
from pumice.config import Plugins, load_config
from pumice.engine.placement.backends import backend_line, named_devices
from pumice.errors import BackendError, ConfigError, ModelError, PluginError
from pumice.registry import Registry, get_registry
from pumice.registry.loading import BUNDLED

pytestmark = pytest.mark.usefixtures("home")

BACKEND = backend_plugin("mine")


def plugin(registry: Registry, name: str):
    return next(info for info in registry.plugins if info.name == name)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def broken(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        (BACKEND + "    raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        (BACKEND.replace('"mine"', "''").replace("'mine'", "''"), "a non-empty string"),
        (BACKEND.replace("'mine', MyBackend", "'mine', 3"), "expected a subclass of Backend, not 3"),
        (BACKEND.replace("'mine', MyBackend", "'mine', dict"), "expected a subclass of Backend"),
        (BACKEND + "    register('mine', MyBackend)", "'mine' is registered twice"),
        (BACKEND.replace("Options = Options", "Options = dict"), "Options must be a dataclass"),
        (BACKEND.replace("_backends", "_backend"), "unknown hook 'pumice_register_backend'; did you mean"),
        (BACKEND.replace("@hookimpl", ""), "pumice_register_backends is no hook without its decorator"),
        (BACKEND.replace("(register)", "(registry)"), "PluginValidationError"),
        (BACKEND.replace("_backends", "_arch"), "unknown hook 'pumice_register_arch'; did you mean 'pumice_register"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("raise MemoryError", "MemoryError"),
        ("from pumice.plugin import no_such_name", "ImportError: cannot import name 'no_such_name'"),
    ],
)
def test_a_plugin_that_fails_is_recorded_and_stops_nothing(site, source, error):
    install(site, "failing", source)
    install(site, "working", backend_plugin("other"))
    registry = Registry(Plugins())
    info = plugin(registry, "failing")
    assert error in info.error
    assert "\n" not in info.error
    assert info.registered == {}
    assert "mine" not in registry.backends
    assert plugin(registry, "working").error is None
    assert "numpy" in registry.backends
    with pytest.raises(BackendError, match="these plugins did not load: failing") as caught:
        registry.backends.find("mine")
    assert info.error[:200] in str(caught.value)


@pytest.mark.parametrize(
    ("api", "error"),
    [
        (None, "it states no version of the plugin contract; write `pumice_api = 1` in its module"),
        (0, "it was written for version 0 of the plugin contract, and Pumice {} has version 1; upgrade my-plugin"),
        (2, "it was written for version 2 of the plugin contract, and Pumice {} has version 1; upgrade pumice"),
    ],
)
@pytest.mark.parametrize("source", [BACKEND, "from pumice.plugin import no_such_name\n" + BACKEND])
def test_a_plugin_for_another_version_of_the_contract_is_told_so(site, source, api, error):
    install(site, "my-plugin", source, name="mine", api=api)
    registry = Registry(Plugins())
    told = plugin(registry, "mine").error
    if api is None and "no_such_name" in source:
        assert "cannot import name 'no_such_name'" in told
    else:
        assert told == error.format(importlib.metadata.version("pumice"))
    assert "mine" not in registry.backends


def test_output_of_a_plugins_import_goes_to_standard_error(site, capsys):
    install(site, "loud", "print('hello')\n" + LAZY.format(kind="samplers", name="loud", target="late:Loud"))
    (site / "late.py").write_text("print('good day')\nLoud = 3")
    registry = Registry(Plugins())
    with pytest.raises(PluginError):
        registry.samplers["loud"]
    assert capsys.readouterr() == ("", "hello\ngood day\n")


LAZY = """
from pumice.plugin import hookimpl

@hookimpl
def pumice_register_{kind}(register):
    register({name!r}, {target!r})
"""


def test_objects_registered_as_text_are_imported_on_use(site):
    install(site, "lazy", LAZY.format(kind="backends", name="late", target="late_module:Backends.Mine"))
    (site / "late_module.py").write_text(
        "import pumice_numpy\nclass Backends:\n    class Mine(pumice_numpy.NumpyBackend): pass"
    )
    registry = Registry(Plugins())
    assert plugin(registry, "lazy").registered == {"backends": ["late"]}
    assert "late" in registry.backends
    assert "late_module" not in sys.modules
    assert registry.backends["late"].__name__ == "Mine"
    assert registry.backends["late"] is registry.backends["late"]
    assert registry.problems() == {}


@pytest.mark.parametrize(
    ("target", "source", "error"),
    [
        ("gone:Mine", "", "gone:Mine: ModuleNotFoundError: No module named 'gone'"),
        ("late:Mine", "1 / 0", "late:Mine: ZeroDivisionError: division by zero"),
        ("late:Mine", "import sys; sys.exit('bye')", "late:Mine: SystemExit: bye"),
        ("late:Mine", "", "late:Mine: ImportError: module 'late' has no 'Mine'"),
        ("late.Mine", "", "late.Mine: ImportError: expected 'package.module:Name', not 'late.Mine'"),
        ("late:Mine", "Mine = 3", "late:Mine: expected a subclass of Architecture, not 3"),
        ("late:Mine", "import pumice.plugin as p\nclass Mine(p.Architecture): pass", "late:Mine: Mine lacks build"),
    ],
)
def test_a_failed_import_on_use_names_plugin_name_and_target(site, target, source, error):
    install(site, "lazy", LAZY.format(kind="architectures", name="stone", target=target))
    (site / "late.py").write_text(source)
    registry = Registry(Plugins())
    message = f"architecture 'stone' (plugin lazy): {error}"
    with pytest.raises(PluginError) as caught:
        registry.architectures.find("stone")
    assert str(caught.value) == message
    assert registry.problems() == {"lazy": [message]}
    assert registry.architectures["llama"].__name__ == "Llama", "the others still work"


SAMPLER = """
from dataclasses import dataclass
from pumice.plugin import hookimpl, Sampler

@dataclass
class Mine(Sampler):
    {field}

    def apply(self, candidates): ...

@hookimpl
def pumice_register_samplers(register):
    register("mine", Mine)
"""


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (
            BACKEND.replace("(NumpyBackend)", "(Backend)").replace(
                "import hookimpl", "import hookimpl; from pumice.plugin.unstable import Backend", 1
            ),
            "lacks compile",
        ),
        (BACKEND.replace("'mine'", "'auto'"), "backend 'auto' (plugin wrong): this name has another meaning"),
        (BACKEND.replace("'mine'", "'n_ctx'"), "backend 'n_ctx' (plugin wrong): this name has another meaning"),
        (SAMPLER.format(field="mine: int"), "sampler 'mine' (plugin wrong): its parameter 'mine' needs a default"),
        (SAMPLER.format(field="stop: str = ''"), "its parameter 'stop' is an argument of generate"),
        (SAMPLER.format(field="temperature: str = ''"), "'temperature' is str, and float in the sampler 'temperature'"),
        (LAZY.format(kind="pre_tokenizers", name="mine", target=["a+"]), "expected a PreTokenizer, not ['a+']"),
        (LAZY.format(kind="tokenizers", name="mine", target=3), "expected a subclass of Tokenizer, not 3"),
        (LAZY.format(kind="commands", name="mine", target=3), "expected a click.Command, not 3"),
    ],
)
def test_objects_that_break_their_contract_are_refused_at_registration(site, source, error):
    install(site, "wrong", source)
    assert error in plugin(Registry(Plugins()), "wrong").error


def test_two_plugins_that_claim_one_name_are_an_error_where_it_is_used(site, home):
    install(site, "first", BACKEND)
    install(site, "second", BACKEND)
    registry = get_registry(load_config())
    with pytest.raises(PluginError) as caught:
        registry.backends["mine"]
    assert "'first' and 'second'" in str(caught.value)
    assert "plugins.prefer.backends.mine" in str(caught.value)

    (home / "pumice.yaml").write_text("plugins: {prefer: {backends: {mine: second}}}")
    assert get_registry(load_config()).backends["mine"].__module__ == "second"
    (home / "pumice.yaml").write_text("plugins: {disabled: [second]}")
    assert get_registry(load_config()).backends["mine"].__module__ == "first"


def test_a_disabled_plugin_is_listed_but_not_imported(site):
    install(site, "unwanted", "1 / 0")
    info = plugin(Registry(Plugins(disabled=["unwanted"])), "unwanted")
    assert info.disabled
    assert info.error is None
    assert "unwanted" not in sys.modules


def test_unknown_names_are_answered_with_the_known_ones():
    registry = get_registry(load_config())
    with pytest.raises(BackendError, match=r"unknown backend 'nunpy'; did you mean 'numpy'\?.*known: .*numpy"):
        registry.backends.find("nunpy")
    with pytest.raises(ModelError, match=r"unknown architecture 'lama'; did you mean 'llama'.*docs/plugins\.md"):
        registry.architectures.find("lama")
    with pytest.raises(ConfigError, match=r"unknown sampler 'topk'; did you mean 'top_k'"):
        registry.samplers.find("topk")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("backend: mien", "backend: unknown backend 'mien'; did you mean 'mine'?"),
        ("plugins: {prefer: {backend: {}}}", "plugins.prefer.backend: unknown key 'backend'; did you mean 'backends'?"),
        ("plugins: {prefer: {backends: {mine: third}}}", "plugins.prefer.backends.mine: unknown plugin 'third'"),
        ("plugins: {prefer: {backends: {mine: cpu}}}", "plugins.prefer.backends.mine: plugin 'cpu' registers"),
        ("sampelrs: {}", "unknown key 'sampelrs'; did you mean 'samplers'?"),
        ("mien: {}", "unknown key 'mien'; did you mean 'mine'?"),
        (
            "{zzz: {}, backends: [mine], plugins: {disabled: [cpu, mlx, numpy, ray, vulkan]}}",
            "unknown key 'zzz' (no setting or installed backend has this name; backends: mine); "
            "these plugins are disabled: cpu, mlx, numpy, ray, vulkan",
        ),
        ("mine: {treads: 1}", "mine: unknown key 'treads'; did you mean 'threads'?"),
        ("mine: {threads: all}", "mine: threads: should be an integer, not 'all'"),
        ("mlx: {activations: int8}", "mlx: activations: should be one of auto, float32, float16, not 'int8'"),
        ("mlx: {compile: sometimes}", "mlx: compile: should be one of auto, always, never, not 'sometimes'"),
        ("numpy: {cache_mib: -1}", "numpy: cache_mib: should be an integer, at least 0, not -1"),
        ("samplers: [top_q, dist]", "samplers: unknown sampler 'top_q'; did you mean 'top_p'?"),
        ("sampling: {temprature: 1}", "sampling: unknown sampling parameter 'temprature'; did you mean 'temperature'?"),
        ("sampling: {top_k: forty}", "sampling: top_k must be an integer"),
        ("sampling: {top_p: 2}", "sampling: top_p must be"),
        ("{samplers: [dist], sampling: {top_k: 1}}", "sampling: top_k is a parameter of 'top_k', which is not in"),
    ],
)
def test_settings_of_plugins_are_checked_and_the_file_named(site, home, text, message):
    install(site, "options", backend_plugin("mine", "threads: int = 1"))
    (home / "pumice.yaml").write_text(text)
    with pytest.raises((BackendError, ConfigError)) as caught:
        get_registry(load_config())
    assert str(caught.value).startswith(f"pumice.yaml: {message}")


def test_devices_and_backends_that_do_not_exist_are_named(home):
    (home / "pumice.yaml").write_text("devices: [cuda]\nbackends: [nowhere]")
    with pytest.raises(ConfigError, match=r"^pumice\.yaml: devices: 'cuda' is not a device such as Vulkan0, or"):
        named_devices(load_config())
    (home / "pumice.yaml").write_text("devices: [gpu0, gpu0]\nbackends: [nowhere]")
    with pytest.raises(ConfigError, match=r"^pumice\.yaml: devices: gpu0, gpu0: a device is named twice$"):
        named_devices(load_config())
    config = load_config({"devices": []})
    with pytest.raises(BackendError, match=r"^no backend is available \(backends: nowhere\); see `pumice devices`$"):
        backend_line(get_registry(config), config)


def test_loading_the_bundled_plugins_imports_no_compiler_no_driver_and_no_family():
    code = (
        "import json, sys; from pumice.config import load_config; from pumice.registry import get_registry;"
        "get_registry(load_config()); print(json.dumps(sorted(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(run.stdout))
    assert not loaded & {"numba", "llvmlite", "kp", "tokenizers", "scipy", "gguf"}
    tables = {f"pumice_architectures.{name}" for name in ("conversions", "hearing", "speaking", "vision")}
    assert not {name for name in loaded - tables if name.startswith("pumice_architectures.")}


def test_a_broken_and_a_slow_plugin_are_reported_once(site, caplog, monkeypatch):
    monkeypatch.setattr("pumice.registry.settings.MOST_SECONDS", 0.2)
    install(site, "failing", "1 / 0")
    busy = "import time\nend = time.thread_time() + 0.3\nwhile time.thread_time() < end:\n    pass\n"
    install(site, "slow", busy + backend_plugin("slow"))
    get_registry(load_config())
    get_registry(load_config(), plugins=[sys.modules["slow"]])
    messages = [record.message for record in caplog.records]
    reports = [message for message in messages if "plugin failing" in message or "slow" in message]
    assert reports[0] == "plugin failing (failing 1.0) did not load: ZeroDivisionError: division by zero"
    assert reports[1].startswith("plugin slow (slow 1.0) takes 0.")
    assert len(reports) == 2


def test_a_clash_stops_only_who_uses_the_name(site, run):
    source = (
        "from pumice.plugin import hookimpl\n@hookimpl\ndef pumice_register_{}(register):\n    register({!r}, 'x:Y')\n"
    )
    install(site, "first", source.format("samplers", "top_k"))
    install(site, "second", source.format("proposers", "ngram"))
    install(site, "third", source.format("commands", "bench"))
    for command in (["devices"], ["tokenize", "-p", "hello"], ["info"], ["fit"], ["config"]):
        assert run(*command)[0::2] == (0, ""), command
    assert "error: plugins 'samplers' and 'first' both register the sampler 'top_k'" in run("run", "-n", "1").stderr


def test_bundled_plugins_are_the_entry_points_of_the_distribution():
    points = importlib.metadata.distribution("pumice").entry_points.select(group="pumice")
    assert sorted(BUNDLED) == sorted(point.name for point in points)


def test_a_broken_chat_format_is_left_out(site, caplog):
    hook = "@hookimpl\ndef pumice_register_chat_formats(register):\n    register('mine', 'failing:absent')"
    install(site, "failing", f"from pumice.plugin import hookimpl\n{hook}\n")
    formats = Registry(Plugins()).chat_formats.working()
    assert ("harmony" in formats, "mine" in formats) == (True, False)
    assert "chat-format 'mine' (plugin failing): failing:absent: " in caplog.text
