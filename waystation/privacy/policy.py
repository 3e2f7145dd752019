"""Destinations of text, what each redaction policy replaces at each of them, and the results of a redaction."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from enum import IntEnum, StrEnum
from itertools import pairwise
from typing import Literal, NamedTuple

from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value


class RedactionPolicy(StrEnum):
    """Which private values are replaced; a setting of the worker."""

    STANDARD = "standard"
    """Secrets and direct identifiers before a model call; names as well before summariser, memory and Temporal."""
    STRICT = "strict"
    """Names as well before any model call."""
    SECRETS_ONLY = "secrets-only"
    """Secrets everywhere, and nothing else."""

    @property
    def text(self) -> str:
        """What is replaced, and where, for people."""
        match self:
            case RedactionPolicy.STANDARD:
                return (
                    "secrets and identifiers are replaced before a model call; names are replaced in summaries and "
                    "memory"
                )
            case RedactionPolicy.STRICT:
                return "secrets, identifiers and names are replaced before a model call"
            case RedactionPolicy.SECRETS_ONLY:
                return "secrets are replaced before a model call; identifiers and names are not"


class RedactionLevel(IntEnum):
    """What is replaced in a text. Each level includes the ones before it."""

    ORIGINAL = 0
    """Nothing."""
    SECRETS = 1
    """Keys, tokens, passwords."""
    IDENTIFIERS = 2
    """Also anything that identifies a person or machine: email, phone, card, IBAN, national ids, IP, custom
    recognisers.
    """
    NAMES = 3
    """Also names of people and places."""
    NO_TEXT = 4
    """There is nothing to replace, because only references and numbers go there."""


class TextDestination(StrEnum):
    """A kind of place that text goes to, or must not go to."""

    REQUEST = "stored requests"
    """Question and instructions, as submitted."""
    DOCUMENT = "stored documents"
    """The text of a task's documents, as submitted."""
    VAULT = "vault"
    """Originals behind placeholders."""
    MODEL_OUTPUT = "model output"
    """Output of agents and planner. They were shown no originals, but may still guess, recite or decode one."""
    TOOL_ARGUMENT = "tool arguments"
    """Includes notes, findings and sections."""

    USER_INPUT = "user input"
    """Question and instructions on their way to the planner."""
    TASK_BRIEF = "task briefs"
    """The task brief that an agent starts with: request, step, and what is recalled from memory."""
    TOOL_RESULT = "tool results"
    """Includes document passages, notes, findings, and results that were too long for a context."""
    REPORT = "reports"

    COMPRESSED = "compressed messages"
    """Input of the summariser, and passages in memory, including those of documents."""
    EMBEDDED = "passages on their way to memory"
    """Redacted before, as one text or as several that were joined: the last check before embedder and Qdrant."""
    SUMMARY = "summaries"
    WISH = "instructions for compactions"
    QUERY = "queries to memory"
    TITLE = "titles"
    """Titles of tasks and steps: in workflow history, in summaries of activities and workflows, and in webhooks."""
    QUESTION = "questions"
    """What a person is asked before a tool is called, including its arguments: in workflow history."""

    HISTORY = "workflow history"
    """Except titles and questions."""
    SEARCH_ATTRIBUTE = "search attributes"
    HEARTBEAT = "heartbeats"
    FAILURE = "failure messages"
    LOG = "logs"
    METRIC = "metrics"
    WEBHOOK = "webhooks"
    """Except titles."""


def get_redaction_level(destination: TextDestination, policy: RedactionPolicy) -> RedactionLevel:
    """Return what is replaced in a text before it goes to this place."""
    match destination:
        case TextDestination.REQUEST | TextDestination.DOCUMENT | TextDestination.VAULT:
            return RedactionLevel.ORIGINAL
        case (
            TextDestination.MODEL_OUTPUT
            | TextDestination.TOOL_ARGUMENT
            | TextDestination.USER_INPUT
            | TextDestination.TASK_BRIEF
            | TextDestination.TOOL_RESULT
            | TextDestination.REPORT
        ):
            return _before_models(policy)
        case TextDestination.EMBEDDED:  # finding names needs the surrounding text, and they were replaced there
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


def select_stricter_policy(policy: RedactionPolicy, other: RedactionPolicy | None) -> RedactionPolicy:
    """Return which of both policies replaces more before a model call; None: unknown."""
    return policy if other is None else max(policy, other, key=_before_models)


NAME_TYPES = frozenset({"PERSON", "LOCATION"})
"""Types that `RedactionLevel.NAMES` replaces and no lower level does."""


def should_show_names(policy: RedactionPolicy) -> bool:
    """Whether agents are shown names."""
    return _before_models(policy) < RedactionLevel.NAMES


FINGERPRINT_DIGITS = 12
PLACEHOLDER_PATTERN = compile_bounded(r"<[A-Z]+(?:_[A-Z]+)*_[0-9a-f]{12,64}>")
"""A placeholder: the type of the private value, and the first digits of its fingerprint."""
MAX_PLACEHOLDER_CHARACTERS = 200
"""Maximum length of a placeholder in characters: types have at most 40, fingerprints 64."""
_TYPE = compile_bounded(r"<([A-Z]+(?:_[A-Z]+)*)_[0-9a-f]{12,64}>")


NAMED_CHARACTERS = 100
"""Maximum number of characters of the description of a text in a redaction note."""
UNREDACTABLE_TYPE = "UNREDACTED_TEXT"
"""Type of a placeholder for a whole text that could not be redacted."""
TEXT_LEFT_OUT = "Text that could not be redacted was left out and replaced by a placeholder."
"""Note for people."""
RedactionFailureMode = Literal["placeholder", "pause"]
"""What happens to a text that could not be redacted in the permitted number of attempts."""


class Span(Value):
    """One replaced span, in characters of the original text."""

    type: str
    start: int
    end: int
    score: float
    placeholder: str


class ReplacedRange(NamedTuple):
    """A part of a text that is not shown, in characters of the text, and its placeholder."""

    start: int
    end: int
    type: str
    placeholder: str
    """Empty if one placeholder stands for more than this text: the part within the text then needs its own."""


def select_replaced_ranges(found: Sequence[ReplacedRange], start: int, end: int) -> Iterator[ReplacedRange]:
    """Yield the ranges that touch the part from `start` to `end`, relative to `start`; they may extend beyond the part.
    `found` must be in order and without overlaps.
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
    """Languages (ISO 639-1) of passages in which names were only looked up in lists, because they have no model."""

    timed_out: bool = False
    """Whether this is a placeholder for a text that took too long twice."""

    @property
    def redaction_failed(self) -> bool:
        """Whether this is only a placeholder for a text that could not be redacted."""
        return any(span.type == UNREDACTABLE_TYPE for span in self.spans)


def make_failed_redaction(text: str, fingerprint: str, *, put_aside: bool = False) -> RedactionResult:
    """Build the result for a text that could not be redacted; it contains nothing of the text."""
    placeholder = f"<{UNREDACTABLE_TYPE}_{fingerprint[:FINGERPRINT_DIGITS]}>"
    span = Span(type=UNREDACTABLE_TYPE, start=0, end=len(text), score=1, placeholder=placeholder)
    return RedactionResult(text=placeholder, spans=(span,), timed_out=put_aside)


def get_placeholder_type(placeholder: str) -> str:
    """Return the type of the value that a placeholder stands for, like `PERSON`."""
    return placeholder[1:].rpartition("_")[0]


def truncate_redacted(text: str, characters: int, mark: str = "") -> str:
    """Truncate a redacted text to `characters`, including `mark` at the end, without cutting a placeholder."""
    if len(text) <= characters:
        return text
    return text[: find_cut_position(text, characters - len(mark))].rstrip() + mark


def truncate_title(text: str, characters: int) -> str:
    """Truncate a redacted title to `characters`, at the end of a word, with `…`; a placeholder stays whole."""
    if len(text) <= characters:
        return text
    end = find_cut_position(text, characters - 1)
    head = text[:end]
    inside_word = not head[-1:].isspace() and not text[end].isspace()
    if inside_word and " " in head.strip():
        head = head.rsplit(None, 1)[0]
    return head.rstrip(" ,;:") + "…"


def find_cut_position(text: str, end: int) -> int:
    """Return the last position up to `end` at which a redacted text can be cut without splitting a placeholder."""
    near = PLACEHOLDER_PATTERN.finditer(
        text, max(0, end - MAX_PLACEHOLDER_CHARACTERS), end + MAX_PLACEHOLDER_CHARACTERS
    )
    return next((found.start() for found in near if found.start() < end < found.end()), end)


def get_redacted_prefix(text: str, redacted: "RedactionResult", characters: int) -> str:
    """Return the redacted form of the first `characters` of a text; a replacement across that position is kept whole.

    So a text can be redacted first and cut afterwards, and nothing half visible remains at the cut.
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
    """Return what a person should know of these redactions: one sentence for the languages without names, and one for
    each text that was set aside.

    Args:
        texts: results of redactions.
        of: what the texts are, in redacted words.
    """
    notes: list[str] = []
    if languages := sorted({language for text in texts for language in text.languages_without_names}):
        notes.append(
            f"The setting `languages` has no model for {', '.join(languages)}. In text in such a language, only "
            "full names on Waystation's lists were found. Secrets and identifiers were found as usual."
        )
    named = f" ({truncate_redacted(of, NAMED_CHARACTERS, '…')})" if of else ""
    notes += [
        f"1 text{named} could not be redacted in time and was replaced by {text.text}."
        for text in texts
        if text.timed_out
    ]
    if any(text.redaction_failed and not text.timed_out for text in texts):
        notes.append(TEXT_LEFT_OUT)
    return tuple(notes)


class VaultEntry(Value):
    """The original behind a placeholder."""

    type: str
    placeholder: str
    fingerprint: str
    """Keyed hash of the normalised value, 64 hexadecimal digits. The placeholder shows the first ones."""
    text: str
    """The value as it was spelled at its first occurrence."""


def replace_placeholders_with_types(text: str) -> str:
    """Replace each placeholder by its type as an embedder understands it: *person*.

    A fingerprint is not a word of any language: it becomes a dozen meaningless tokens and drowns the words next to it.
    """
    return _TYPE.sub(lambda placeholder: placeholder[1].replace("_", " ").lower(), text)


def with_placeholders(text: str, spans: Sequence[Span]) -> RedactionResult:
    """Return the text with each span, given in order, replaced by its placeholder."""
    parts: list[str] = []
    position = 0
    for span in spans:
        parts += (text[position : span.start], span.placeholder)
        position = span.end
    return RedactionResult(text="".join((*parts, text[position:])), spans=tuple(spans))


def render_preserving_lines(text: str, redacted: RedactionResult) -> str:
    """Return the redacted text with as many lines as the original, ended by line feeds, so that lines can be cited.

    If a replacement spans several lines, its placeholder is on the first. A text that could not be redacted is blank.
    """
    parts: list[str] = []
    position = 0
    for span in redacted.spans:
        placeholder = "" if span.type == UNREDACTABLE_TYPE else span.placeholder
        parts += (text[position : span.start], placeholder, "\n" * text.count("\n", span.start, span.end))
        position = span.end
    return "".join((*parts, text[position:]))


def normalize_line_endings(text: str) -> str:
    """Return the text with line feeds as line endings, so that lines are counted alike before and after a redaction.

    The end of the last line is dropped.
    """
    return "\n".join(text.splitlines())


class RedactionConfig(Value):
    """Configuration of a worker's redaction."""

    policy: RedactionPolicy = RedactionPolicy.STANDARD
    version: str = "0"
    """Version of everything that a result depends on besides text, tenant and treatment. Contains no slash."""


UNVERSIONED = RedactionConfig()
"""Configuration of a redactor that does not change."""


class RedactedTextKey(Value):
    """Key of a redacted whole text: the content it is made from, for whom, and by which rules."""

    blob: str
    """Content hash of the original."""
    tenant: str
    level: RedactionLevel
    version: str
    """Version of the rules."""


class RedactedText(Value):
    """A whole text as it may be shown, line by line like the original."""

    text: str
    """Its lines end with line feeds."""
    replaced: tuple[ReplacedRange, ...] = ()
    """Ranges of the original, with line feeds, that have a placeholder: in order and without overlaps."""
    languages_without_names: tuple[str, ...] = ()
    """See `RedactionResult`."""
    withheld: bool = False
    """Whether it could not be redacted, so that all its lines are blank."""
    timeout_placeholder: str = ""
    """Placeholder of a text whose redaction took too long repeatedly; empty for any other text."""

    @property
    def lines(self) -> list[str]:
        """Lines of the text, at least one."""
        return self.text.split("\n")

    @property
    def results(self) -> tuple[RedactionResult, ...]:
        """What a person should know of its redaction, as input of `build_redaction_notes`."""
        if self.withheld:
            hidden = Span(type=UNREDACTABLE_TYPE, start=0, end=0, score=1, placeholder=self.timeout_placeholder)
            return (
                RedactionResult(
                    text=self.timeout_placeholder, spans=(hidden,), timed_out=bool(self.timeout_placeholder)
                ),
            )
        return (RedactionResult(text="", languages_without_names=self.languages_without_names),)


def build_redacted_text(text: str, redacted: RedactionResult) -> RedactedText:
    """Build the redacted text from an original whose lines end with line feeds."""
    return RedactedText(
        text=render_preserving_lines(text, redacted),
        replaced=tuple([ReplacedRange(span.start, span.end, span.type, span.placeholder) for span in redacted.spans]),
        languages_without_names=redacted.languages_without_names,
        withheld=redacted.redaction_failed,
        timeout_placeholder=redacted.text if redacted.timed_out else "",
    )


VAULT_CACHE_LIFETIME = timedelta(minutes=10)
"""After this time, an original that was forgotten meanwhile is stored again when it recurs."""


class RestoredText(Value):
    """A text with its placeholders replaced by their originals."""

    text: str
    replaced: int
    """Number of placeholders replaced, counting repetitions."""
    unknown: int
    """Number of placeholders left because the vault has no original: credentials, and forgotten values."""


def restore_originals(text: str, originals: Mapping[str, str]) -> RestoredText:
    """Replace placeholders in the text by `originals`, a mapping from placeholder to original."""
    found = PLACEHOLDER_PATTERN.findall(text)
    unknown = sum(placeholder not in originals for placeholder in found)
    return RestoredText(
        text=PLACEHOLDER_PATTERN.sub(lambda placeholder: originals.get(placeholder[0], placeholder[0]), text),
        replaced=len(found) - unknown,
        unknown=unknown,
    )


class NameCandidate(NamedTuple):
    """Something in a text that may be a person's name."""

    start: int
    end: int
    words: int
    value: str


_MAX_WORDS = 5
_WORD, _BETWEEN = compile_bounded(rf"{PLACEHOLDER_PATTERN.pattern}|[^\W_]+"), compile_bounded(r"[\s_]{1,3}|['’-]|\.\s?")


def iter_name_candidates(text: str) -> Iterator[NameCandidate]:
    """Yield sequences of one to five adjacent words in order, the longest first if several start at the same word."""
    words = [word for word in _WORD.finditer(text) if not word[0].startswith("<")]
    rows = [_BETWEEN.fullmatch(text, one.end(), other.start()) for one, other in pairwise(words)]
    for first, word in enumerate(words):
        last = first
        while last < len(rows) and rows[last] and last - first < _MAX_WORDS - 1:
            last += 1
        for behind in range(last, first - 1, -1):
            end = words[behind].end()
            yield NameCandidate(word.start(), end, behind - first + 1, text[word.start() : end].replace("_", " "))
