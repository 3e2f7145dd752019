"""Procedures: what a user wants done in which way, as Markdown files that are handed in as that and as nothing else.

They are the user's words, like the instructions of a task, and no evidence: agents follow them and do not cite them.
What stands among the documents is never one. Tasks of before procedures were handed in apart are the exception: they
took theirs from folders `skills` among the documents, and go on with them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import PurePosixPath

from pydantic import Field

from waystation.domain.documents import Document
from waystation.domain.value import Input, Value
from waystation.patterns import proven

FOLDER, SUFFIX = "skills", ".md"
MOST_PROCEDURES = 50
"""Of one task."""
PROCEDURE_CHARACTERS = 20_000
"""Of one procedure."""
MOST_TOGETHER = 200_000
"""Characters of all procedures of a task: they stand in its request."""
_LONGEST_NAME = 200
_DESCRIPTION_CHARACTERS = 300
LEAST_FIT = 0.3
"""From which on a procedure is shown with the contract, from 0 to 1. Others are read by whoever wants them."""
_FENCE = "---"
_FIELD = proven(r"(name|description):\s*(.*)")
_WORD = proven(r"[^\W\d_]{4,}")
_STEM = 5
"""Letters of a word that count, so that `licences` is the word `licence`."""
_SAY_NOTHING = frozenset({"about", "every", "from", "have", "into", "must", "that", "this", "what", "when", "with"})


class GivenProcedure(Input):
    """A procedure as a person hands it in."""

    name: str = Field(min_length=1, max_length=_LONGEST_NAME)
    """Of its file; one line."""
    text: str

    @property
    def digest(self) -> str:
        """SHA-256 over the text's UTF-8 bytes, in hex: by which a person sees what agents were told to follow."""
        return sha256(self.text.encode()).hexdigest()


class Procedure(Value):
    """One procedure that can be used."""

    document: str
    """Its file's name."""
    name: str
    description: str
    text: str
    """Without the front matter."""

    def relevance(self, goal: str) -> float:
        """From 0 to 1: the share of the words of its name and description that the goal has, too."""
        own = _stems(f"{self.name} {self.description}")
        return len(own & _stems(goal)) / len(own) if own else 0.0


class Malformed(Value):
    """One that cannot be used."""

    document: str
    reason: str
    """Words to follow the name."""


def is_named_like_one(document: str) -> bool:
    """Whether tasks of before procedures were handed in apart took a document of this name for one: `skills/….md`, in
    whichever folder that is.
    """
    if FOLDER not in document:  # of many documents nearly all
        return False
    path = PurePosixPath(document)
    return path.parent.name == FOLDER and path.suffix.lower() == SUFFIX


def evidence(documents: Sequence[Document]) -> tuple[Document, ...]:
    """The documents that may be searched and cited."""
    return tuple([document for document in documents if not document.procedure])


def checked(given: tuple[GivenProcedure, ...]) -> tuple[GivenProcedure, ...]:
    """The same. Raises ValueError naming the file and the reason where agents could not follow one as it is."""
    if len(given) > MOST_PROCEDURES:
        raise ValueError(f"{len(given)} procedures were given; a task has {MOST_PROCEDURES} at most")
    for one in given:
        if not one.name.isprintable():
            raise ValueError(f"the name of a procedure is one line that can be shown; {one.name!r} is not")
    for one in first_of_each_name(procedure_of(one.name, one.text) for one in given):
        if isinstance(one, Malformed):
            raise ValueError(f"the procedure {one.document} cannot be used: {one.reason}")
    if (size := sum(len(one.text) for one in given)) > MOST_TOGETHER:
        raise ValueError(f"the procedures have {size:,} characters together; {MOST_TOGETHER:,} are the most")
    return given


def procedure_of(document: str, text: str) -> Procedure | Malformed:
    """Read from front matter with `name` and `description`; else the first heading describes it, the file names it."""
    lines = text.strip().splitlines()
    fields: Mapping[str, str] = {}
    if lines and lines[0].rstrip() == _FENCE:
        ends = [place for place, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE]
        if not ends:
            return Malformed(document=document, reason="its front matter has no end")
        fields, lines = _fields(lines[1 : ends[0]]), lines[ends[0] + 1 :]
    body = "\n".join(lines).strip()
    description = fields.get("description") or next(_headings(lines), "")
    if not body:
        return Malformed(document=document, reason="it says nothing")
    if not description:
        return Malformed(document=document, reason="it has neither a description nor a heading")
    if len(body) > PROCEDURE_CHARACTERS:
        return Malformed(
            document=document, reason=f"it has {len(body):,} characters, {PROCEDURE_CHARACTERS:,} are the most"
        )
    return Procedure(
        document=document,
        name=fields.get("name") or PurePosixPath(document).stem,
        description=" ".join(description.split())[:_DESCRIPTION_CHARACTERS],
        text=body,
    )


def first_of_each_name(found: Iterable[Procedure | Malformed]) -> tuple[Procedure | Malformed, ...]:
    """A name means one procedure: later ones of the same name cannot be used."""
    taken: dict[str, str] = {}
    checked: list[Procedure | Malformed] = []
    for one in found:
        if isinstance(one, Procedure) and one.name in taken:
            reason = f"{taken[one.name]} has the same name"
            checked.append(Malformed(document=one.document, reason=reason))
        else:
            checked.append(one)
            if isinstance(one, Procedure):
                taken[one.name] = one.document
    return tuple(checked)


def _fields(lines: Iterable[str]) -> dict[str, str]:
    """The known fields; indented lines go on with the one above them."""
    fields: dict[str, str] = {}
    last = ""
    for line in lines:
        if line[:1].isspace():
            fields[last] = f"{fields.get(last, '')} {line.strip()}".strip()
        else:
            found = _FIELD.fullmatch(line.rstrip())
            last = found[1] if found else ""
            fields[last] = found[2].strip("\"'>|- ") if found else ""
    return fields


def _headings(lines: Iterable[str]) -> Iterator[str]:
    return (line.lstrip("#").strip() for line in lines if line.startswith("#") and line.lstrip("#").strip())


def _stems(text: str) -> frozenset[str]:
    words: list[str] = _WORD.findall(text.casefold())
    return frozenset(word[:_STEM] for word in words if word not in _SAY_NOTHING)
