"""Measures redaction's worst case: texts made to be slow, and random excerpts of what is installed here.

Secrets and identifiers only: the language model, which finds names, takes the same time for every text.
"""

import asyncio
import json
import random
import sysconfig
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from benchmarks.budgets.tables import print_table
from benchmarks.privacy.finders import KEY
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.privacy.policy import TextDestination

SIZE = 100_000
"""Characters of a pumped text; a stretch has at most as many."""
STRETCHES, SEED = 10_000, 1
MAX_SECONDS = 1.0
SHOWN = 12
_SUFFIXES = frozenset(
    {".py", ".pyi", ".md", ".rst", ".txt", ".json", ".yaml", ".toml", ".html", ".js", ".csv", ".xml", ".sh"}
)
_LEAST_FILE = 500
UNITS: Sequence[str] = json.loads(Path(__file__).with_name("units.json").read_text("utf-8"))
"""Repeated to a whole text each: what patterns begin with, what they repeat, and what they never find an end of."""


class TimedText(NamedTuple):
    """A text, by what it was made of, and its redaction in seconds of this process's computing."""

    what: str
    characters: int
    seconds: float


def build_repeated_texts(size: int = SIZE) -> Iterator[tuple[str, str]]:
    """Each unit again and again, in one line or as many as it has, with an end that spoils what began before it."""
    for unit in UNITS:
        yield repr(unit), (unit * (size // len(unit) + 1))[: size - 1] + "!"


def sample_texts(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Random ones, of random length, of the text files in this environment."""
    folder = Path(sysconfig.get_paths()["purelib"])
    files = sorted(
        path for path in folder.rglob("*") if path.suffix in _SUFFIXES and _LEAST_FILE < path.stat().st_size < 10 * SIZE
    )
    drawn = random.Random(seed)
    for _ in range(count):
        path = drawn.choice(files)
        text = path.read_text("utf-8", "replace")
        start, length = drawn.randrange(len(text)), int(SIZE ** drawn.uniform(0.4, 1))
        yield f"{path.relative_to(folder)}, from {start}", text[start : start + length]


def time_redactions(texts: Iterable[tuple[str, str]]) -> list[TimedText]:
    """The slowest first. What took over a second is taken three times: a machine is not quiet for half an hour."""

    async def once(redactor: PresidioRedactor, text: str, tenant: str = "t") -> float:
        start = time.process_time()
        await redactor.redact([text], TextDestination.TOOL_RESULT, tenant)
        return time.process_time() - start

    async def all_of_them() -> list[TimedText]:
        with closing(PresidioRedactor(KEY)) as redactor:
            await redactor.warm_up()
            results = list[TimedText]()
            for what, text in texts:
                seconds = await once(redactor, text)
                if seconds > MAX_SECONDS:
                    seconds = min(seconds, await once(redactor, text, "u"), await once(redactor, text, "v"))
                results.append(TimedText(what, len(text), seconds))
            return results

    return sorted(asyncio.run(all_of_them()), key=lambda one: -one.seconds)


def prove() -> None:
    """Print the slowest. Raises AssertionError where one took over a second."""
    for title, texts in (
        (f"{len(UNITS)} pumped texts of {SIZE:,} characters", build_repeated_texts()),
        (f"{STRETCHES:,} stretches of installed packages, seed {SEED}", sample_texts(STRETCHES, SEED)),
    ):
        results = time_redactions(texts)
        rows = [(what, f"{characters:,}", f"{seconds:.2f}") for what, characters, seconds in results[:SHOWN]]
        print_table(f"The slowest of {title}", ("text", "characters", "seconds"), rows)
        assert results[0].seconds <= MAX_SECONDS, results[0]
