"""The clock of the wall may jump: it is shown, and decides nothing. Times are those of clocks that only go forward."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]

SHOWN = {
    "core/pumice/cli/ps.py": "for how long a model is loaded",
    "core/pumice/compat/llama_cpp/results.py": "when an answer was begun",
    "core/pumice/process_list.py": "since when a model is loaded",
    "plugins/pumice_server/served_model.py": "when a model was listed",
    "plugins/pumice_server/models.py": "since when a server runs",
    "plugins/pumice_server/protocols/ollama/facts.py": "when a model will be unloaded",
    "plugins/pumice_server/protocols/openai/chat_answer.py": "when an answer was begun",
    "plugins/pumice_server/resumable.py": "when a kept stream began and ended",
    "plugins/pumice_server/protocols/openai/completions.py": "when an answer was begun",
    "plugins/pumice_server/protocols/openai/responses.py": "when an answer was begun",
    "core/pumice/chat/jinja.py": "strftime_now of templates",
    "core/pumice/chat/template.py": "a date in a built-in template",
    "plugins/pumice_server/protocols/ollama/chat.py": "when an answer was made",
}
KEPT = {"plugins/pumice_server/jobs/store.py": "when files and batches expire, which outlive the server"}
WALL = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.datetime.now", "date.today"}


def reads_wall(path: Path) -> bool:
    text = path.read_text()
    if not any(name in text for name in WALL):  # most modules: to parse them all takes seconds
        return False
    tree = ast.parse(text)
    names = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return bool(names & WALL)


def test_the_clock_of_the_wall_is_only_shown():
    sources = [path for folder in ("core", "plugins") for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in sources if "pumice_ray" not in path.parts and reads_wall(path)}
    assert found == {*SHOWN, *KEPT}
