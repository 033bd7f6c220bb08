"""Make tests/fixtures/llama_options.json: the options of llama-server, each with how many values it takes.

And tests/fixtures/llama_environment.json: its environment variables, each with the names of its option.

And tests/fixtures/llama_cli_options.json: the options of llama-cli and llama-completion, by the tables of their
READMEs, which llama.cpp makes of their help.

python tests/make_fixtures/llama_options.py path/to/llama-server path/to/llama.cpp
"""

import json
import re
import subprocess
import sys
from pathlib import Path

FIXTURES = Path(__file__).resolve().parents[2] / "tests" / "fixtures"
WIDTH = 40  # columns of the names in its help
VARIABLE = re.compile(r"\(env: (\w+)\)")
OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z][\w.-]*)")


def options(help: str) -> dict[str, int]:
    found = {}
    for line in help.splitlines():
        if not line.startswith("-") or line.startswith("-----"):
            continue
        head = line[:WIDTH] if line[WIDTH - 1 : WIDTH] == " " else line
        names = OPTION.findall(re.sub(r"[<\[{].*", "", head))
        rest = head.rsplit(names[-1], 1)[1].strip()
        found |= dict.fromkeys(names, int(bool(rest)))
    return found


def documented(readme: str) -> dict[str, int]:
    heads = re.findall(r"^\| `(-.*?)` \|", readme.replace(r"\|", "/"), re.MULTILINE)
    return options("\n".join(heads))


def environment(help: str) -> dict[str, list[str]]:
    found = {}
    for described in re.split(r"\n(?=-)", help):
        if variable := VARIABLE.search(described):
            found[variable[1]] = sorted(options(described.splitlines()[0]))
    return found


if __name__ == "__main__":
    tools = Path(sys.argv[2]) / "tools"
    found = {f"llama-{name}": documented((tools / name / "README.md").read_text()) for name in ("cli", "completion")}
    (FIXTURES / "llama_cli_options.json").write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")
    said = subprocess.run([sys.argv[1], "--help"], capture_output=True, text=True, check=True)
    for name, found in (("options", options(said.stdout)), ("environment", environment(said.stdout))):
        (FIXTURES / f"llama_{name}.json").write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")
