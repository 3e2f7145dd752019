"""`waystation eval` over results that are there already, and what it refuses before it runs."""

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from waystation.cli.main import run
from waystation.plugins.evaluation.scores import Evaluation, ReportScore, ScoredAnswer
from waystation.tasks.task import TaskPhase

Results = Callable[[str, float, str], str]
EVIL = "<script>alert(1)</script>&\"'"


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path / "home"))


@pytest.fixture
def result(tmp_path: Path) -> Results:
    def write(name: str, facts: float, fault: str) -> str:
        answers = [
            ScoredAnswer(
                id=f"q{number}", phase=TaskPhase.DONE, scores=ReportScore(facts=facts, missed=(EVIL,)), fault=fault
            )
            for number in range(6)
        ]
        found = Evaluation(set=f"set {EVIL}", label=f"{name} {EVIL}", version="0", model="m", answers=tuple(answers))
        path = tmp_path / f"{name}.json"
        path.write_text(found.model_dump_json())
        return str(path)

    return write


def test_two_results_are_compared_without_a_platform(result: Results, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", "--compare", result("a", 0.25, ""), result("b", 1, ""), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["compared"] == [
        {"measure": "facts", "questions": 6, "first": 0.25, "second": 1.0, "better": 6, "worse": 0, "p": 0.03125}
    ]
    assert said["test"] == "exact two-sided sign test; questions with equal scores are left out"
    assert [means["facts"] for means in said["means"]] == [0.25, 1.0]


@pytest.mark.parametrize(("floor", "code"), [("facts=0.25", 0), ("facts=0.3", 1), ("evidence=0", 1)])
def test_a_mean_under_its_floor_ends_with_1(
    result: Results, capsys: pytest.CaptureFixture[str], floor: str, code: int
) -> None:
    """And so does one that no question measures."""
    same = result("a", 0.25, "")
    assert run(["eval", "--compare", same, same, "--least", floor]) == code
    assert ("below" in capsys.readouterr().err) == bool(code)


def test_a_failed_task_is_named(result: Results, capsys: pytest.CaptureFixture[str]) -> None:
    failed = result("a", 0, "the task has no report (phase: failed)")
    run(["eval", "--compare", failed, failed])
    said = capsys.readouterr().out
    assert "6 failed" in said
    assert "failed: q5 (the task has no report (phase: failed))" in said


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"src", "href"}]


def test_the_page_holds_its_plots_loads_nothing_and_runs_nothing(result: Results, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run(["eval", "--compare", result("a", 0.25, ""), result("b", 1, ""), "--html", str(page)]) == 0
    tags = Tags()
    tags.feed(page.read_text())
    assert "script" not in tags.opened
    assert tags.links == []
    assert tags.opened.count("svg") == 2
    assert tags.opened.count("circle") == 2 * 6 + 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["eval"], "give a SET"),
        (["eval", "no-such-set"], "no question set"),
        (["eval", "packages", "--least", "fact=0.9"], "one of these metrics: facts"),
        (["eval", "packages", "--least", "facts=2"], "one of these metrics: facts"),
        (["eval", "packages", "--compare", "a.json", "gone.json"], "cannot be read"),
        (["eval", "packages", "--compare", "x", "y", "--keep", "z.json"], "--keep"),
        (["eval", "packages", "--budget", "much"], "--budget takes"),
        (["eval", "packages", "--window", "1"], "--window takes"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_runs(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert complaint in capsys.readouterr().err
