import json
import subprocess
import sys

import pytest

from installed_plugins import backend_plugin, install
from pumice.config import Plugins, load_config
from pumice.errors import BackendError, ConfigError, ModelError, PluginError
from pumice.registry import Registry, get_registry

pytestmark = pytest.mark.usefixtures("home")

BACKEND = backend_plugin("mine")


def plugin(registry: Registry, name: str):
    return next(info for info in registry.plugins if info.name == name)


def test_a_plugin_is_found_by_its_entry_point(site):
    install(site, "my-plugin", BACKEND, name="mine", version="2.5")
    registry = Registry(Plugins())
    info = plugin(registry, "mine")
    assert (info.distribution, info.version, info.error) == ("my-plugin", "2.5", None)
    assert info.hooks == ["pumice_register_backends"]
    assert info.registered == {"backends": ["mine"]}
    assert registry.backend("mine").__name__ == "MyBackend"
    assert "numpy" in registry.backends


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def broken(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        (BACKEND + "    raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        (BACKEND.replace('"mine"', "''").replace("'mine'", "''"), "a string that is not empty"),
        (BACKEND.replace("'mine', MyBackend", "'mine', 3"), "expected a subclass of Backend, not 3"),
        (BACKEND.replace("'mine', MyBackend", "'mine', dict"), "expected a subclass of Backend"),
        (BACKEND + "    register('mine', MyBackend)", "'mine' is registered twice"),
        (BACKEND.replace("Options = Options", "Options = dict"), "Options must be a dataclass"),
        (BACKEND.replace("_backends", "_backend"), "unknown hook 'pumice_register_backend'; did you mean"),
        (BACKEND.replace("(register)", "(registry)"), "PluginValidationError"),
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
    with pytest.raises(BackendError, match="these plugins did not load: failing"):
        registry.backend("mine")


def test_two_plugins_that_claim_one_name_are_an_error_that_names_both(site, home):
    install(site, "first", BACKEND)
    install(site, "second", BACKEND)
    with pytest.raises(PluginError) as caught:
        get_registry(load_config())
    assert "'first' and 'second'" in str(caught.value)
    assert "plugins.prefer.backends.mine" in str(caught.value)

    (home / "pumice.yaml").write_text("plugins: {prefer: {backends: {mine: second}}}")
    assert get_registry(load_config()).backend("mine").__module__ == "second"
    (home / "pumice.yaml").write_text("plugins: {disabled: [second]}")
    assert get_registry(load_config()).backend("mine").__module__ == "first"
    (home / "pumice.yaml").write_text("plugins: {prefer: {backends: {mine: third}}}")
    with pytest.raises(PluginError, match="'first' and 'second'"):
        get_registry(load_config())


def test_a_third_party_may_replace_a_bundled_backend_if_preferred(site):
    install(site, "faster-numpy", backend_plugin("numpy"), name="faster")
    prefer = {"plugins": {"prefer": {"backends": {"numpy": "faster"}}}}
    assert get_registry(load_config(prefer)).backend("numpy").__module__ == "faster_numpy"


def test_a_disabled_plugin_is_listed_but_not_imported(site):
    install(site, "unwanted", "1 / 0")
    info = plugin(Registry(Plugins(disabled=["unwanted"])), "unwanted")
    assert info.disabled
    assert info.error is None
    assert "unwanted" not in sys.modules


def test_two_entry_points_of_one_name_stay_apart(site):
    install(site, "other-numpy", backend_plugin("other"), name="numpy")
    registry = Registry(Plugins())
    assert plugin(registry, "numpy").distribution == "pumice"
    assert plugin(registry, "other-numpy:numpy").registered == {"backends": ["other"]}


def test_a_bundled_plugin_without_an_entry_point_is_reported():
    info = plugin(Registry(Plugins(bundled=["warp"])), "warp")
    assert "install pumice again" in info.error


def test_unknown_names_are_answered_with_the_known_ones():
    registry = get_registry(load_config())
    with pytest.raises(BackendError, match=r"unknown backend 'nunpy'; did you mean 'numpy'\?.*known: .*numpy"):
        registry.backend("nunpy")
    with pytest.raises(ModelError, match=r"unknown architecture 'lama'.*known: .*docs/plugins\.md"):
        registry.architecture("lama")
    with pytest.raises(ConfigError, match=r"unknown sampler 'topk'; did you mean 'top_k'"):
        registry.sampler("topk")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sampelrs: {}", "unknown key 'sampelrs'; did you mean 'samplers'?"),
        ("mien: {}", "unknown key 'mien'; did you mean 'mine'?"),
        ("zzz: {}", "unknown key 'zzz' (no backend has this name; known: "),
        ("mine: {treads: 1}", "mine: unknown key 'treads'; did you mean 'threads'?"),
        ("mine: {threads: all}", "mine: threads: should be an integer, not 'all'"),
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
    with pytest.raises(ConfigError) as caught:
        get_registry(load_config())
    assert str(caught.value).startswith(f"pumice.yaml: {message}")


def test_settings_of_plugins_that_are_right_pass(site, home):
    install(site, "options", backend_plugin("mine", "threads: int = 1; names: tuple[str, ...] = ()"))
    (home / "pumice.yaml").write_text("""
backend: mine
backends: [mine, absent]
mine: {threads: 3, names: [a, b]}
absent: {anything: true}      # a backend in the order that is not installed here
sampling: {temperature: 0, top_k: 3, seed: 7, repeat_penalty: 1.1}
""")
    config = load_config()
    assert get_registry(config).backends["mine"].Options(**config.backend_options("mine")).threads == 3


def test_the_section_of_a_disabled_plugin_is_no_mistake(site):
    install(site, "mine", backend_plugin("mine", "threads: int = 1"))
    get_registry(load_config({"plugins": {"disabled": ["mine"]}, "mine": {"threads": 2}}))


def test_loading_the_bundled_plugins_imports_no_compiler_and_no_driver():
    code = (
        "import json, sys; from pumice.config import load_config; from pumice.registry import get_registry;"
        "get_registry(load_config()); print(json.dumps(sorted(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(run.stdout))
    assert not loaded & {"numba", "llvmlite", "kp", "tokenizers", "scipy"}
