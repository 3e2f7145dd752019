"""Which places text goes to, and what is replaced at each of them under each policy.

What a redaction gives back.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from enum import IntEnum, StrEnum
from itertools import pairwise
from typing import Literal, NamedTuple

from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value


class RedactionPolicy(StrEnum):
    """How much is replaced: a setting of the worker."""

    STANDARD = "standard"
    """Secrets and direct identifiers before a model call; names too before summariser, memory and Temporal."""
    STRICT = "strict"
    """Names too before any model call."""
    SECRETS_ONLY = "secrets-only"
    """Secrets everywhere, and nothing else."""

    @property
    def text(self) -> str:
        """What is replaced, and where."""
        match self:
            case RedactionPolicy.STANDARD:
                return "secrets and identifiers are replaced before a model call, names too before summaries and memory"
            case RedactionPolicy.STRICT:
                return "secrets, identifiers and names are replaced before a model call"
            case RedactionPolicy.SECRETS_ONLY:
                return "secrets are replaced before a model call; identifiers and names are not"


class RedactionLevel(IntEnum):
    """What is replaced in a text; each replaces what the one before it does."""

    ORIGINAL = 0
    """Nothing."""
    SECRETS = 1
    """Keys, tokens, passwords."""
    IDENTIFIERS = 2
    """And what leads to one person or machine: mail, phone, card, IBAN, national ids, IP, what own recognisers find."""
    NAMES = 3
    """And names of people and places."""
    NO_TEXT = 4
    """There is nothing to replace, because only references and numbers go there."""


class TextDestination(StrEnum):
    """A kind of place where text goes, or must not go."""

    REQUEST = "stored requests"
    """Question and instructions, as handed in."""
    DOCUMENT = "stored documents"
    """The text of a task's documents, as handed in."""
    VAULT = "vault"
    """What placeholders stand for."""
    MODEL_OUTPUT = "model output"
    """Of agents and planner. They were told of no originals, and may still guess, recite or decode one."""
    TOOL_ARGUMENT = "tool arguments"
    """Notes, findings and sections among them."""

    USER_INPUT = "user input"
    """Question and instructions on their way to the planner."""
    CONTRACT = "contracts"
    """What an agent is told at first: request, step, and what it recalls."""
    TOOL_RESULT = "tool results"
    """Documents' passages, notes and findings among them, and results that were too long for a context."""
    REPORT = "reports"

    COMPRESSED = "compressed messages"
    """What the summariser reads, and the passages in memory, those of documents among them."""
    EMBEDDED = "passages on their way to memory"
    """Redacted before, as one text or as several that were put together: the last look before embedder and Qdrant."""
    SUMMARY = "summaries"
    WISH = "instructions for compactions"
    QUERY = "queries to memory"
    TITLE = "titles"
    """Of tasks and steps: in workflow history, in summaries of activities and workflows, and in webhooks."""
    QUESTION = "questions"
    """What a person is asked before a tool is called, its arguments included: in workflow history."""

    HISTORY = "workflow history"
    """Apart from titles and questions."""
    SEARCH_ATTRIBUTE = "search attributes"
    HEARTBEAT = "heartbeats"
    FAILURE = "failure messages"
    LOG = "logs"
    METRIC = "metrics"
    WEBHOOK = "webhooks"
    """Apart from titles."""


def get_redaction_level(place: TextDestination, policy: RedactionPolicy) -> RedactionLevel:
    """What is replaced in a text before it goes to this place."""
    match place:
        case TextDestination.REQUEST | TextDestination.DOCUMENT | TextDestination.VAULT:
            return RedactionLevel.ORIGINAL
        case (
            TextDestination.MODEL_OUTPUT
            | TextDestination.TOOL_ARGUMENT
            | TextDestination.USER_INPUT
            | TextDestination.CONTRACT
            | TextDestination.TOOL_RESULT
            | TextDestination.REPORT
        ):
            return _before_models(policy)
        case TextDestination.EMBEDDED:  # names need the text around them: they were looked for there
            return RedactionLevel.SECRETS if policy is RedactionPolicy.SECRETS_ONLY else RedactionLevel.IDENTIFIERS
        case (
            TextDestination.COMPRESSED
            | TextDestination.SUMMARY
            | TextDestination.WISH
            | TextDestination.QUERY
            | TextDestination.TITLE
            | TextDestination.QUESTION
        ):
            return RedactionLevel.SECRETS if policy is RedactionPolicy.SECRETS_ONLY else RedactionLevel.NAMES
        case (
            TextDestination.HISTORY
            | TextDestination.SEARCH_ATTRIBUTE
            | TextDestination.HEARTBEAT
            | TextDestination.FAILURE
            | TextDestination.LOG
            | TextDestination.METRIC
            | TextDestination.WEBHOOK
        ):
            return RedactionLevel.NO_TEXT


def _before_models(policy: RedactionPolicy) -> RedactionLevel:
    match policy:
        case RedactionPolicy.STANDARD:
            return RedactionLevel.IDENTIFIERS
        case RedactionPolicy.STRICT:
            return RedactionLevel.NAMES
        case RedactionPolicy.SECRETS_ONLY:
            return RedactionLevel.SECRETS


NAME_TYPES = frozenset({"PERSON", "LOCATION"})
"""What `RedactionLevel.NAMES` replaces, and no other does."""


def should_show_names(policy: RedactionPolicy) -> bool:
    """Whether agents are shown names."""
    return _before_models(policy) < RedactionLevel.NAMES


FINGERPRINT_DIGITS = 12
PLACEHOLDER_PATTERN = compile_bounded(r"<[A-Z]+(?:_[A-Z]+)*_[0-9a-f]{12,64}>")
"""What stands for a private value: its type, and the first digits of its fingerprint."""
MAX_PLACEHOLDER_CHARACTERS = 200
"""Characters: types have at most 40, fingerprints 64."""
_TYPE = compile_bounded(r"<([A-Z]+(?:_[A-Z]+)*)_[0-9a-f]{12,64}>")


NAMED_CHARACTERS = 100
"""Of what a note says a text is."""
UNREDACTABLE_TYPE = "UNREDACTED_TEXT"
"""The type of a placeholder that stands for a whole text which could not be redacted."""
TEXT_LEFT_OUT = "Text that could not be redacted was left out, and a placeholder stands where it was."
"""For people."""
RedactionFailureMode = Literal["placeholder", "pause"]
"""What becomes of a text that could not be redacted in as many attempts as it is given."""


class Span(Value):
    """One replaced stretch, in characters of the original text."""

    type: str
    start: int
    end: int
    score: float
    placeholder: str


class ReplacedRange(NamedTuple):
    """A stretch of a text that is not shown, in characters of the text, and what stands for it."""

    start: int
    end: int
    type: str
    placeholder: str
    """Empty where more than the text was replaced by one: what the text has of it needs one of its own."""


def select_replaced_ranges(found: Sequence[ReplacedRange], start: int, end: int) -> Iterator[ReplacedRange]:
    """Those that touch a part of their text, in characters from where that starts; they may reach beyond it. They are
    in order, and apart from each other.
    """
    number = bisect_right(found, start, key=lambda one: one.end)
    while number < len(found) and found[number].start < end:
        one = found[number]
        yield one._replace(start=one.start - start, end=one.end - start)
        number += 1


class RedactionResult(Value):
    """A text with its private parts replaced by stable placeholders such as `<PERSON_7f3a2c91d04e>`."""

    text: str
    spans: tuple[Span, ...] = ()
    languages_without_names: tuple[str, ...] = ()
    """Languages (ISO 639-1) of stretches in which names were sought by lists alone, since there is no model."""

    put_aside: bool = False
    """Whether this is a placeholder for a text that took too long, twice."""

    @property
    def redaction_failed(self) -> bool:
        """Whether this is no more than a placeholder for a text that could not be redacted."""
        return any(span.type == UNREDACTABLE_TYPE for span in self.spans)


def make_failed_redaction(text: str, fingerprint: str, *, put_aside: bool = False) -> RedactionResult:
    """What goes on in the place of a text that could not be redacted: nothing of it."""
    placeholder = f"<{UNREDACTABLE_TYPE}_{fingerprint[:FINGERPRINT_DIGITS]}>"
    span = Span(type=UNREDACTABLE_TYPE, start=0, end=len(text), score=1, placeholder=placeholder)
    return RedactionResult(text=placeholder, spans=(span,), put_aside=put_aside)


def get_placeholder_type(placeholder: str) -> str:
    """What a placeholder calls the value that it stands for, like `PERSON`."""
    return placeholder[1:].rpartition("_")[0]


def truncate_redacted(text: str, characters: int, mark: str = "") -> str:
    """A redacted text of at most so many characters: cut before a placeholder and never within, with `mark` behind."""
    if len(text) <= characters:
        return text
    return text[: find_cut_position(text, characters - len(mark))].rstrip() + mark


def find_cut_position(text: str, end: int) -> int:
    """The last place up to this one where a redacted text can be cut without parting a placeholder."""
    near = PLACEHOLDER_PATTERN.finditer(
        text, max(0, end - MAX_PLACEHOLDER_CHARACTERS), end + MAX_PLACEHOLDER_CHARACTERS
    )
    return next((found.start() for found in near if found.start() < end < found.end()), end)


def get_redacted_prefix(text: str, redacted: "RedactionResult", characters: int) -> str:
    """What became of the first so many characters of a text; what was replaced across their end is whole.

    So a text can be cut after its redaction where it was to be cut before, with nothing half seen behind the cut.
    """
    parts: list[str] = []
    position = 0
    for span in redacted.spans:
        if span.start >= characters:
            break
        parts += (text[position : span.start], span.placeholder)
        position = span.end
    return "".join((*parts, text[position : max(position, characters)])) if position else redacted.text[:characters]


def build_redaction_notes(*texts: RedactionResult, of: str = "") -> tuple[str, ...]:
    """What a person should know of these redactions: sentences that are the same for the same languages, and one for
    each text that was put aside. `of`: what the texts are, in redacted words.
    """
    notes: list[str] = []
    if languages := sorted({language for text in texts for language in text.languages_without_names}):
        notes.append(
            f"Only names that lists have in full were looked for in text whose language is {', '.join(languages)}: the "
            "setting `languages` has no model for it. Secrets and identifiers were looked for there too."
        )
    named = f" ({truncate_redacted(of, NAMED_CHARACTERS, '…')})" if of else ""
    notes += [
        f"1 text could not be redacted in time and was replaced by {text.text}{named}."
        for text in texts
        if text.put_aside
    ]
    if any(text.redaction_failed and not text.put_aside for text in texts):
        notes.append(TEXT_LEFT_OUT)
    return tuple(notes)


class VaultEntry(Value):
    """What a placeholder stands for."""

    type: str
    placeholder: str
    fingerprint: str
    """64 hexadecimal digits: the keyed hash of the value in its normal form. The placeholder shows the first."""
    text: str
    """The value as it was written where it was met first."""


def replace_placeholders_with_types(text: str) -> str:
    """The text with the type in the place of each placeholder, as an embedder understands it: *person*.

    A fingerprint is no word of any language: it becomes a dozen meaningless pieces, and drowns the words beside it.
    """
    return _TYPE.sub(lambda placeholder: placeholder[1].replace("_", " ").lower(), text)


def with_placeholders(text: str, spans: Sequence[Span]) -> RedactionResult:
    """The text with each span, given in order, replaced by its placeholder."""
    parts: list[str] = []
    position = 0
    for span in spans:
        parts += (text[position : span.start], span.placeholder)
        position = span.end
    return RedactionResult(text="".join((*parts, text[position:])), spans=tuple(spans))


def render_preserving_lines(text: str, redacted: RedactionResult) -> str:
    """The redacted text with as many lines as the text has, all ended by line feeds, so that they can still be cited.

    Of what was replaced over several lines, the first has the placeholder. A text that could not be redacted is blank.
    """
    parts: list[str] = []
    position = 0
    for span in redacted.spans:
        placeholder = "" if span.type == UNREDACTABLE_TYPE else span.placeholder
        parts += (text[position : span.start], placeholder, "\n" * text.count("\n", span.start, span.end))
        position = span.end
    return "".join((*parts, text[position:]))


def normalize_line_endings(text: str) -> str:
    """The text with its lines, of whatever ends, ended by line feeds: they can be counted after a redaction as before.

    The end of the last line goes.
    """
    return "\n".join(text.splitlines())


class RedactionConfig(Value):
    """By what a worker redacts."""

    policy: RedactionPolicy = RedactionPolicy.STANDARD
    version: str = "0"
    """Of everything that a result depends on beside text, tenant and treatment. No slash is in it."""


UNVERSIONED = RedactionConfig()
"""Of a redactor that does not change."""


class RedactedTextKey(Value):
    """Names a whole text as it is shown: the content that it is made from, for whom, and by which rules."""

    blob: str
    """Content hash of the original."""
    tenant: str
    treatment: RedactionLevel
    version: str
    """Of the rules."""


class RedactedText(Value):
    """A whole text as it may be shown, line for line as the original is."""

    text: str
    """Its lines end with line feeds."""
    replaced: tuple[ReplacedRange, ...] = ()
    """What of the original, its lines ended by line feeds, has a placeholder: in order and apart from each other."""
    languages_without_names: tuple[str, ...] = ()
    """See `RedactionResult`."""
    withheld: bool = False
    """It could not be redacted, so that all of its lines are blank."""
    put_aside: str = ""
    """The placeholder that it has where its redaction took too long, again and again."""

    @property
    def lines(self) -> list[str]:
        """At least one."""
        return self.text.split("\n")

    @property
    def results(self) -> tuple[RedactionResult, ...]:
        """What a person should know of its redaction, as `build_redaction_notes` takes it."""
        if self.withheld:
            hidden = Span(type=UNREDACTABLE_TYPE, start=0, end=0, score=1, placeholder=self.put_aside)
            return (RedactionResult(text=self.put_aside, spans=(hidden,), put_aside=bool(self.put_aside)),)
        return (RedactionResult(text="", languages_without_names=self.languages_without_names),)


def build_redacted_text(text: str, redacted: RedactionResult) -> RedactedText:
    """What is shown of a text whose lines end with line feeds."""
    return RedactedText(
        text=render_preserving_lines(text, redacted),
        replaced=tuple([ReplacedRange(span.start, span.end, span.type, span.placeholder) for span in redacted.spans]),
        languages_without_names=redacted.languages_without_names,
        withheld=redacted.redaction_failed,
        put_aside=redacted.text if redacted.put_aside else "",
    )


VAULT_CACHE_LIFETIME = timedelta(minutes=10)
"""What was forgotten meanwhile is kept anew when it comes again after this."""


class RestoredText(Value):
    """A text with its placeholders replaced by their originals."""

    text: str
    replaced: int
    """Placeholders, one that comes twice counted twice."""
    unknown: int
    """Placeholders that stayed, because the vault has no original: credentials, and what was forgotten."""


def restore_originals(text: str, originals: Mapping[str, str]) -> RestoredText:
    """With these originals, by placeholder."""
    found = PLACEHOLDER_PATTERN.findall(text)
    unknown = sum(placeholder not in originals for placeholder in found)
    return RestoredText(
        text=PLACEHOLDER_PATTERN.sub(lambda placeholder: originals.get(placeholder[0], placeholder[0]), text),
        replaced=len(found) - unknown,
        unknown=unknown,
    )


class NameCandidate(NamedTuple):
    """What may be a person's name in a text."""

    start: int
    end: int
    words: int
    value: str


_MOST_WORDS = 5
_WORD, _BETWEEN = compile_bounded(rf"{PLACEHOLDER_PATTERN.pattern}|[^\W_]+"), compile_bounded(r"[\s_]{1,3}|['’-]|\.\s?")


def iter_name_candidates(text: str) -> Iterator[NameCandidate]:
    """One to five words in a row, in their order, the longest first where several begin."""
    words = [word for word in _WORD.finditer(text) if not word[0].startswith("<")]
    rows = [_BETWEEN.fullmatch(text, one.end(), other.start()) for one, other in pairwise(words)]
    for first, word in enumerate(words):
        last = first
        while last < len(rows) and rows[last] and last - first < _MOST_WORDS - 1:
            last += 1
        for behind in range(last, first - 1, -1):
            end = words[behind].end()
            yield NameCandidate(word.start(), end, behind - first + 1, text[word.start() : end].replace("_", " "))
