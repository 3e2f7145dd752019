from pathlib import Path

from tests.tiers import LONG, QUICK, waits

TESTS = Path(__file__).parents[1]


def test_every_module_that_is_named_is_there() -> None:
    files = {(path.parent.name, path.stem) for path in TESTS.rglob("test_*.py")}
    assert {(folder, name) for folder, names in QUICK.items() for name in names} <= files
    assert {name for _, name in files} >= LONG


def test_each_kind_of_test_is_in_both_suites() -> None:
    quick = {path.parent.name for path in TESTS.rglob("test_*.py") if not waits(path)}
    assert quick >= {"unit", "agents", "wire", "activities", "replay", "architecture", *QUICK}
