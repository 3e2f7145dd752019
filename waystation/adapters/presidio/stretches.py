"""What a redactor asks of a search, in this process or in a child, and what comes back: finds, never text.

In messages a text is bytes of its own, since it may hold halves of characters that no JSON has.
"""

import hashlib
from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

from pydantic import Field, TypeAdapter, ValidationError

from waystation.adapters.presidio.computing import TimeLimit
from waystation.adapters.presidio.found import Found
from waystation.adapters.presidio.own import OwnKind, OwnRules
from waystation.adapters.presidio.rules import Rules
from waystation.domain.errors import RedactionFailed, TextNotRedacted
from waystation.domain.privacy import Policy, Treatment
from waystation.domain.value import Value

STRETCH_CHUNKS = 5
"""That are searched at once, which takes about half a second: other texts take turns in between."""
LONGEST_REASON = 400
"""Characters of why a text could not be searched: a child may have been made to say anything."""
_ENCODED = ("utf-8", "surrogatepass")


class Stretch(Value):
    """Chunks of one way to read a text (`folding.views_of`), in which something is wanted."""

    kind: Literal["stretch"] = "stretch"
    digest: str
    """Names the text."""
    wanted: Treatment
    view: int = 0
    first: int = 0
    """With the first chunk comes what only the whole text shows."""

    @classmethod
    def of(cls, text: str, wanted: Treatment) -> "Stretch":
        """The beginning of a text."""
        return cls(digest=hashlib.sha256(text.encode(*_ENCODED)).hexdigest(), wanted=wanted)

    def others(self, chunks: int) -> Sequence["Stretch"]:
        """All that come after it in a view of so many chunks."""
        starts = range(self.first + STRETCH_CHUNKS, chunks, STRETCH_CHUNKS)
        return [self.model_copy(update={"first": start}) for start in starts]


class Loading(Value):
    """The first request to a child: what to look for, and to load what that needs."""

    kind: Literal["loading"] = "loading"
    policy: Policy
    models: dict[str, str]
    countries: tuple[str, ...]
    kinds: tuple[OwnKind, ...]
    values: frozenset[str]
    patterns: tuple[str, ...]

    @classmethod
    def of(cls, rules: Rules) -> "Loading":
        """These rules."""
        own = rules.own
        return cls(
            policy=rules.policy,
            models=dict(rules.models),
            countries=tuple(rules.countries),
            kinds=tuple(own.kinds),
            values=own.values,
            patterns=tuple(own.patterns),
        )

    @property
    def rules(self) -> Rules:
        """The rules that it is of."""
        own = OwnRules(self.kinds, self.values, self.patterns)
        return Rules(self.policy, self.models, self.countries, own)


_Type = Annotated[str, Field(pattern=r"^[A-Z]+(_[A-Z]+)*$", max_length=40)]
_Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}$")]
_Place = Annotated[int, Field(ge=0)]


class Searched(Value):
    """What was found in a stretch, in places of the text, and how much more of the text there is."""

    kind: Literal["searched"] = "searched"
    finds: tuple[tuple[_Type, _Place, _Place, float], ...] = ()
    not_sought: frozenset[_Language] = frozenset()
    """Languages of chunks in which names were not looked for, since there is no model."""
    chunks: _Place = 0
    """Of this view."""
    views: Annotated[int, Field(ge=0, le=2)] = 1

    def checked(self, text: str) -> "Searched":
        """The same, if it can be of this text. Raises ValueError."""
        if not all(start < end <= len(text) for _, start, end, _ in self.finds) or self.chunks > len(text):
            raise ValueError("finds outside of the text")
        return self

    @property
    def found(self) -> list[Found]:
        """The finds."""
        return [Found(*find) for find in self.finds]


class NotHeld(Value):
    """The text is to be sent, too."""

    kind: Literal["not held"] = "not held"


class NotSearched(Value):
    """Why not: for a reason in this very text, or none can be searched."""

    kind: Literal["not searched"] = "not searched"
    reason: Annotated[str, Field(max_length=LONGEST_REASON)]
    this_text: bool

    @classmethod
    def of(cls, error: RedactionFailed) -> "NotSearched":
        """That this failed, which says nothing of the text."""
        return cls(reason=str(error)[:LONGEST_REASON], this_text=isinstance(error, TextNotRedacted))

    @property
    def error(self) -> RedactionFailed:
        """What it failed with."""
        return (TextNotRedacted if self.this_text else RedactionFailed)(" ".join(self.reason.split()))


Request = Annotated[Stretch | Loading, Field(discriminator="kind")]
Answer = Annotated[Searched | NotHeld | NotSearched, Field(discriminator="kind")]
_REQUEST = TypeAdapter[Stretch | Loading](Request)
_ANSWER = TypeAdapter[Searched | NotHeld | NotSearched](Answer)


class Searcher(Protocol):
    """Looks for what is private."""

    async def load(self) -> None:
        """Load now what most texts need. Raises RedactionFailed."""
        ...

    async def search(self, text: str, stretch: Stretch, limit: TimeLimit) -> Searched:
        """What is found in a stretch of a text. Raises RedactionFailed, and TextNotRedacted."""
        ...

    def close(self) -> None:
        """Begin nothing more, and end what was begun."""
        ...


def request_bytes(request: Stretch | Loading, text: str | None = None) -> bytes:
    """A request with its text, if that is to be sent."""
    head = request.model_dump_json().encode() + b"\n"
    return head if text is None else head + b"t" + text.encode(*_ENCODED)


def request_of(message: bytes) -> tuple[Stretch | Loading, str | None]:
    """What `request_bytes` was given."""
    head, _, rest = message.partition(b"\n")
    return _REQUEST.validate_json(head), rest[1:].decode(*_ENCODED) if rest else None


def answer_of(message: bytes, text: str) -> Searched | NotHeld | NotSearched:
    """A child's answer about this text. Raises ValueError: it makes no sense, so the child is not to be trusted."""
    try:
        answer = _ANSWER.validate_json(message)
    except ValidationError:
        raise ValueError("no answer") from None  # the error quotes what it validates
    return answer.checked(text) if isinstance(answer, Searched) else answer
