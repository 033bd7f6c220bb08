"""Tasks with several answers: scores by hand and next to llama-perplexity, tasks that it draws, files that are none."""

import json
import math
import re

import numpy as np
import pytest

import pumice
from choice_files import HELLASWAG, WINOGRANDE, multiple_choices, numbers
from pumice.cli import cli
from pumice.demo import demo_model_path
from pumice.errors import RequestError
from pumice.evaluate.choices import log_likelihoods, measure
from pumice.evaluate.tasks import Task, read_tasks
from tiny_zoo import ZOO


def tokens(value):
    """A token a letter, after BOS."""
    return [0, *(ord(letter) - 96 for letter in value)]


class Likes:
    """Thinks token t to be t times as likely as token 1, and token 0 as that."""

    def __init__(self):
        self.read = []

    def continuation_logits(self, beginning, endings):
        self.read.append((beginning, endings))
        row = np.log(np.maximum(np.arange(27, dtype=np.float32), 1))
        return [np.tile(row, (len(ending), 1)) for ending in endings]


TOTAL = math.log(1 + sum(range(1, 27)))


def likes(value):
    return sum(math.log(ord(letter) - 96) - TOTAL for letter in value) / len(value)


def test_a_common_prefix_of_choices_does_not_count():
    model = Likes()
    found = log_likelihoods(model, tokens, Task(["abcd", "abyz", "abc"], frozenset({1})))
    assert found == pytest.approx([likes("cd"), likes("yz"), likes("c")], rel=1e-6)
    assert model.read == [([0, 1, 2], [[3, 4], [25, 26], [3]])]
    assert log_likelihoods(model, tokens, Task(["ab", "abc"], frozenset()))[0] == pytest.approx(likes("b"), rel=1e-6)
    plain = log_likelihoods(model, lambda value: tokens(value)[1:], Task(["abc", "xyz"], frozenset()))
    assert plain == pytest.approx([likes("bc"), likes("yz")], rel=1e-6)  # nothing predicts the first
    with pytest.raises(RequestError, match="'' is a single token"):
        log_likelihoods(model, tokens, Task(["ab", ""], frozenset()))


def test_scores():
    chosen = ((["az", "ab"], 0), (["az", "ab", "ac"], 1), (["ab", "ay"], 1))
    tasks = [Task(choices, frozenset({i})) for choices, i in chosen]
    scores = list(measure(Likes(), tokens, tasks))
    assert [score.accuracy for score in scores] == pytest.approx([1, 1 / 2, 2 / 3])
    assert scores[-1].chance == pytest.approx(3 / 7)
    assert scores[-1].error == pytest.approx(math.sqrt(2 / 9 / 2))
    assert (scores[-1].low, scores[-1].high) == pytest.approx((0.207660, 0.938508), abs=1e-5)  # Wilson's


@pytest.mark.parametrize(
    ("kind", "drawn"),  # what libstdc++ draws
    [("hellaswag", [417, 997, 719, 931, 0, 128, 302, 999]), ("winogrande", [417, 996, 718, 929, 0, 127, 300, 992])],
)
def test_tasks_are_drawn_as_llama_cpp_draws(kind, drawn):
    if kind == "hellaswag":
        lines = [line for i in range(1000) for line in (f"{i}", "0", "a", "b", "c", "d")]
    else:
        lines = [f"{i},{i}_,a,b,1" for i in range(1000)]
    tasks = read_tasks("\n".join(lines).encode(), kind, 8)
    assert [int(re.match(r"\d+", task.texts[0])[0]) for task in tasks] == drawn
    text = "\n".join(lines).encode()
    assert len(read_tasks(text, kind, 1000)) == len(read_tasks(text, kind)) == 1000


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("hellaswag", b"a\n0\nb\n", "has 3 lines, but a HellaSwag task has 6"),
        ("hellaswag", b"a\n4\nb\nc\nd\ne\n", "line 2: '4' is not the index of an ending"),
        ("hellaswag", b"\xff", "not valid UTF-8 at byte 0"),
        ("winogrande", b"", "has no tasks"),
        ("winogrande", b"1,a _ b,c,d", "line 1: has 4 fields"),
        ("winogrande", b"a", "line 1: has 1 field, expected number"),
        ("winogrande", b"1,a b,c,d,1", "line 1: the sentence has no blank"),
        ("winogrande", b"1,a _,c,d,1\n1,a _,c,d,3", "line 2: the answer is '3'"),
        ("multiple-choice", b"", "ends at byte 0"),
        ("multiple-choice", numbers(0), "not a file of multiple-choice tasks"),
        ("multiple-choice", numbers(2**31), "not a file of multiple-choice tasks"),
        ("multiple-choice", multiple_choices()[:-20], "within a task"),
        ("multiple-choice", multiple_choices([("", ["a"], 0)]), "has an empty question or answer"),
        ("multiple-choice", multiple_choices([("Who?", ["a"] * 101, 0)]), "101 answers exceed the limit of 100"),
        ("multiple-choice", numbers(1, 8) + numbers(1) + b"\xff", "the text at byte 12 is not valid UTF-8"),
    ],
)
def test_files_that_are_none(kind, data, message):
    with pytest.raises(RequestError, match=message):
        read_tasks(data, kind)


@pytest.mark.parametrize("name", ["llama-bias", "gemma2", "mamba", "jamba"])
def test_endings_are_predicted_as_whole_texts_are(tmp_path, name):
    """Whatever is kept of the beginning: keys and values, those of a window, states."""
    path = ZOO[name].write(tmp_path / "model.gguf")
    beginning, endings = [3, 5, 7] * 12, [[1, 2, 3] * 8, [4], [9, 8, 1, 1]]
    with pumice.load(path, backend="numpy", kv_type="f32", n_batch=16) as model:
        found = model.engine.continuation_logits(beginning, endings)
        for ending, logits in zip(endings, found, strict=True):
            whole = model.logits([*beginning, *ending])
            assert logits == pytest.approx(whole[len(beginning) - 1 : -1], abs=1e-4)
        with pytest.raises(RequestError, match="each ending need a token"):
            model.engine.continuation_logits(beginning, [[]])
        with pytest.raises(RequestError, match="exceed the context"):
            model.engine.continuation_logits(beginning * 200, [[1]])


CASES = {
    "hellaswag": "\n".join(HELLASWAG * 2).encode() + b"\n",
    "winogrande": "\n".join(WINOGRANDE).encode() + b"\n\n",  # llama.cpp wants an empty line
    "multiple-choice": multiple_choices(),
}


@pytest.mark.parametrize("kind", CASES)
def test_scores_are_llama_perplexitys(llama_cpp, tmp_path, kind):
    path = tmp_path / "tasks"
    path.write_bytes(CASES[kind])
    with pumice.load(n_ctx=512) as model:
        tasks = read_tasks(CASES[kind], kind)
        ours = [score.accuracy for score in measure(model.engine, model.tokenizer.tokenize, tasks)]
    option = "-bf" if kind == "multiple-choice" else "-f"
    output = llama_cpp("llama-perplexity", "-m", demo_model_path(), option, path, f"--{kind}", "-np", 8, "-c", 512)
    theirs = re.findall(r"^(\d+)\t([\d.]+)", output, re.MULTILINE)
    assert theirs  # of which it may lose the last
    for number, accuracy in theirs:
        assert 100 * ours[int(number) - 1] == pytest.approx(float(accuracy), abs=1e-3)


def test_the_command(tmp_path, capsys):
    path = tmp_path / "tasks"
    path.write_bytes(CASES["hellaswag"])
    options = ["perplexity", str(demo_model_path()), "-f", str(path), "--hellaswag"]
    cli.main([*options, "--json"], standalone_mode=False)
    facts = json.loads(capsys.readouterr().out)
    cli.main(options, standalone_mode=False)
    assert capsys.readouterr().out.startswith(f"{100 * facts['accuracy']:.4f} +/- ")
    assert (facts["n_tasks"], facts["chance"]) == (2, 0.25)


def test_wrong_options(tmp_path):
    from click.testing import CliRunner

    def said(*arguments):
        return CliRunner().invoke(cli, ["perplexity", *map(str, arguments)])

    path = tmp_path / "tasks"
    path.write_bytes(b"a\n")
    assert "--hellaswag needs its tasks with --file" in said("--hellaswag", "--kl-divergence-base", path).stderr
    assert "need a text with --file" in said("--hellaswag", "-f", path, "--chunks", 3).stderr
    assert "tasks.txt: no such file" in said("--winogrande", "-f", tmp_path / "tasks.txt").stderr
    several = said("--winogrande", "--hellaswag", "-f", tmp_path / "tasks.txt").stderr
    assert "--hellaswag and --winogrande are different kinds of tasks; give one" in several
    for option in ("--tasks", "--hellaswag-tasks"):
        missing = said(option, 5, "-f", path).stderr
        assert "needs the kind of the tasks in --file: --hellaswag, --winogrande or --multiple-choice" in missing
    assert str(said("--hellaswag", "-f", path).exception) == f"{path}: has 1 line, but a HellaSwag task has 6"
