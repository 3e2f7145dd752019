from pathlib import Path

from tests.tiers import EVERY_LANDING, PARTS, QUICK, part_of, waits

TESTS = Path(__file__).parents[1]


def test_every_module_that_is_named_is_there() -> None:
    files = {(path.parent.name, path.stem) for path in TESTS.rglob("test_*.py")}
    assert {(folder, name) for folder, names in QUICK.items() for name in names} <= files


def test_a_module_that_nobody_has_listed_waits() -> None:
    assert waits(TESTS / "tasks" / "test_new.py")


def test_each_kind_of_test_is_in_both_suites() -> None:
    quick = {path.parent.name for path in TESTS.rglob("test_*.py") if not waits(path)}
    assert quick == set(QUICK) >= {"tasks", "agents", "store", "live", "end_to_end", "replay"}


def test_a_few_landings_run_every_module_that_waits() -> None:
    waiting = {path.stem for path in TESTS.rglob("test_*.py") if waits(path)}
    parts = [part_of(f"{number:08x}", waiting) for number in range(PARTS)]
    assert waiting >= EVERY_LANDING
    assert set[str]().union(*parts) == waiting
    assert all(len(part) < len(waiting) / 2 for part in parts)
