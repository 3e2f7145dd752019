import shlex
import sys
from pathlib import Path

import pytest

from tests.support.task_model import SCRIPTED_PLAN
from waystation.cli.plans import edit_in_editor, format_plan_yaml, parse_plan, read_plan_file
from waystation.kernel.errors import BadInput


def test_a_plan_that_is_printed_is_read_as_the_same_plan() -> None:
    assert parse_plan(format_plan_yaml(SCRIPTED_PLAN)) == SCRIPTED_PLAN


def test_a_share_is_read_as_it_is_written() -> None:
    written = format_plan_yaml(SCRIPTED_PLAN)
    assert "share" not in written
    for share, read in (("25%", "25%"), ("40_000", "40000"), ("$0.40", "$0.40")):
        plan = parse_plan(written.replace("goal: Read about tides.", f"goal: Read about tides.\n  share: {share}"))
        assert [step.share for step in plan.steps] == ["", read, "", ""]
        assert parse_plan(format_plan_yaml(plan)) == plan


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("needs: []", "needs: []\n  share: half", "write an amount, or a percentage like 25%"),
        ("needs: []", "needs: []\n  share: [1]", "step 1.share"),
        ("needs: []", "needs: [write]", "steps depend on each other in a cycle"),
        ("role: analysis", "role: cooking", "step 3.role"),
        ("steps:", "steps: [", "not valid YAML"),
        ("role: writing", "role: analysis", "the role `writing`"),
        ("needs: []", "need: []", "step 1.need: there is no such field"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused_with_what_is_wrong(before: str, after: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        parse_plan(format_plan_yaml(SCRIPTED_PLAN).replace(before, after))


EDITORS = {
    "changed": "import sys\nfrom pathlib import Path\n"
    "file = Path(sys.argv[1]); file.write_text(file.read_text().replace('Tides', 'Waves'))",
    "left as it was": "",
    "failed": "raise SystemExit(3)",
}


def edited_by(editor: str, monkeypatch: pytest.MonkeyPatch) -> str | None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", shlex.join([sys.executable, "-c", EDITORS.get(editor, editor)]))
    return edit_in_editor(format_plan_yaml(SCRIPTED_PLAN))


def test_a_plan_is_what_its_editor_left(monkeypatch: pytest.MonkeyPatch) -> None:
    written = edited_by("changed", monkeypatch)
    assert written is not None
    assert parse_plan(written).get_step("tides").title == "Waves"
    assert edited_by("left as it was", monkeypatch) is None


def test_an_editor_that_fails_sends_nothing_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="failed, and nothing was sent"):
        edited_by("failed", monkeypatch)


def test_a_file_that_is_no_plan_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file or directory"):
        read_plan_file(tmp_path / "plan.yaml")
    (tmp_path / "plan.yaml").write_bytes(b"steps: \xff")
    with pytest.raises(BadInput, match="it is not UTF-8"):
        read_plan_file(tmp_path / "plan.yaml")
