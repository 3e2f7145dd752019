"""The table of mutations fits the code, and its command tells a line that tests hold from one that nothing does."""

from pathlib import Path

import pytest

from benchmarks.mutations.__main__ import do_tests_pass, find_source, find_stale_mutations, is_killed
from benchmarks.mutations.table import MUTATIONS, Mutation

SOURCE = "def doubled(number: int) -> int:\n    return number * 2\n\n\ndef greeted() -> str:\n    return 'hello'\n"
TEST = "from amounts import doubled, greeted\n\n\ndef test_a_number_is_doubled() -> None:\n    assert doubled(2) == 4\n"


def mutation(old: str, new: str, test: str = "test_amounts.py") -> Mutation:
    return Mutation("ledger", "it is wrong", "folder", old, new, (test,))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "amounts.py").write_text(SOURCE)
    (tmp_path / "test_amounts.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = folder\n")
    return tmp_path


def test_every_row_is_found_once_in_the_code_and_its_tests_are_there() -> None:
    assert find_stale_mutations() == []
    assert len(set(MUTATIONS)) == len(MUTATIONS)


@pytest.mark.parametrize("old", ["return number * 3", "return"])
def test_a_text_that_is_not_there_once_is_an_error(tree: Path, old: str) -> None:
    with pytest.raises(LookupError, match=f"instead of once: '{old}'".replace("*", r"\*")):
        find_source(mutation(old, "pass"), tree)


def test_what_a_test_notices_is_killed_and_what_none_does_is_not(tree: Path) -> None:
    assert is_killed(mutation("number * 2", "number * 3"), tree)
    assert not is_killed(mutation("'hello'", "'goodbye'"), tree)
    assert (tree / "folder" / "amounts.py").read_text() == SOURCE


def test_a_test_that_cannot_be_run_proves_nothing(tree: Path) -> None:
    with pytest.raises(RuntimeError, match="pytest exits with"):
        is_killed(mutation("number * 2", "number * 3", "test_amounts.py::test_nothing"), tree)
    assert do_tests_pass(tree, ("test_amounts.py",))
