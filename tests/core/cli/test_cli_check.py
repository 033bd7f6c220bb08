"""`pumice check`: what it writes, and its exit status."""

import json

from pumice.demo import demo_model_path


def test_check(run, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(demo_model_path().read_bytes())
    run("gguf", "set", str(path), "tokenizer.ggml.bos_token_id=9000", "llama.context_length=1")
    done = run("check", str(path))
    assert done.stdout.splitlines() == [
        "ERROR    llama.context_length: is 1; published models have 64 to 1e+08",
        "ERROR    tokenizer.ggml.bos_token_id: is 9000, but there are only 2048 tokens",
        "2 errors",
    ]
    assert done.returncode == 1
    facts = json.loads(run("check", str(path), "--json").stdout)
    assert facts["model"] == str(path)
    assert [finding["level"] for finding in facts["findings"]] == ["error", "error"]


def test_a_good_file(run):
    assert run("check", str(demo_model_path()), "--no-run") == (0, "no problems found\n", "")
