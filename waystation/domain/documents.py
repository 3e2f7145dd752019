"""A task's documents: named texts with lines, found by search and cited by line range."""

from waystation.domain.value import Value


class Document(Value):
    """One document of a task. `blob` is the content hash of its text; `name` is its path as the person gave it."""

    name: str
    blob: str
    lines: int
    characters: int


class DocumentHit(Value):
    """A stretch of a document that matches a query, best first. Line numbers start at 1, both ends included."""

    name: str
    first_line: int
    last_line: int
    text: str
    score: float
