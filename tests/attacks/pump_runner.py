"""Pumps patterns in processes that the kernel ends after so much CPU time: neither a signal's handler nor a thread runs
while `re` backtracks. CPU time and not the clock's, so that a busy machine fails nothing.
"""

import gc
import json
import os
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType
from typing import NamedTuple, cast

from tests.attacks.pumps import Pump, make_pumps
from waystation.erasure.erasure import ErasureQuery
from waystation.kernel.patterns import BOUNDED_PATTERNS, LINEAR_PATTERNS, LinearPattern

Pattern = re.Pattern[str] | re.Pattern[bytes] | LinearPattern
ROOTS = ("waystation", "workflows", "activities", "workers")
SKIPPED_MODULES = ("waystation.store.migrations", "waystation.workers.__main__")
"""Programs that run when they are imported."""
USER_PATTERN_MODULES = ("waystation.plugins.redaction.rules",)
"""Whose patterns people write: they run with a time limit of their own where RE2 cannot read them."""
SIZES = (4_000, 16_000, 64_000, 256_000, 1_000_000)
FIRST_SIZES = 2
"""Every pump is tried at these; the slowest go on to the rest."""
ONE_SLOWEST_FOR = 50
"""Pumps: of so many, one is the slowest."""
REFERENCE, REFERENCE_CHARACTERS = re.compile("[^b]{1,400}b"), 16_000
"""What all patterns are compared with, in the same process: it tries all of its bound at each character."""
REFERENCES = 18
"""A text may take as long as the reference takes on so many texts of its size."""
REFERENCES_BEFORE = 2
"""And as long as on two of the reference's own size, whatever its size."""
ATTEMPTS = 3
"""What is slow each time is slow: other processes may have taken the caches meanwhile."""
GROWTH = 64
"""From one size to sixteen times as much: 16 is linear, 256 quadratic; what is bounded looks worse while short."""
DEPTH = 4
"""So deep in collections and objects patterns are looked for."""
LEAST_REFERENCES = 1
"""What is shorter is measured too badly to tell how it grows."""


class SlowPattern(NamedTuple):
    """A text that a pattern works on for too long."""

    pump: Pump
    characters: int
    seconds: float
    """CPU time. Where the kernel ended it, what it was given."""

    def __str__(self) -> str:
        return f"{self.characters:,} characters of {self.pump!r} take {self.seconds:.2f} s or more"


@cache
def measure_reference() -> float:
    """CPU seconds of the reference on this machine: the least of five."""
    text = "a" * REFERENCE_CHARACTERS
    return min(_seconds(REFERENCE, text, limit=0) for _ in range(5))


def allowed_seconds(characters: int) -> float:
    """CPU seconds for a text of so many characters."""
    return measure_reference() * (REFERENCES_BEFORE + REFERENCES * characters / REFERENCE_CHARACTERS)


def find_slow_pump(pattern: Pattern, number: int) -> SlowPattern | None:
    """The first of so many pumps that the pattern is too slow on, each time that they are tried."""
    slow = None
    for _ in range(ATTEMPTS):
        slow = _once(pattern, number)
        if slow is None:
            break
    return slow


def _once(pattern: Pattern, number: int) -> SlowPattern | None:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        try:
            with os.fdopen(writing, "w", buffering=1) as told:
                for line in _tried(pattern, number):
                    told.write(line + "\n")
        finally:
            # pytest must not go on in the child, whatever happened.
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as lines:
        said = [json.loads(line) for line in lines]
    _, status = os.waitpid(child, 0)
    ended_in_time = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF
    if not said or not (ended_in_time or said[-1] == "done" or "seconds" in said[-1]):
        raise RuntimeError(f"the process that pumped {pattern.pattern!r} ended early: status {status}, {said[-1:]}")
    if said[-1] == "done":
        return None
    last = said[-1]
    return SlowPattern(
        Pump(*last["pump"]), last["characters"], last.get("seconds", 2 * allowed_seconds(last["characters"]))
    )


def _tried(pattern: Pattern, number: int) -> Iterator[str]:
    """What is about to be tried, each before it is: the kernel may end this within. Then what was too slow, or done."""
    spent: dict[Pump, list[float]] = {}
    made = make_pumps(pattern.pattern, pattern.flags, number)

    def attempts() -> Iterator[tuple[Pump, int]]:
        yield from ((pump, size) for pump in made for size in SIZES[:FIRST_SIZES])
        slowest = sorted(made, key=lambda pump: spent[pump][-1], reverse=True)[: 1 + number // ONE_SLOWEST_FOR]
        yield from ((pump, size) for pump in slowest for size in SIZES[FIRST_SIZES:])

    for pump, size in attempts():
        attempt = {"pump": pump, "characters": size}
        yield json.dumps(attempt)
        seconds = _seconds(pattern, pump.text(size), 2 * allowed_seconds(size))
        earlier = spent.setdefault(pump, [])
        earlier.append(seconds)
        grew = len(earlier) > 2 and earlier[-1] > GROWTH * max(earlier[-3], LEAST_REFERENCES * measure_reference())
        if seconds > allowed_seconds(size) or grew:
            yield json.dumps({**attempt, "seconds": seconds})
            return
    yield json.dumps("done")


def _seconds(pattern: Pattern, text: str, limit: float) -> float:
    """CPU seconds for all matches in the text, and for the whole of it. A limit of 0 is none."""
    signal.setitimer(signal.ITIMER_PROF, limit)
    begun = time.process_time()
    _run(pattern, text)
    seconds = time.process_time() - begun
    signal.setitimer(signal.ITIMER_PROF, 0)
    return seconds


def _run(pattern: Pattern, text: str) -> None:
    if isinstance(pattern.pattern, bytes):
        of_bytes, content = cast("re.Pattern[bytes]", pattern), text.encode("latin-1", "replace")
        of_bytes.fullmatch(content)
        deque(of_bytes.finditer(content), maxlen=0)
    else:
        of_text = cast("re.Pattern[str]", pattern)
        of_text.fullmatch(text)
        deque(of_text.finditer(text), maxlen=0)


def import_modules() -> list[ModuleType]:
    """Every module of the product."""
    found: list[ModuleType] = []
    for root in ROOTS:
        package = import_module(root)
        found.append(package)
        names = (module.name for module in walk_packages(package.__path__, f"{root}."))
        found += [import_module(name) for name in names if not name.startswith(SKIPPED_MODULES)]
    return found


def collect_patterns() -> dict[str, Pattern]:
    """Every pattern of the product by where it stands, or by what it is where no module's attribute leads to it."""
    places: dict[int, str] = {}
    strays: list[Pattern] = []
    for module in import_modules():
        for name, value in vars(module).items():
            for pattern in _patterns_in(value):
                places.setdefault(id(pattern), f"{module.__name__}.{name}")
                if not module.__name__.startswith(USER_PATTERN_MODULES):
                    strays.append(pattern)
    listed: dict[int, Pattern] = {id(one): one for one in (*BOUNDED_PATTERNS, *LINEAR_PATTERNS, *strays)}
    return {f"{places.get(key, 'somewhere')}: {one.pattern!r}": one for key, one in listed.items()}


def _patterns_in(value: object, depth: int = 1) -> Iterator[Pattern]:
    """The patterns in a value of a module: itself, or in collections and classes, and the attributes of instances."""
    if isinstance(value, re.Pattern | LinearPattern):
        yield cast(Pattern, value)
    elif depth < DEPTH:
        inner: list[object] = []
        if isinstance(value, Mapping):
            inner += cast(Mapping[object, object], value).values()
        elif isinstance(value, tuple | list | set | frozenset):
            inner += cast(tuple[object, ...], value)
        elif str(getattr(value, "__module__", "")).startswith(ROOTS):
            inner += getattr(value, "__dict__", {}).values()
        for one in inner:
            yield from _patterns_in(one, depth + 1)


def _patterns_of(person: str) -> Iterator[Pattern]:
    sought = ErasureQuery(value=person, placeholders=("<PERSON_0123456789ab>",))
    sought.count_matches("")
    return _patterns_in(sought)


def main() -> None:
    """Reads what is to be pumped, and says which patterns are slow, by place.

    From standard input: `number`, how many pumps for each; `product`, whether those of the product are pumped;
    `persons`, values that are looked for; `sources` and `linear`, further patterns.
    """
    asked = json.loads(sys.stdin.read())
    pumped = collect_patterns() if asked["product"] else {}
    pumped |= {f"{name!r}: {one.pattern!r}": one for name in asked["persons"] for one in _patterns_of(name)}
    pumped |= {source: re.compile(source, flags) for source, flags in asked["sources"]}
    pumped |= {f"RE2: {source}": LinearPattern(source, flags) for source, flags in asked["linear"]}
    measure_reference()
    gc.freeze()
    for place, pattern in pumped.items():
        slow = find_slow_pump(pattern, asked["number"])
        print(json.dumps([place, str(slow) if slow else None]), flush=True)


if __name__ == "__main__":
    main()
