from pathlib import Path

import pytest

from waystation.documents.word_normalization import contains_phrase, normalize_words
from waystation.kernel.errors import BadInput
from waystation.plugins.evaluation.question_sets import find_question_set, load_evaluation_questions, load_question_set

GOOD = """name: harbours
documents: [docs]
questions:
  - id: dug
    question: When was it dug?
    facts: [3.10, [one, two]]
    cites: [a.md]
"""


def written(folder: Path, text: str) -> Path:
    (folder / "docs").mkdir(exist_ok=True)
    (folder / "docs" / "a.md").write_text("# A\n\nIt was dug in 1811.\n")
    path = folder / "set.yaml"
    path.write_text(text)
    return path


def test_scalars_are_text_as_they_are_written(tmp_path: Path) -> None:
    asked = load_question_set(written(tmp_path, GOOD))
    assert asked.questions[0].facts == (("3.10",), ("one", "two"))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("facts:", "fakts:"), "line 6: fakts: there is no such field"),
        (("    question: When was it dug?\n", ""), "line 4: question: it is missing"),
        (("name: harbours", "name: harbours\nname: twice"), "line 2: this key is given twice"),
        (("id: dug", "id: ../dug"), "line 4: id: it is too long or too short, or has characters that are not allowed"),
        (("facts: [3.10, [one, two]]", "facts: [dug]"), "line 4: the fact 'dug' is in the question"),
        ((GOOD[GOOD.index("questions") :], "questions: []"), "line 3: questions: it is empty"),
        ((GOOD, ""), "is empty"),
        ((GOOD, "- a\n- b\n"), "line 1: "),
        (("[3.10,", "[3.10,,"), "invalid YAML"),
        (("docs]", "&a docs, *a]"), "aliases"),
        ((GOOD, "[" * 3_000), "invalid YAML"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, change: tuple[str, str], complaint: str) -> None:
    path = written(tmp_path, GOOD.replace(*change))
    with pytest.raises(BadInput) as refused:
        load_question_set(path)
    assert complaint in str(refused.value)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("[docs]", "[gone]"), "question dug: .*gone does not exist"),
        (("documents: [docs]", "packages: [no-such-package]"), "question dug: the package no-such-package"),
        (("documents: [docs]\n", ""), "question dug has no documents"),
        (("cites: [a.md]", "cites: [b.md]"), "question dug: `cites` names b.md"),
        (("[docs]", "[docs, a.md]"), "question dug: two documents have the name a.md"),
    ],
)
def test_documents_that_are_missing_are_named(tmp_path: Path, change: tuple[str, str], complaint: str) -> None:
    path = written(tmp_path, GOOD.replace(*change))
    (tmp_path / "a.md").write_text("# B\n\nAnother.\n")
    with pytest.raises(BadInput, match=complaint):
        load_evaluation_questions(load_question_set(path), tmp_path, tmp_path / "scratch")


def test_files_and_folders_are_documents_under_the_names_of_the_set(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.replace("[docs]", "[docs, ./more/b.md]"))
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "b.md").write_text("# B\n\nAnother.\n")
    (one,) = load_evaluation_questions(load_question_set(path), tmp_path, tmp_path / "scratch")
    assert list(one.lines) == ["a.md", "./more/b.md"]


def test_a_set_that_is_nowhere_is_refused_with_those_that_ship() -> None:
    with pytest.raises(BadInput, match="packages"):
        find_question_set("no-such-set")


def test_the_facts_of_the_set_that_ships_stand_in_the_installed_packages(tmp_path: Path) -> None:
    path = find_question_set("packages")
    asked = load_evaluation_questions(load_question_set(path), path.parent, tmp_path)
    assert len(asked) == 30
    for one in asked:
        gold = [normalize_words("\n".join(one.lines[name])) for name in one.gold.cites]
        for wordings in one.gold.facts:
            assert any(contains_phrase(words, wording) for words in gold for wording in wordings), (
                one.gold.id,
                wordings,
            )
        for name, lines in one.lines.items():
            assert not any(contains_phrase(normalize_words("\n".join(lines)), phrase) for phrase in one.gold.never), (
                one.gold.id,
                name,
            )
