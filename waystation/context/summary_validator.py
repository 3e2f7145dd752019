"""Validates a summary before it is committed. Code, not another model call.

It builds the ledger of what must not be lost, removes quotations that the user never said, and rejects errors, refusals
and summaries that are too long.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from enum import StrEnum
from itertools import chain, zip_longest
from typing import Literal, NamedTuple

from waystation.context.compaction import CompactionStatus
from waystation.context.constraints import contains_phrase, extract_identifiers, normalise_words
from waystation.context.summary import (
    CONSTRAINT_PREFIX,
    DECISION_PREFIX,
    NOTES_PREFIX,
    OPEN_ITEM_PREFIX,
    REQUEST_PREFIX,
    build_summary_message,
    compute_ledger_token_limit,
    estimate_line_tokens,
    format_ledger_line,
    render_ledger,
    select_newest_fitting,
    strip_frame_tags,
    without_ledger,
)
from waystation.context.tokens import estimate_message, estimate_text
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value


class SummaryCheckInput(Value):
    """The middle of a conversation, and what must not be lost of it. Redacted, except for the user's own words."""

    text: str
    """The middle as the summariser reads it."""
    tokens: int
    """Plain estimate of the middle in the view."""
    target_tokens: int
    """Maximum tokens that the summary was asked to have."""
    max_constraint_tokens: int
    """Maximum tokens of the user's constraints, and likewise of open work: a fifth of the window."""
    constraints: tuple[str, ...] = ()
    """See `extract_user_constraints`."""
    requests: tuple[str, ...] = ()
    """See `extract_user_requests`."""
    decisions: tuple[str, ...] = ()
    """See `extract_recorded_decisions`."""
    open_work: tuple[str, ...] = ()
    """Unfinished work: pending approvals, running subagents, unfinished items of the plan."""
    user_texts: tuple[str, ...] = ()
    """All messages of the user in the conversation so far: what may be quoted as the user's words."""
    sources: str = ""
    """The ledger's line about the passages behind the summary; see `build_sources_line`."""
    note_citations: tuple[str, ...] = ()
    """Citations of the notes that were taken in the middle, `[document:first-last]`: the summary must have each."""
    rereadable: frozenset[str] = frozenset()
    """Identifiers that the agent can read again in documents: the ledger does not list them."""
    pinned: tuple[str, ...] = ()
    """IDs of pinned messages in the middle: there must be none."""


LEDGER_SHARE_DIVISOR = 4
"""Decisions and requests may each take 1/4 of the ledger's limit; identifiers take the rest."""
SEPARATOR = " | "
"""Separates identifiers in a line of the ledger."""
MAX_IDENTIFIER_CHARACTERS = 300
"""Maximum characters of an identifier: a longer one names nothing, and would leave no space for others."""


class LedgerSection(Value):
    """Lines of a ledger with their kinds and counts."""

    lines: tuple[str, ...]
    kinds: tuple[str, ...]


def build_required_section(body: str, replaced: SummaryCheckInput) -> LedgerSection:
    """Build the section with the user's constraints, open work, and the citations of notes that the summary lost.

    Constraints and open work are included even if the summary has them verbatim: in a later compaction, only the ledger
    distinguishes the user's demands from the summariser's prose.
    """
    demanded = tuple(f"{CONSTRAINT_PREFIX}{sentence}" for sentence in replaced.constraints)
    undone = tuple(f"{OPEN_ITEM_PREFIX}{format_ledger_line(item)}" for item in replaced.open_work)
    cited = [format_ledger_line(citation) for citation in replaced.note_citations if citation not in body]
    noted = (f"{NOTES_PREFIX}{SEPARATOR.join(cited)}",) if cited else ()
    what = (
        (len(demanded), "constraints of the user"),
        (len(undone), "open items"),
        (len(cited), "citations of notes"),
    )
    return LedgerSection(
        lines=demanded + undone + noted, kinds=tuple(f"{kind}: {count:,}" for count, kind in what if count)
    )


def build_recovered_section(body: str, replaced: SummaryCheckInput) -> LedgerSection:
    """Build the section with decisions that the summary lost, the user's requests, and identifiers that it lost."""
    room = compute_ledger_token_limit(replaced.target_tokens)
    written = normalise_words(body)
    undecided = [decision for decision in replaced.decisions if not contains_phrase(written, decision)]
    decided, asked = (
        select_newest_fitting(texts, room // LEDGER_SHARE_DIVISOR) for texts in (undecided, replaced.requests)
    )
    sources = filter(None, [replaced.sources])
    lines = (
        *(f"{DECISION_PREFIX}{text}" for text in decided),
        *(f"{REQUEST_PREFIX}{text}" for text in asked),
        *sources,
    )
    shown = "\n".join([body, *build_required_section(body, replaced).lines, *lines])
    lost = _lost(shown, replaced)
    kept = _kept(lost, room - sum(map(estimate_line_tokens, lines)))
    what = (
        ("missing decisions", len(decided), len(undecided)),
        ("requests of the user", len(asked), len(replaced.requests)),
        ("missing identifiers", sum(map(len, kept.values())), sum(map(len, lost.values()))),
    )
    return LedgerSection(
        lines=(*lines, *(f"{kind}: {SEPARATOR.join(values)}" for kind, values in kept.items() if values)),
        kinds=tuple(f"{kind}: {count:,} of {found:,}" for kind, count, found in what if found),
    )


def _lost(shown: str, replaced: SummaryCheckInput) -> dict[str, list[str]]:
    """Return the identifiers of the middle that are neither shown nor rereadable, by kind.

    The most mentioned and the newest come first.
    """
    there = extract_identifiers(shown)
    return {
        kind: _most_mentioned(found, there[kind].keys() | replaced.rereadable)
        for kind, found in extract_identifiers(strip_frame_tags(replaced.text)).items()
    }


def _most_mentioned(found: Counter[str], there: Set[str]) -> list[str]:
    return [value for value, _ in found.most_common() if value not in there and len(value) <= MAX_IDENTIFIER_CHARACTERS]


def _kept(lost: Mapping[str, list[str]], room: int) -> dict[str, list[str]]:
    # The best of each kind in turn, so that a table full of figures does not crowd out the only path.
    in_turn = (value for value in chain.from_iterable(zip_longest(*lost.values())) if value is not None)
    chosen = set(_fitting(in_turn, room))
    return {kind: [value for value in values if value in chosen] for kind, values in lost.items()}


def _fitting(texts: Iterable[str], room: int) -> Iterator[str]:
    """Yield the texts that fit the room (tokens), in order, together with the separators between them."""
    for text in texts:
        room -= estimate_text(text) + 1
        if room < 0:
            return
        yield text


SHORT_CHARACTERS = 300
"""A longer text that begins like a refusal may well be a summary of one."""
_REFUSAL = compile_bounded(
    r"(?:api )?error\s*[:\d]|traceback\b|\{\s*\"(?:type\"\s*:\s*\")?error\"|http [45]\d\d\b|overloaded\b"
    r"|[45]\d\d:? (?:overloaded|bad|unauthori[sz]ed|forbidden|not found|too many|internal|service|gateway)\b"
    r"|rate limit|internal server error|(?:the )?request timed out"
    # English
    r"|sorry\b|(?:i['’]m|i am) (?:(?:very |so )?sorry|unable|not able)|unfortunately,? i\b|as an ai\b"
    r"|i (?:cannot|can['’]t|can not|could not|couldn['’]t|won['’]t|will not)\b"
    # German
    r"|entschuldigung\b|(?:es )?tut mir leid|leider kann ich\b|ich kann\b[^.!?\n]{0,80}\bnicht\b"
    r"|ich bin nicht in der lage"
    # French
    r"|(?:je suis )?désolée?\b|je ne (?:peux|suis) pas\b|je regrette\b"
    # Spanish
    r"|lo siento\b|no puedo\b|disculp\w{1,3}\b|lamento\b"
    # Chinese
    r"|(?:很|非常)?抱歉|对不起|對不起|很遗憾|很遺憾|我(?:无法|無法|不能)"
    # Japanese
    r"|(?:大変)?申し訳|すみません|ごめんなさい|残念ながら",
    re.IGNORECASE,
)


def is_refusal_or_error(text: str) -> bool:
    """Return whether the text is an error message or a refusal."""
    return len(text) <= SHORT_CHARACTERS and _REFUSAL.match(text) is not None


REMOVED_MARK = "[…]"
"""Marks a removal. No gap of a pattern below matches its dots, so that the text on both sides never
forms a quotation.
"""
_LATIN = r"users?|human|(?:be)?nutzer(?:in)?|anwender(?:in)?|utilisat(?:eur|rice)|usuari[oa]"
_WIDE = r"用户|用戶|使用者|ユーザー?|利用者"
_SPEAKER = rf"(?:(?:according to |as )?\b(?:the |der |die |den |el |la |l['’])?\b(?:{_LATIN})\b|{_WIDE})"
_SAYS = (
    r"\b(?:said|says?|saying|ask(?:s|ed|ing)?|wr[io]tes?|told|tells?|states?d?|request(?:s|ed)?|demand(?:s|ed)?|insist\w*"
    r"|wants?|wanted|replie[sd]|answer(?:s|ed)|add(?:s|ed)|confirm(?:s|ed)|approve[sd]|instruct(?:s|ed)|order(?:s|ed)"
    r"|put it|words?|quote"
    r"|sagte?|fragte?|schrieb|bat|bittet|wollte|will|verlangte?|forderte?|meinte?|antwortete|bestätigte?|wünschte?"
    r"|dit|demandé|demande|écrit|voulait|veut|répondu|confirmé|exigé|insisté"
    r"|dijo|dice|pidió|pide|preguntó|escribió|quiere|respondió|confirmó|exigió)\b"
)
_GAP = r"[^\n\"“”„«»「」『』‘….!?]"
_QUOTED = (
    # An unclosed quotation ends with its line. Every alternative matches once it has begun, so matching is linear.
    r"(?:\"[^\"\n]*\"?|“[^”\n]*”?|„[^“”\n]*[“”]?|«[^»\n]*»?|「[^」\n]*」?|『[^』\n]*』?"
    r"|‘(?:[^’\n]|’(?=\w))*’?|(?<=[\s:(])'(?:[^'\n]|'(?=\w))*'?|\n[ \t]{0,3}>[^\n]*)"
)
_BEGUN = r"(?=[\"“„«「『‘'\n])"
"""One lookahead instead of one per kind of quotation."""
_NEAR = rf"(?=[^\n\"'“”„«»「」『』‘….!?]{{0,96}}+{_BEGUN})"
"""Nothing further away is ascribed to a speaker: one lookahead instead of one per word that might ascribe it."""
_ASCRIBED = compile_bounded(
    rf"{_SPEAKER}{_NEAR}{_GAP}{{0,40}}?(?:(?:{_SAYS}|[:：]){_GAP}{{0,24}}?|(?:{_WIDE}){_GAP}{{0,36}}?){_BEGUN}({_QUOTED})"
    rf"|(?:{_WIDE}){_GAP}{{0,12}}?{_BEGUN}({_QUOTED})"
    rf"|((?<!\w)(?:\"[^\"\n]{{1,500}}\"|“[^“”\n]{{1,500}}”)),? (?:{_SAYS} (?:by )?{_SPEAKER}"
    rf"|{_SPEAKER} {_SAYS}(?!{_GAP}{{0,24}}[\"“]))",
    re.IGNORECASE,
)
_SPOKEN_LINE = compile_bounded(
    rf"^[ \t>*_#•-]{{0,8}}(?:{_LATIN}|{_WIDE})[*_ \t]{{0,4}}[:：][*_ \t]{{0,4}}(?![\"“„«「『‘'])[^\s*_][^\n]*",
    re.IGNORECASE | re.MULTILINE,
)


class AttributionResult(Value):
    """A text without words that the user never said."""

    text: str
    removed: tuple[str, ...] = ()
    """What was removed, each with its attribution to the user: kinds and counts."""


def remove_invented_quotations(text: str, user_said: Sequence[str]) -> AttributionResult:
    """Remove quotations and lines that put words into the user's mouth. Idempotent.

    A quotation that occurs in a user message, whatever its spacing, quotation marks and capitals, stays.
    """
    said: str | None = None
    removed = 0

    def checked(match: re.Match[str]) -> str:
        nonlocal said, removed
        said = normalise_words("\n".join(user_said)) if said is None else said
        quoted = next(group for group in match.groups() if group is not None)
        if contains_phrase(said, quoted.strip().strip(">\"“”„«»「」『』‘’'").strip()):
            return match[0]
        removed += 1
        return REMOVED_MARK

    text = _ASCRIBED.sub(checked, text)
    text, lines = _SPOKEN_LINE.subn(REMOVED_MARK, text)
    what = ((removed, "quotations"), (lines, "lines"))
    return AttributionResult(
        text=text,
        removed=tuple(f"{kind} that the user never said: {count:,}" for count, kind in what if count),
    )


MAX_LENGTH_FACTOR = 3
"""A summary may be this many times as long as requested: neither models nor estimates count exactly."""
_WORD = compile_bounded(r"\w")
_THOUGHT = compile_bounded(r"\A(?:\s*<(thinking|analysis)>.*?(?:</\1>|\Z))+", re.DOTALL)


class SummaryRule(StrEnum):
    """Reasons to reject a summary."""

    EMPTY = "empty"
    CUT = "cut"
    ERROR_TEXT = "error text"
    PINS = "pins"
    CONSTRAINTS = "constraints"
    OPEN_WORK = "open work"
    INFLATED = "inflated"
    TARGET_SIZE = "target size"


class AcceptedSummary(Value):
    """Content of the summary message: the summary, and the ledger of what it lost."""

    text: str
    added: tuple[str, ...] = ()
    """What the ledger added: kinds and counts, nothing of the conversation."""
    removed: tuple[str, ...] = ()
    """What was removed from the summary: kinds and counts, nothing of the conversation."""


class RejectedSummary(Value):
    """The summary is not used, and everything stays as it was."""

    status: Literal[
        CompactionStatus.FAILED_EMPTY_SUMMARY, CompactionStatus.FAILED_INFLATED, CompactionStatus.FAILED_CHECK
    ]
    rule: SummaryRule
    message: str
    """Why, in words for a person; nothing of the conversation."""


class _Draft(NamedTuple):
    body: str
    text: str
    """The summary with its ledger."""
    added: tuple[str, ...]
    middle: SummaryCheckInput


def check_summary(summary: str, replaced: SummaryCheckInput) -> AcceptedSummary | RejectedSummary:
    """Check whether the summary may replace the middle, and build the message's content.

    A ledger that the model wrote is discarded and built again, so that checking an accepted text changes nothing.
    """
    if hopeless := check_middle(replaced):
        return hopeless
    checked = remove_invented_quotations(_plain(summary), replaced.user_texts)
    needed, lost = build_required_section(checked.text, replaced), build_recovered_section(checked.text, replaced)
    full = _draft(checked.text, replaced, needed, lost)
    # Optional entries may be what makes it too long.
    draft = full if _broken(full) is None else _draft(checked.text, replaced, needed)
    return _broken(draft) or AcceptedSummary(text=draft.text, added=draft.added, removed=checked.removed)


def _plain(summary: str) -> str:
    """Return the summary without ledger, frames and thoughts.

    Line ends are normalised, so that no line hides its start.
    """
    thought = _THOUGHT.sub("", strip_frame_tags(without_ledger(summary)))
    return "\n".join(line.rstrip() for line in thought.splitlines()).strip()


def check_middle(replaced: SummaryCheckInput) -> RejectedSummary | None:
    """Return why no summary may replace the middle, if that is so: known before a model is called."""
    return _first(((rule, breaks(replaced)) for rule, breaks in RULES_OF_MIDDLES.items()))


def _pins(replaced: SummaryCheckInput) -> str | None:
    names = ", ".join(replaced.pinned)
    return f"the summary would hide pinned messages: {names}" if names else None


def _constraints(replaced: SummaryCheckInput) -> str | None:
    return _over_cap(replaced.constraints, replaced.max_constraint_tokens, "the text of the user's demands")


def _open_work(replaced: SummaryCheckInput) -> str | None:
    return _over_cap(replaced.open_work, replaced.max_constraint_tokens, "the list of open work")


def _empty(draft: _Draft) -> str | None:
    return None if _WORD.search(draft.body) else "the summary is blank"


def _error_text(draft: _Draft) -> str | None:
    return "the summary is an error message or a refusal" if is_refusal_or_error(draft.body) else None


def _inflated(draft: _Draft) -> str | None:
    smaller = estimate_message(build_summary_message("", draft.text)) < draft.middle.tokens
    return None if smaller else "the summary is not smaller than what it replaces"


def _target_size(draft: _Draft) -> str | None:
    size, room = estimate_text(draft.body), draft.middle.target_tokens
    return f"the summary has {size:,} tokens; {room:,} were requested" if size > MAX_LENGTH_FACTOR * room else None


RULES_OF_MIDDLES: Mapping[SummaryRule, Callable[[SummaryCheckInput], str | None]] = {
    SummaryRule.PINS: _pins,
    SummaryRule.CONSTRAINTS: _constraints,
    SummaryRule.OPEN_WORK: _open_work,
}
RULES_OF_SUMMARIES: Mapping[SummaryRule, Callable[[_Draft], str | None]] = {
    SummaryRule.EMPTY: _empty,
    SummaryRule.ERROR_TEXT: _error_text,
    SummaryRule.INFLATED: _inflated,
    SummaryRule.TARGET_SIZE: _target_size,
}
"""Each returns what is wrong, or None; the first fault counts."""


def _draft(body: str, replaced: SummaryCheckInput, *entries: LedgerSection) -> _Draft:
    lines = [line for part in entries for line in part.lines]
    added = tuple(what for part in entries for what in part.kinds)
    return _Draft(body, "\n\n".join(filter(None, [body, render_ledger(lines)])), added, replaced)


def _broken(draft: _Draft) -> RejectedSummary | None:
    return _first((rule, breaks(draft)) for rule, breaks in RULES_OF_SUMMARIES.items())


def _first(checked: Iterable[tuple[SummaryRule, str | None]]) -> RejectedSummary | None:
    return next(
        (RejectedSummary(status=_status(rule), rule=rule, message=message) for rule, message in checked if message),
        None,
    )


def _status(
    rule: SummaryRule,
) -> Literal[CompactionStatus.FAILED_EMPTY_SUMMARY, CompactionStatus.FAILED_INFLATED, CompactionStatus.FAILED_CHECK]:
    if rule is SummaryRule.EMPTY:
        return CompactionStatus.FAILED_EMPTY_SUMMARY
    return CompactionStatus.FAILED_INFLATED if rule is SummaryRule.INFLATED else CompactionStatus.FAILED_CHECK


def _over_cap(texts: Sequence[str], cap: int, what: str) -> str | None:
    size = sum(map(estimate_line_tokens, texts))
    return (
        f"{what} has {size:,} tokens; the maximum is {cap:,}, a fifth of the context window: use a larger window"
        if size > cap
        else None
    )
