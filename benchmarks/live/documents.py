"""The documents of the benchmark: generated, the same for the same seed, and about as long as real ones.

One sentence per line, as in Markdown that was converted from a report: a page of 200 lines is about 5,000 tokens.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

SEED = 20261128
TOKENS = (
    2_000, 20_000, 9_500, 14_000, 7_000, 17_500, 11_000, 5_000, 12_500, 19_000, 8_500, 10_000, 15_500, 4_000, 13_000,
    9_000, 18_000, 7_500, 11_500, 16_000, 6_500, 10_500, 19_500, 8_000, 14_500,
)  # fmt: skip
"""Length of each document, in tokens of four bytes: from a memo to a long report."""
BYTES_PER_TOKEN = 4
_HEADING_EVERY = 24
"""Lines."""

_PLACES = (
    "Askhaven", "Birkmouth", "Calder Point", "Dunmere", "Eastlock", "Fenwick Reach", "Graymoor", "Hollinsea",
    "Inverlea", "Jarrow Sound", "Kelderness", "Langstrand",
)  # fmt: skip
_SUBJECTS = (
    "the berth at {place}", "the crane at {place}", "the cold store of {place}", "the tidal gate of {place}",
    "the rail siding behind {place}", "the dredged channel off {place}", "the shore supply at {place}",
    "the grain terminal of {place}", "the breakwater of {place}", "the pilot station at {place}",
)  # fmt: skip
_VERBS = (
    "handled", "needed", "was rated for", "lost", "took on", "was planned with", "held back", "was measured at",
    "released", "was insured for",
)  # fmt: skip
_UNITS = (
    "tonnes a week", "megawatt hours a month", "metres of draught", "hours of repair", "berthings a season",
    "cubic metres of silt", "containers a shift", "inspections a year",
)  # fmt: skip
_CAUSES = (
    "because the survey before it had left out the winter months",
    "although the harbour board had asked for half of that",
    "which is more than the design of its foundations allows for in a storm",
    "as the operators of the two neighbouring ports confirmed independently of each other",
    "while the cost of keeping it in service rose faster than its income",
    "so that the next extension was put off until the channel had been deepened",
    "and nobody has since explained the difference from the figures of the ministry",
    "after the pumps had been replaced and the old switchgear had been taken out",
)


class Document(NamedTuple):
    """One file. `name` ends in `.md`."""

    name: str
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """What is written to the file."""
        return "\n".join(self.lines) + "\n"


def make_documents(count: int = len(TOKENS), scale: float = 1.0, seed: int = SEED) -> tuple[Document, ...]:
    """The first `count` documents, each `scale` times as long as in the full set."""
    chance = Random(seed)
    return tuple(
        Document(
            f"report-{number:02}.md",
            tuple(_lines(number, int(TOKENS[(number - 1) % len(TOKENS)] * scale) * BYTES_PER_TOKEN, chance)),
        )
        for number in range(1, count + 1)
    )


def _lines(number: int, size: int, chance: Random) -> Iterator[str]:
    """Lines of `size` bytes in all, or a little more."""
    written, count = 0, 0
    while written < size:
        if count % _HEADING_EVERY == 0:
            line = f"## Part {number}.{count // _HEADING_EVERY + 1}: {chance.choice(_PLACES)}"
        else:
            line = _sentence(chance)
        yield line
        written, count = written + len(line) + 1, count + 1


def _sentence(chance: Random) -> str:
    subject = chance.choice(_SUBJECTS).format(place=chance.choice(_PLACES))
    figure = f"{chance.randrange(11, 990)} {chance.choice(_UNITS)}"
    return f"{subject[0].upper()}{subject[1:]} {chance.choice(_VERBS)} {figure}, {chance.choice(_CAUSES)}."
