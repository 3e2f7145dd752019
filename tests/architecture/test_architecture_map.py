"""What `make map` measures stays within its caps: a reader pays for every room."""

import re
import statistics

from benchmarks.modules import ROOT, SMALL, House

MODULES = 307
MEDIAN_LINES = range(130, 241)
OF_ONE_NEIGHBOUR = 37
NAMES_TWICE = 0
ARCHITECTURE_BYTES = 20 * 1024
SMALL_MODULES = {
    "clock": "the only module that reads the clock",
    "env": "Alembic asks for it by this name",
    "engine_child": "a program: what is imported here is paid for with every query",
    "optimiser": "a program of its own, which loads the engine alone",
    "die_with_parent": "a program of its own, which loads the standard library alone",
    "imports": "every entry point begins with it, before anything is loaded",
    "sandbox": "keeps adapters out of what replays import",
}
"""Why each module is that short; migrations are one file each, whatever they change."""

MOODS = re.compile(r"(ing|ed|told|seen|kept|sent|found|lost|known|written|given)$")
NOUNS = {"bookkeeping", "testing", "wiring"}
"""That end like moods: names of the field for what is in there."""

HOUSE = House()


def test_there_are_no_more_modules_than_a_reader_can_know() -> None:
    assert len(HOUSE.modules) <= MODULES


def test_most_modules_hold_a_whole_noun() -> None:
    assert int(statistics.median(module.lines for module in HOUSE.modules)) in MEDIAN_LINES


def test_a_module_that_is_short_has_a_reason() -> None:
    short = {module.path.stem for module in HOUSE.small if module.path.parent.name != "versions"}
    assert short == set(SMALL_MODULES), f"under {SMALL} lines"


def test_modules_of_one_neighbour_become_no_more() -> None:
    """Programs, and what is kept apart for its imports, have one; any other is part of that neighbour."""
    assert len(HOUSE.of_one_neighbour) <= OF_ONE_NEIGHBOUR


def test_names_of_two_modules_become_no_more() -> None:
    assert len(HOUSE.names_twice) <= NAMES_TWICE


def test_a_module_is_called_after_what_it_holds() -> None:
    moods = {module.path.stem for module in HOUSE.modules if MOODS.search(module.path.stem)}
    assert moods == NOUNS


def test_the_architecture_is_a_page_that_is_read() -> None:
    assert (ROOT / "ARCHITECTURE.md").stat().st_size <= ARCHITECTURE_BYTES
