"""Procedures: Markdown files that say how a user wants something done, submitted as procedures and never as documents.

A skill is a procedure in the form that other clients use: a folder with `SKILL.md` and files that it refers to. Agents
are shown when to use it, and read it and its files by tools. Nothing of it is ever run. Procedures are the user's
words, like a task's instructions, and not evidence: agents follow them and do not cite them.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field

from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value

FOLDER, SUFFIX = "skills", ".md"
SKILL_FILE = "SKILL.md"
MAX_PROCEDURES = 50
"""Maximum procedures of a task."""
PROCEDURE_CHARACTERS = 20_000
"""Maximum characters of a procedure."""
SKILL_CHARACTERS = 50_000
"""Maximum characters of a skill, and of each of its files: what does not fit into a window is read in pieces."""
MAX_SKILL_FILES = 100
"""Maximum files of a skill."""
MAX_TOTAL_CHARACTERS = 200_000
"""Maximum characters of all procedures of a task including files of skills, since they are part of its request."""
_MAX_NAME_CHARACTERS = 200
DESCRIPTION_CHARACTERS = 1_024
"""According to the format of skills: an agent decides by the description alone whether to read on. Other procedures
have shorter ones.
"""
_SIZES, _SKILL_SIZES = (PROCEDURE_CHARACTERS, 300), (SKILL_CHARACTERS, DESCRIPTION_CHARACTERS)
"""Maximum characters below the front matter, and of a description."""
MIN_RELEVANCE = 0.3
"""Minimum relevance, from 0 to 1, of a procedure that is shown with the task brief. Others are read on demand."""
_FENCE = "---"
_FIELD = compile_bounded(r"(name|description):\s*(.*)")
_SKILL_NAME = compile_bounded(r"[^\W_][\w .-]{0,63}")
"""Other clients accept lower-case letters, digits and hyphens; real skills have capitals, spaces and dots too."""
_YAML_SIGNS = ("[", "{", "&", "*", "!", "@", "`", "%", ",", "]", "}")
"""An unquoted value that begins with one of these is not text."""
_WORD = compile_bounded(r"[^\W\d_]{4,}")
_STEM = 5
"""Letters of a word that count, so that `licences` equals `licence`."""
_SAY_NOTHING = frozenset({"about", "every", "from", "have", "into", "must", "that", "this", "what", "when", "with"})


class SkillFile(Value):
    """A file next to a skill's `SKILL.md`."""

    name: str = Field(min_length=1, max_length=_MAX_NAME_CHARACTERS)
    """Path in the folder, like `references/tides.md`; one line."""
    text: str = Field(max_length=SKILL_CHARACTERS)


class ProcedureSource(Value):
    """A procedure as a person submits it."""

    name: str = Field(min_length=1, max_length=_MAX_NAME_CHARACTERS)
    """Name of its file, or of a skill's folder; one line."""
    text: str
    """Text; for a skill, that of its `SKILL.md`."""
    skill: bool = False
    files: tuple[SkillFile, ...] = Field(default=(), max_length=MAX_SKILL_FILES)
    """Files of a skill."""

    @property
    def digest(self) -> str:
        """SHA-256 over the text's UTF-8 bytes, in hex, by which a person can check what agents were told to follow.

        For a skill, that of the output of `sha256sum` for `SKILL.md` and then its files, by name.
        """
        own = sha256(self.text.encode()).hexdigest()
        if not self.skill:
            return own
        files = sorted((file.name, sha256(file.text.encode()).hexdigest()) for file in self.files)
        lines = [f"{digest}  {name}\n" for name, digest in [(SKILL_FILE, own), *files]]
        return sha256("".join(lines).encode()).hexdigest()

    @property
    def display_name(self) -> str:
        """Name of a skill as agents know it, with its folder if that has a different name."""
        found = parse_procedure(self)
        if isinstance(found, InvalidProcedure) or found.name == self.name:
            return self.name
        return f"{found.name} in the folder {self.name}"

    @property
    def file_names(self) -> tuple[str, ...]:
        """Names of the files in a skill's folder."""
        return (SKILL_FILE, *(file.name for file in self.files))


class Procedure(Value):
    """A usable procedure."""

    document: str
    """Name of its file."""
    name: str
    description: str
    text: str
    """Text without the front matter."""
    skill: bool = False
    """Whether it is only read on demand, and not shown before."""
    files: tuple[SkillFile, ...] = ()

    def relevance(self, goal: str) -> float:
        """Return the share of the words of its name and description that the goal contains, from 0 to 1."""
        own = _stems(f"{self.name} {self.description}")
        return len(own & _stems(goal)) / len(own) if own else 0.0


class InvalidProcedure(Value):
    """A procedure that cannot be used."""

    document: str
    reason: str
    """Reason that follows the name."""


def is_procedure_file_name(document: str) -> bool:
    """Whether a person may take a document with this name for a procedure: `skills/….md`, in any folder."""
    if FOLDER not in document:  # true of nearly all documents
        return False
    path = PurePosixPath(document)
    return path.parent.name == FOLDER and path.suffix.lower() == SUFFIX


def validate_procedures(given: tuple[ProcedureSource, ...]) -> tuple[ProcedureSource, ...]:
    """Return the procedures unchanged if agents can follow all of them.

    Raises:
        ValueError: one of them cannot be followed; the message names the file and the reason.
    """
    if len(given) > MAX_PROCEDURES:
        raise ValueError(f"{len(given)} procedures were given; a task can have at most {MAX_PROCEDURES}")
    for one in given:
        if wrong := [name for name in (one.name, *one.file_names) if not name.isprintable()]:
            raise ValueError(f"the name of a procedure must be one printable line; {wrong[0]!r} is not")
        if one.files and not one.skill:
            raise ValueError(f"the procedure {one.name} has files, but only skills can have files")
    for one in reject_duplicate_names(map(parse_procedure, given)):
        if isinstance(one, InvalidProcedure):
            raise ValueError(f"the procedure {one.document} cannot be used: {one.reason}")
    if (size := sum(len(part.text) for one in given for part in (one, *one.files))) > MAX_TOTAL_CHARACTERS:
        raise ValueError(f"the procedures have {size:,} characters in total; the maximum is {MAX_TOTAL_CHARACTERS:,}")
    return given


Procedures = Annotated[tuple[ProcedureSource, ...], AfterValidator(validate_procedures)]
"""Procedures of a task."""


def parse_procedure(source: ProcedureSource) -> Procedure | InvalidProcedure:
    """Parse a procedure, or return why it cannot be followed.

    The front matter of a skill names and describes it; any other procedure without a name gets that of its file, and is
    described by its first heading.
    """
    if (parts := _parts(source.text)) is None:
        return InvalidProcedure(document=source.name, reason="its front matter has no closing ---")
    (fields, body), skill, document = parts, source.skill, source.name
    signs = [name for name, value in fields.items() if skill and value.startswith(_YAML_SIGNS)]
    fields = {name: _text_of(value) for name, value in fields.items()}
    name = fields.get("name") or ("" if skill else PurePosixPath(document).stem)
    described = fields.get("description") or ("" if skill else next(_headings(body.splitlines()), ""))
    most, shown = _SKILL_SIZES if skill else _SIZES
    faults = {
        "it has no text": not body,
        f"the front matter of its {SKILL_FILE} lacks a name or a description": skill and not (name and described),
        f"in its {SKILL_FILE}, put the text of {' and '.join(signs)} in quotes: YAML does not read it as text without "
        "quotes": bool(signs),
        f"the name in its {SKILL_FILE} is invalid: use at most 64 letters, digits, hyphens, spaces and dots": skill
        and not _SKILL_NAME.fullmatch(name),
        "it has neither a description nor a heading": not described,
        f"it has {len(body):,} characters; the maximum is {most:,}": len(body) > most,
    }
    if reason := next((reason for reason, holds in faults.items() if holds), None):
        return InvalidProcedure(document=document, reason=reason)
    about = " ".join(described.split())[:shown]
    return Procedure(document=document, name=name, description=about, text=body, skill=skill, files=source.files)


def reject_duplicate_names(found: Iterable[Procedure | InvalidProcedure]) -> tuple[Procedure | InvalidProcedure, ...]:
    """Make names unique: later procedures with the same name cannot be used."""
    taken: dict[str, str] = {}
    checked: list[Procedure | InvalidProcedure] = []
    for one in found:
        if isinstance(one, Procedure) and one.name in taken:
            reason = f"the procedure {taken[one.name]} has the same name"
            checked.append(InvalidProcedure(document=one.document, reason=reason))
        else:
            checked.append(one)
            if isinstance(one, Procedure):
                taken[one.name] = one.document
    return tuple(checked)


def _parts(text: str) -> tuple[Mapping[str, str], str] | None:
    """Return the known fields of front matter, if there is any, and the text below; None if it has no end."""
    lines = text.strip().splitlines()
    if not lines or lines[0].rstrip() != _FENCE:
        return {}, text.strip()
    ends = [place for place, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE]
    return (_fields(lines[1 : ends[0]]), "\n".join(lines[ends[0] + 1 :]).strip()) if ends else None


def _fields(lines: Iterable[str]) -> dict[str, str]:
    """Return the known fields as written; indented lines continue the one above them."""
    fields: dict[str, str] = {}
    last = ""
    for line in lines:
        if line[:1].isspace():
            fields[last] = f"{fields.get(last, '')} {line.strip()}".strip()
        else:
            found = _FIELD.fullmatch(line.rstrip())
            last = found[1] if found else ""
            fields[last] = found[2].strip() if found else ""
    return fields


def _text_of(value: str) -> str:
    """Return a front matter value without its quotes, or without the sign for a block below."""
    return value.partition(" ")[2] if value.startswith((">", "|")) else value.strip("\"' ")


def _headings(lines: Iterable[str]) -> Iterator[str]:
    return (line.lstrip("#").strip() for line in lines if line.startswith("#") and line.lstrip("#").strip())


def _stems(text: str) -> frozenset[str]:
    words: list[str] = _WORD.findall(text.casefold())
    return frozenset(word[:_STEM] for word in words if word not in _SAY_NOTHING)
