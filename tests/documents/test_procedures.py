"""Procedures of the user's: what is one, what it is called, when it fits, and what is wrong with an unusable one."""

import pytest

from waystation.documents.procedures import (
    MIN_RELEVANCE,
    PROCEDURE_CHARACTERS,
    InvalidProcedure,
    Procedure,
    ProcedureSource,
    is_procedure_file_name,
    parse_procedure,
    reject_duplicate_names,
)

WRITTEN = """\
---
name: licence-review
description: >
  How to review licences
  of packages
tags: [a, b]
---
# Reviewing
1. Read the licence.
"""


def read(text: str, document: str = "skills/review.md") -> Procedure:
    found = parse_procedure(ProcedureSource(name=document, text=text))
    assert isinstance(found, Procedure)
    return found


@pytest.mark.parametrize("name", ["skills/a.md", "handed/in/skills/a.MD"])
def test_a_markdown_file_in_a_folder_skills_is_named_like_a_procedure(name: str) -> None:
    assert is_procedure_file_name(name)


@pytest.mark.parametrize("name", ["skills.md", "skills/a.txt", "skills/deep/a.md", "myskills/a.md"])
def test_other_files_are_documents(name: str) -> None:
    assert not is_procedure_file_name(name)


def test_front_matter_names_and_describes_a_procedure() -> None:
    found = read(WRITTEN)
    assert (found.name, found.description) == ("licence-review", "How to review licences of packages")
    assert found.text == "# Reviewing\n1. Read the licence."


def test_without_front_matter_the_first_heading_describes_it_and_the_file_names_it() -> None:
    found = read("Always:\n\n## Reviewing licences\nRead them.\n")
    assert (found.name, found.description) == ("review", "Reviewing licences")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("---\nname: a\n# No end", "its front matter has no closing ---"),
        ("---\nname: a\ndescription: b\n---\n", "it has no text"),
        ("   \n", "it has no text"),
        ("Do this.", "it has neither a description nor a heading"),
        ("# A\n" + "x" * PROCEDURE_CHARACTERS, "it has 20,004 characters; the maximum is 20,000"),
    ],
)
def test_a_procedure_that_cannot_be_used_says_why(text: str, reason: str) -> None:
    assert parse_procedure(ProcedureSource(name="skills/a.md", text=text)) == InvalidProcedure(
        document="skills/a.md", reason=reason
    )


def test_a_name_means_one_procedure() -> None:
    first, second = read("# A\nDo.", "skills/a.md"), read("# B\nDo.", "other/skills/a.md")
    assert reject_duplicate_names([first, second]) == (
        first,
        InvalidProcedure(document="other/skills/a.md", reason="the procedure skills/a.md has the same name"),
    )


def test_a_procedure_fits_a_goal_by_its_words() -> None:
    found = read(WRITTEN)
    assert found.relevance("Review the licence of each package") >= MIN_RELEVANCE
    assert found.relevance("What did the harbour cost?") == 0
