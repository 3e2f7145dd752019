"""Files that a person hands in and others wrote: sets of questions, plans, settings; and what is written of them."""

import stat
from pathlib import Path

import pytest
from pydantic import ValidationError

from waystation.cli.plans import MAX_PLAN_CHARACTERS, parse_plan
from waystation.config.setting_types import write_table
from waystation.documents.documents import SourceDocument
from waystation.kernel.errors import BadInput
from waystation.plugins.evaluation.question_sets import load_evaluation_questions, load_question_set

SET = "name: x\nquestions:\n  - id: keys\n    question: What is in it?\n    facts: [A key]\n    documents: [{}]\n"
BOMB = "\n".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)), "steps: *a39"])


@pytest.mark.parametrize("named", ["../keys.md", "/etc/hostname", "link.md", "linked/keys.md", "a/../../keys.md"])
def test_a_set_of_questions_names_no_file_outside_its_folder(tmp_path: Path, named: str) -> None:
    (tmp_path / "keys.md").write_text("A key.")
    folder = tmp_path / "set"
    (folder / "a").mkdir(parents=True)
    (folder / "link.md").symlink_to(tmp_path / "keys.md")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "set.yaml").write_text(SET.format(named))
    with pytest.raises(BadInput, match="is outside the folder"):
        load_evaluation_questions(load_question_set(folder / "set.yaml"), folder, tmp_path / "scratch")


@pytest.mark.parametrize(
    "written",
    [
        BOMB,
        "steps: &a [*a]",
        f"steps: {'[' * 400}",
        f"steps: {'9' * 5_000}",
        "{[a]: b}",
        "x" * (MAX_PLAN_CHARACTERS + 1),
    ],
)
def test_a_plan_that_no_person_wrote_is_refused(written: str) -> None:
    with pytest.raises(BadInput, match=r"^the plan "):
        parse_plan(written)


def test_a_set_whose_names_are_lists_is_refused(tmp_path: Path) -> None:
    (tmp_path / "set.yaml").write_text("? [a]\n: b\n")
    with pytest.raises(BadInput, match="not a word"):
        load_question_set(tmp_path / "set.yaml")


@pytest.mark.parametrize("halved", [{"name": "\ud800.md", "text": "x"}, {"name": "a.md", "text": "x\udfff"}])
def test_a_document_has_whole_characters(halved: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        SourceDocument.model_validate(halved)


def test_a_config_file_that_we_make_is_this_user_s_alone(tmp_path: Path) -> None:
    config = tmp_path / "home" / "config.toml"
    write_table(config, ("endpoints", "http://a.example", "m"), {"tools": True})
    assert [stat.S_IMODE(path.stat().st_mode) for path in (config, config.parent)] == [0o600, 0o700]
