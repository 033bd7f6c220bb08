"""Try real clients against `pumice serve`, and write the table of docs/clients.md.

    python tests/clients/run.py              # every client: installs it into build/clients first
    python tests/clients/run.py --quick      # those of the development lock, which are installed
    python tests/clients/run.py DSPy         # some by name
    python tests/clients/run.py --write      # every client, and write the table

Each client has a folder of its own, since their dependencies conflict. A client that cannot be installed is skipped
with the reason. The exit status is 1 if a feature fails, if no client can be installed, or if one is skipped in a
run with --write.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from clients import CLIENTS, Client

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLACES = ROOT / "build" / "clients"
PAGE = ROOT / "docs" / "clients.md"
BEGIN, END = "<!-- clients: begin -->", "<!-- clients: end -->"
COLUMNS = ["chat", "stream", "tools", "structured", "embeddings"]
INSTALL_SECONDS = 1800  # Open WebUI takes more than 900 by pip on a busy machine
RUN_SECONDS = 600  # clients that are servers take minutes to start on a busy machine
Results = dict[str, str]  # "ok" or the problem, by feature


@contextlib.contextmanager
def server() -> Iterator[tuple[str, str]]:
    """Run the demo model, and yield the server's address and the model's name."""
    # The prompts of agents are long, and the demo model fills a context if nothing ends its answer.
    limits = ["--ctx-size", "16384", "-n", "300"]
    command = [sys.executable, "-m", "pumice", "serve", "--port", "0", *limits]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if found := re.search(r"listening on (\S+)", line):
                    with urllib.request.urlopen(f"{found[1]}/v1/models") as answer:
                        yield found[1], json.load(answer)["data"][0]["id"]
                    return
            raise SystemExit("pumice serve ended before it listened")
        finally:
            process.terminate()


def install(client: Client) -> str:
    """Install a client into its folder, and return the reason if that fails."""
    place = PLACES / client.program
    stamp = place / ".packages"
    if client.in_dev or (stamp.exists() and stamp.read_text() == "\n".join(client.packages)):
        return ""
    place.mkdir(parents=True, exist_ok=True)
    if client.program.endswith(".mjs"):
        (place / "package.json").write_text("{}")
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(place), *client.packages]
    else:
        command = [*installer(), "--upgrade", "--target", str(place), *client.packages]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)[:200]
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        return (lines or ["it does not say why"])[-1][:200]
    stamp.write_text("\n".join(client.packages))
    return ""


def installer() -> list[str]:
    """Return the command that installs packages of PyPI: uv if it is there, which takes a tenth of pip's time."""
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    return [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]


def try_client(client: Client, url: str, model: str) -> Results:
    """Run a client's program, and return what each feature came to."""
    place = PLACES / client.program
    environment = {**os.environ, "PUMICE_URL": url, "PUMICE_MODEL": model}
    if client.program.endswith(".mjs"):
        for source in (HERE / "programs_js").glob("*.mjs"):  # Node looks for packages beside the program
            (place / source.name).write_text(source.read_text())
        command = ["node", str(place / client.program)]
    else:
        environment["PYTHONPATH"] = "" if client.in_dev else str(place)
        command = [sys.executable, str(HERE / "programs" / client.program)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, env=environment)
    except subprocess.TimeoutExpired as error:
        so_far = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        return {**_reported(so_far), "program": f"no end within {RUN_SECONDS} seconds"}
    results = _reported(done.stdout)
    if done.returncode or not results:
        results["program"] = (done.stderr.strip().splitlines() or ["no output"])[-1][:200]
    return results


def _reported(text: str) -> Results:
    return dict(found.groups() for found in re.finditer(r"^(\w+): (.+)$", text, re.MULTILINE))


def table(results: dict[str, Results]) -> str:
    """Return the Markdown of what works: a row for each client."""
    lines = ["| client | package | chat | stream | tools | structured | embeddings | more |", f"|{' --- |' * 8}"]
    for client in CLIENTS:
        row = results.get(client.name)
        if row is None:
            continue
        cells = [{"ok": "yes"}.get(row[name], "no") if name in row else "-" for name in COLUMNS]
        more = [f"{name.replace('_', ' ')}" for name, value in row.items() if name not in COLUMNS and value == "ok"]
        lines.append(f"| {client.name} | `{client.packages[0]}` | {' | '.join(cells)} | {', '.join(more)} |")
    return "\n".join(lines)


def write_table(text: str) -> None:
    """Replace the table in the documentation."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Try real clients against pumice serve.")
    parser.add_argument("names", nargs="*", help="clients by name; all by default")
    parser.add_argument("--quick", action="store_true", help="only clients of the development lock")
    parser.add_argument("--write", action="store_true", help="write the table of docs/clients.md")
    arguments = parser.parse_args()
    if arguments.write and (arguments.names or arguments.quick):
        parser.error("--write needs a run of all clients, since it replaces the whole table")
    for name in arguments.names:
        if name not in {client.name for client in CLIENTS}:
            parser.error(f"unknown client {name!r} (known: {', '.join(client.name for client in CLIENTS)})")
    chosen = [client for client in CLIENTS if client.name in (arguments.names or {each.name for each in CLIENTS})]
    chosen = [client for client in chosen if client.in_dev or not arguments.quick]
    if not chosen:
        parser.error("none of these clients is in the development lock; leave out --quick")
    results: dict[str, Results] = {}
    with server() as (url, model):
        for client in chosen:
            if reason := install(client):
                print(f"{client.name}: skipped, it cannot be installed: {reason}", flush=True)
                continue
            results[client.name] = try_client(client, url, model)
            for feature, value in results[client.name].items():
                print(f"{client.name}: {feature}: {value}", flush=True)
    if not results:
        print("error: no client could be installed", file=sys.stderr)
        return 1
    if arguments.write and len(results) < len(chosen):
        lost = "since its rows of the skipped clients would be lost"
        print(f"error: {PAGE.name} is not written, {lost}", file=sys.stderr)
        return 1
    if arguments.write:
        write_table(table(results))
    return int(any(value != "ok" for row in results.values() for value in row.values()))


if __name__ == "__main__":
    raise SystemExit(main())
