"""Whether a file still has what reading it gave, in the ways in which tools show files."""

import re

from waystation.patterns import proven

_NUMBERED = proven(r"^[ ]{0,10}(\d{1,9})(?:→|\t|[|:] ?)(.*)$", re.MULTILINE)


def differs(read: str, now: str) -> bool:
    """Whether something that was read of a file does not stand in its text any more.

    Where the lines that were read carry their numbers, each has to stand where it stood, and what a tool wrote around
    them does not count; other results have to stand in the text as they are. What the file has beside them is not
    looked at: tools read parts of files.
    """
    lines = now.splitlines()
    if "\n".join(read.strip().splitlines()) in "\n".join(lines):
        return False
    numbered: list[tuple[str, str]] = _NUMBERED.findall(read)
    there = dict(enumerate(lines, 1))
    return not numbered or any(there.get(int(number), "").rstrip() != text.rstrip() for number, text in numbered)
