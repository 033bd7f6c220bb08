"""The process of an engine is confined: a plugin in it can do nothing that no engine needs."""

import json
import logging
import os
from pathlib import Path

import pytest

import pumice
from adapters import write_case
from checkpoints import FIXTURES, checkpoint_of
from installed_plugins import install
from pumice.config import Layer, load_config
from pumice.process import confinement
from pumice.process.confinement import engine_policy
from pumice.registry import get_registry
from sandboxes import needs_sandbox, run
from tiny_zoo import ZOO
from waiting import wait_until

INTRUDER = """
import json, logging, os
from dataclasses import dataclass
from pumice.plugin import Sampler, hookimpl
from pumice.sandbox import trial

def tell(stage):
    outcomes = trial.run(os.environ["TRIED_MODEL"], os.environ["TRIED_FILE"])
    logging.getLogger("pumice").warning("%s %s", stage, json.dumps(outcomes))

tell("imported")

@dataclass
class Intruder(Sampler):
    def apply(self, candidates):
        tell("computing")

@hookimpl
def pumice_register_samplers(register):
    register("intruder", Intruder)
"""


@pytest.fixture
def trials(path, site, home, monkeypatch, caplog):
    """Load with an intruder among the samplers; how its attempts ended, by when it tried."""
    secret = home.parent / ".ssh" / "id_ed25519"
    secret.parent.mkdir()
    secret.write_text("secret")
    install(site, "intruder", INTRUDER)
    monkeypatch.setenv("TRIED_MODEL", str(path))
    monkeypatch.setenv("TRIED_FILE", str(secret))

    def load(setting: str) -> dict[str, dict[str, str]]:
        config = {"sandbox": setting, "samplers": ["intruder", "greedy"], "numpy": {}}
        with caplog.at_level(logging.WARNING, "pumice"):
            with pumice.load_process(path, backend="numpy", config=config) as model:
                caplog.clear()
                assert len(model.generate("ab", max_tokens=2, temperature=0.0).tokens) == 2
                wait_until(lambda: "computing" in caplog.text)
            lines = [record.getMessage().partition(" ") for record in caplog.records]
        return {stage: json.loads(outcomes) for stage, _, outcomes in lines if outcomes.startswith("{")}

    return load


def policy_of(path, **settings):
    config = load_config(settings or None)
    return engine_policy(path, config, get_registry(config))


@needs_sandbox
def test_a_plugin_in_an_engine_is_denied_everything(trials):
    outcomes = trials("on")["computing"]
    assert len(outcomes) > 30
    assert set(outcomes.values()) == {"denied"}


@needs_sandbox
def test_paths_that_the_configuration_adds(path, home):
    """An engine may read and write the model, its adapters and parts, and files that the configuration names."""
    (home / "more").mkdir()
    files = {"adapters": {"a": "a.gguf"}, "draft": "d.gguf"}
    policy = policy_of(path, sandbox_read=["more"], sandbox_write=[str(home / "kept")], **files)
    assert {str(path), str(home / "more"), str(home / "a.gguf"), str(home / "d.gguf")} <= set(policy.access.read)
    assert str(home / "kept") in policy.access.write
    assert str(path) not in policy.access.write
    assert str(path.parent) not in policy.access.read


def test_links_in_the_folder_of_a_stranger(tmp_path, home):
    """They lead to weights, not to other files of the user."""
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "elsewhere.safetensors").touch()
    for name, target in (("model.safetensors", "elsewhere.safetensors"), ("config.json", ".ssh/id_ed25519")):
        (folder / name).symlink_to(tmp_path / target)
    policy = policy_of(folder)
    assert str(tmp_path / "elsewhere.safetensors") in policy.access.read
    assert str(tmp_path / ".ssh" / "id_ed25519") not in policy.access.read


@pytest.mark.parametrize("place", ["beside", "where the first one really is", "elsewhere"])
def test_parts_that_are_links(tmp_path, home, place):
    """The maker of a split model may have put links there; a user's own lead to where the other parts are."""
    folder, store, elsewhere = (tmp_path / name for name in ("model", "store", ".ssh"))
    for path in (folder, store, elsewhere):
        path.mkdir()
    first, second = (folder / f"m-0000{part}-of-00002.gguf" for part in (1, 2))
    targets = {"beside": folder / "b", "where the first one really is": store / "b", "elsewhere": elsewhere / "key"}
    first.symlink_to(store / "a")
    second.symlink_to(targets[place])
    for path in (store / "a", targets[place]):
        path.touch()
    settings = {}
    if place == "elsewhere":
        with pytest.raises(pumice.SandboxError, match=r"m-00002-of-00002.gguf: a link to .*key, which is not beside"):
            policy_of(first)
        settings = {"sandbox_read": [str(elsewhere)]}
    policy = policy_of(first, **settings)
    assert {str(first), str(second)} <= set(policy.access.read)


def test_links_in_a_folder_of_a_model(tmp_path, home):
    """A codec's weights may be a link as the model's own; folders further down are no part of a model."""
    folder = tmp_path / "model"
    for name, place in (("codec", folder / "codec"), ("deep", folder / "a" / "b")):
        place.mkdir(parents=True)
        (tmp_path / f"{name}.safetensors").touch()
        (place / "model.safetensors").symlink_to(tmp_path / f"{name}.safetensors")
    policy = policy_of(folder)
    assert str(tmp_path / "codec.safetensors") in policy.access.read
    assert str(tmp_path / "deep.safetensors") not in policy.access.read


def test_backends_are_asked_what_they_open(home, path):
    """A GPU's device nodes only where the engine may take the GPU."""
    for backend, expected in (("auto", True), ("numpy", False), ("vulkan", True)):
        assert ("/etc/vulkan" in policy_of(path, backend=backend).access.read) == expected


def test_a_missing_landlock_is_an_error_if_the_sandbox_is_required(home, path, monkeypatch):
    monkeypatch.setattr("pumice.model_files.policy.missing", lambda: ("Landlock: not in this kernel",))
    with pytest.raises(pumice.SandboxError, match="sandbox: on, but Landlock: not in this kernel; see `pumice doctor`"):
        policy_of(path, sandbox="on")
    assert policy_of(path, sandbox="off") is policy_of(path, sandbox=False) is None
    assert policy_of(path) is not None
    monkeypatch.setenv("PUMICE_SANDBOX", "off")
    assert policy_of(path) is None
    monkeypatch.setenv("PUMICE_SANDBOX", "maybe")
    with pytest.raises(pumice.ConfigError, match="PUMICE_SANDBOX=maybe: the only value is off; unset it"):
        policy_of(path)


@pytest.mark.parametrize("line", ["sandbox: off", "sandbox_read: [/]", "sandbox_write: [/]"])
def test_a_folder_with_a_model_cannot_weaken_the_sandbox(home, line):
    (home / "pumice.yaml").write_text(line)
    with pytest.raises(pumice.ConfigError, match="a project's file cannot weaken the sandbox"):
        load_config()
    (home / "pumice.yaml").rename(home.parent / "mine.yaml")
    with pytest.raises(pumice.ConfigError, match="cannot weaken"):
        load_config(model=Layer("mine.yaml", {"sandbox": "off"}))


@pytest.mark.parametrize("line", ["sandbox: off", "sandbox_write: [/]", "cache_disk: /srv", "cache_saved: /srv"])
def test_a_folder_cannot_do_so_in_the_options_of_a_model(home, monkeypatch, line):
    text = f"models:\n  small:\n    model: small.gguf\n    {line}\n"
    (home / "pumice.yaml").write_text(text)
    with pytest.raises(pumice.ConfigError, match=r"pumice.yaml: models.small: \w+: a project's file cannot"):
        load_config()
    (home / "pumice.yaml").rename(home.parent / "mine.yaml")
    monkeypatch.setenv("PUMICE_CONFIG", str(home.parent / "mine.yaml"))
    load_config()


def generated(path, **config) -> list[int]:
    """Return the text that a confined engine generates."""
    with pumice.load_process(path, backend="numpy", config={"sandbox": "on", **config}) as model:
        return model.generate([3, 4, 5], max_tokens=3, temperature=0.0).tokens


@needs_sandbox
def test_a_folder_of_links_as_in_the_cache_of_a_hub(home, tmp_path):
    case = json.loads((FIXTURES / "cases.json").read_text())["llama-bpe"]
    folder = checkpoint_of(tmp_path / "blobs", case)
    snapshot = tmp_path / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    for file in folder.iterdir():
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    assert generated(snapshot) == generated(folder)


@needs_sandbox
def test_an_adapter(home, tmp_path):
    model = ZOO["llama-bias"]
    ((adapter, scale),) = write_case(tmp_path, "attention")
    file = model.write(tmp_path / "model.gguf")
    adapters = {"one": {"file": os.path.relpath(adapter), "scale": 50 * scale}}
    assert generated(file, adapters=adapters) != generated(file)


@needs_sandbox
def test_kernels_are_compiled_in_the_sandbox(path, home, monkeypatch, tmp_path):
    """Into a cache that processes which are not confined never read."""
    pytest.importorskip("numba")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PUMICE_CACHE", raising=False)
    source = """
from pumice_cpu import cache, compiler
cache.save("norms.rms_norm", compiler.compile_one("norms.rms_norm"))
print(json.dumps(cache.load("norms.rms_norm") is not None))
"""
    assert run(source, policy_of(path, backend="cpu"), tmp_path)
    kernels = {kernel.parent for kernel in (tmp_path / "cache").rglob("*.kernel")}
    assert kernels == {tmp_path / "cache" / "pumice" / "sandbox" / "pumice" / "kernels"}


@needs_sandbox
def test_a_gpu_in_the_sandbox(path, home, monkeypatch, tmp_path):
    """A device that the processor plays will do: its driver compiles shaders as others do, in threads of its own."""
    vulkan = pytest.importorskip("pumice_vulkan")
    monkeypatch.setenv("PUMICE_VULKAN_SOFTWARE", "1")
    if reason := vulkan.VulkanBackend.unavailable():
        pytest.skip(reason)
    source = """
from pumice_vulkan.device import list_devices, open_device
from pumice_vulkan.probe import KERNEL, matrix_shape, right_kernels
with open_device("auto", 0) as device:
    shape = matrix_shape(device.description)
    print(json.dumps([device.name, KERNEL in right_kernels(device, shape) if shape else True]))
"""
    name, right = run(source, policy_of(path, backend="vulkan"), tmp_path)
    assert name
    assert right


def test_many_links_open_no_folder(tmp_path, home):
    """Broken links are ignored; the others are too many to be allowed one by one."""
    folder, secrets = tmp_path / "model", tmp_path / ".ssh"
    folder.mkdir()
    secrets.mkdir()
    for number in range(201):
        (folder / f"{number}.gguf").symlink_to(secrets / f"{number}.gguf")
    policy = policy_of(folder)
    assert not [file for file in policy.access.read if Path(file).is_relative_to(secrets)]
    for number in range(201):
        (secrets / f"{number}.gguf").touch()
    with pytest.raises(pumice.SandboxError, match="more than 200 links to weights elsewhere"):
        policy_of(folder)


def test_a_folder_that_looks_like_a_cache(tmp_path, home):
    folder = tmp_path / "snapshots" / "1"
    folder.mkdir(parents=True)
    (tmp_path / "blobs").symlink_to(tmp_path / ".ssh")
    assert str(tmp_path / "blobs") not in policy_of(folder).access.read


def test_links_made_while_a_server_runs(tmp_path, home, monkeypatch):
    config, folder = load_config(), tmp_path / "model"
    folder.mkdir()
    for name in ("first", "second"):
        (tmp_path / f"{name}.gguf").touch()
    (folder / "first.gguf").symlink_to(tmp_path / "first.gguf")
    monkeypatch.setattr(confinement, "_kept", None)
    confinement.keep_sandbox(config, [str(folder)])
    policy = engine_policy(folder, config, get_registry(config))
    assert str(tmp_path / "first.gguf") in policy.access.read
    (folder / "second.gguf").symlink_to(tmp_path / "second.gguf")
    with pytest.raises(pumice.SandboxError, match=r"second.gguf: the server was not started with this model; add it"):
        engine_policy(folder, config, get_registry(config))
