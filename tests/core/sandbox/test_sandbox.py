"""A process that is confined: what it may not do, what it still may, and what becomes of it where it cannot be."""

import errno
import os
import subprocess
import threading
from pathlib import Path

import pytest

from pumice import sandbox
from pumice.sandbox import Access, Policy, kernel, landlock, seccomp, trial
from sandboxes import needs_sandbox, run
from waiting import PATIENCE

TRIAL = "from pumice.sandbox import trial\nprint(json.dumps(trial.run(*{files!r})))"


#: What not every kernel has.
NEEDS_MORE = {"`init_module`", "`userfaultfd`", "`io_uring_setup`", "`bpf`", "`perf_event_open`", "`keyctl`"}
NEEDS_MORE |= {"make a socket: `AF_VSOCK`", "make a socket: `AF_INET6`"}
#: What only an administrator may do, or who is in no container.
NEEDS_RIGHTS = {"`mount`", "`unshare`", "`ptrace` of the parent", "`process_vm_readv` of the parent"}


def has_all_rights() -> bool:
    """Return True if this process is an administrator's, outside of any container."""
    status = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    return bool(int(status["CapEff"], 16) & 1 << 21) and status.get("Seccomp") == "0"


@pytest.fixture
def files(tmp_path):
    """A model that may be read, and a secret that may not."""
    (tmp_path / "outside").mkdir()
    model, secret = tmp_path / "model.gguf", tmp_path / "outside" / "id_ed25519"
    model.write_bytes(b"GGUF")
    secret.write_text("secret")
    return str(model), str(secret)


@pytest.fixture
def site(tmp_path):
    (tmp_path / "site").mkdir()
    return tmp_path / "site"


@needs_sandbox
def test_everything_is_denied(files, site):
    outcomes = run(TRIAL.format(files=files), Policy(Access(files[:1])), site)
    assert set(outcomes.values()) == {"denied"}


def test_nothing_is_denied_to_a_process_that_is_not_confined(files, site):
    """So that the test above can fail."""
    outcomes = run(TRIAL.format(files=files), None, site)
    denied = {name for name, outcome in outcomes.items() if outcome == "denied"}
    assert denied <= (NEEDS_MORE if has_all_rights() else NEEDS_MORE | NEEDS_RIGHTS)


@needs_sandbox
def test_permissions_that_remain(files, site):
    """Threads, matrices, the model's bytes, a file in a folder that may be written, a pipe to itself."""
    folder = site.parent / "kept"
    folder.mkdir()
    source = f"""
import mmap, os, socket, subprocess, sys, threading, numpy
found = []
thread = threading.Thread(target=lambda: found.append(float((numpy.ones((64, 64)) @ numpy.ones((64, 64))).sum())))
thread.start()
thread.join()
with open({files[0]!r}, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
    found.append(mapped[:].decode())
os.makedirs({str(folder / "a")!r})
with open({str(folder / "a" / "b")!r}, "w") as file:
    file.write("x")
os.replace({str(folder / "a" / "b")!r}, {str(folder / "c")!r})
found.append(os.listdir({str(folder)!r}))
found.append(open("/proc/self/status").readline().split()[0])
os.kill(os.getpid(), 0)
socket.socketpair()
print(json.dumps(found))
"""
    found = run(source, Policy(Access(files[:1], (str(folder),))), site)
    assert found[:2] == [64.0**3, "GGUF"]
    assert sorted(found[2]) == ["a", "c"]
    assert found[3] == "Name:"


@needs_sandbox
def test_python_may_be_started_until_the_process_is_sealed(site):
    source = """
import subprocess, sys
from pumice import sandbox

def outcome(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except PermissionError:
        return "denied"

reads = "import os\\ntry:\\n print(os.listdir('/'))\\nexcept PermissionError:\\n print('confined')"
found = [outcome(sys.executable, "-c", reads), outcome("/bin/sh", "-c", "echo started")]
sandbox.seal()
print(json.dumps([*found, outcome(sys.executable, "-c", reads)]))
"""
    assert run(source, Policy(execute=sandbox.interpreter()), site) == ["confined", "denied", "denied"]


@needs_sandbox
def test_families_of_sockets(site):
    source = """
import socket
found = []
for family in (socket.AF_UNIX, socket.AF_INET):
    try:
        socket.socket(family).close()
        found.append("made")
    except PermissionError:
        found.append("denied")
print(json.dumps(found))
"""
    assert run(source, Policy(families=(1,)), site) == ["made", "denied"]


@needs_sandbox
def test_limits_and_what_hangs_on_no_call(site):
    source = """
import ctypes, resource
from pumice import sandbox
libc = ctypes.CDLL(None)
limits = [resource.getrlimit(which)[0] for which in (resource.RLIMIT_CORE, resource.RLIMIT_AS)]
found = {"limits": limits, "dumpable": libc.prctl(3), "no_new_privs": libc.prctl(39, 0, 0, 0, 0)}
found["landlock"] = sandbox.in_force().landlock
print(json.dumps(found))
"""
    found = run(source, Policy(limits={"AS": 1 << 32}), site)
    assert found == {"limits": [0, 1 << 32], "dumpable": 0, "no_new_privs": 1, "landlock": landlock.version()}


@needs_sandbox
def test_calls_of_kernels_to_come_do_not_exist(site):
    source = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall({seccomp.NEWEST + 1})
print(json.dumps(ctypes.get_errno()))
"""
    assert run(source, Policy(), site) == 38


@needs_sandbox
def test_no_promise_where_other_threads_run():
    """Landlock would leave them their rights."""
    event = threading.Event()
    thread = threading.Thread(target=event.wait)
    thread.start()
    try:
        with pytest.raises(OSError, match="other threads"):
            landlock.restrict([])
    finally:
        event.set()
        thread.join()


def test_a_kernel_without_landlock(monkeypatch):
    def absent(*arguments):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(kernel, "LINUX", True)
    monkeypatch.setattr(kernel, "call", absent)
    monkeypatch.setattr(kernel, "MACHINE", "x86_64")
    assert sandbox.missing() == ("Landlock: not in this kernel", "seccomp: not in this kernel")


@needs_sandbox
def test_a_terminal_may_be_written_to_alone(site):
    """A confined process must not read what the user types."""
    (site / "listener.py").write_text(
        "import os\ntry:\n    os.read(2, 1)\nexcept OSError as error:\n    os.write(2, str(error.errno).encode())"
    )
    ours, theirs = os.openpty()
    os.write(ours, b"secret\n")
    command, environment = sandbox.launch("listener", policy=Policy())
    environment["PYTHONPATH"] = str(site)
    subprocess.run(command, env=environment, stderr=theirs, start_new_session=True, check=True, timeout=PATIENCE)
    assert os.read(ours, 100).splitlines() == [b"secret", str(errno.EBADF).encode()]  # the first is the terminal's echo
    os.close(ours)
    os.close(theirs)


@needs_sandbox
def test_a_required_sandbox_that_is_unavailable(site):
    (site / "never.py").write_text("print('started')")
    (site / "sitecustomize.py").write_text("import pumice.sandbox.kernel as k\nk.MACHINE = 'm68k'")
    command, environment = sandbox.launch("never", policy=Policy(required=True))
    environment["PYTHONPATH"] = str(site)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("sandbox: on, but seccomp: not in this kernel")


def test_denied_permissions_are_documented():
    page = " ".join((Path(__file__).parents[3] / "SECURITY.md").read_text().split())
    assert [name for name in trial.attempts("model", "secret") if name not in page] == []


def test_secrets_of_the_environment_stay_outside(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "a")
    monkeypatch.setenv("LLAMA_API_KEY", "b")
    monkeypatch.setenv("VK_DRIVER_FILES", "c")
    environment = sandbox.launch("json", policy=Policy()).env
    assert not {"HF_TOKEN", "LLAMA_API_KEY"} & set(environment)
    assert environment["VK_DRIVER_FILES"] == "c"


def test_a_confined_process_keeps_what_only_confined_ones_read(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    policy = Policy(cache=sandbox.make_cache())
    assert policy.cache == str(tmp_path / "pumice" / "sandbox")
    assert sandbox.cache_homes() == [tmp_path]
    for name, text in sandbox.launch("json", policy=policy).env.items():
        monkeypatch.setenv(name, text)
    assert [str(home) for home in sandbox.cache_homes()] == [str(tmp_path), policy.cache]
