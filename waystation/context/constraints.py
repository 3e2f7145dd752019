"""What a summary must not lose: the user's demands and requests, recorded decisions, identifiers, and open work.

Demands are kept verbatim. They are recognised by words of English, German, French, Spanish, Chinese and Japanese.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import dropwhile
from typing import Final, NamedTuple

from pydantic import JsonValue

from waystation.context.restoration import without_files
from waystation.context.summary import (
    CONSTRAINT_PREFIX,
    DECISION_PREFIX,
    OPEN_ITEM_PREFIX,
    REQUEST_PREFIX,
    format_ledger_line,
    is_compaction_message,
    is_summary,
    parse_ledger_entries,
    shorten_text,
    strip_frame_tags,
    strip_summary_frame,
    without_ledger,
)
from waystation.context.transcript import Message
from waystation.kernel.patterns import compile_bounded

_STARTS = r"[\s(\[\"'“‘«¡*_,;:—-]"
"""Characters before a word: a pattern that begins with a set of characters is searched quickly."""
_WORDS = (
    # English
    r"never|always|must(?:n['’]?t)?|shall|do not|don['’]?t|should(?:n['’]?t)?|may not|can(?:not|['’]t)|not (?:to|yet)"
    r"|just yet|only|avoid|unless|until|at (?:most|least)|no (?:more|later|less|fewer) than|except|require[ds]?"
    r"|deadline|make sure|ensure|be sure|wait for|hands off|forbidden|prohibited|acceptance criteri(?:a|on)"
    # German
    r"|nie(?:mals)?|immer|muss(?:t)?|müss(?:en|t)|soll(?:en|st|t|te|ten)?|d[aü]rf(?:en|st|t)?|kein(?:e[mnrs]?)?|nur"
    r"|(?:noch|bitte|bloß|auch) nicht|nicht(?=[.,;!]|$)|erst wenn|bis (?:ich|wir|zum)|außer|mindestens|höchstens"
    r"|spätestens|vermeide[nt]?|verboten|unbedingt"
    # French
    r"|jamais|toujours|do(?:is|it|ivent)|devez|il faut|ne \w{1,20} (?:pas|rien|plus)|n['’]\w{1,20} (?:pas|rien)"
    r"|ne pas|pas encore|uniquement|seulement|sauf|jusqu['’]\w{1,10}|au (?:plus|moins)|interdit\w{0,2}|avant que"
    r"|obligatoire\w?"
    # Spanish
    r"|nunca|jamás|siempre|deb(?:e[ns]?|es)|hay que|tien(?:e|es) que|no (?:l[aeo]s? )?\w{1,20}(?:es|éis)"
    r"|no (?:hag|pong|escrib|abr|salg|dig|ejecut)\w{1,4}|(?:todavía|aún) no|s[oó]lo|únicamente|solamente|salvo|excepto"
    r"|hasta que|como (?:máximo|mínimo)|al menos|a más tardar|obligatori[ao]|prohibid[ao]"
)
_DEMAND = compile_bounded(rf"{_STARTS}(?:(?<=^.)no [a-z]|(?:{_WORDS})(?!\w))")
_WIDE_DEMAND = compile_bounded(
    # Chinese
    r"不要|不得|不能|不许|不許|不准|不可|禁止|切勿|请勿|請勿|务必|務必|必须|必須|一定要|只能|只要|仅|僅|除非|直到|至少|至多"
    r"|最多|总是|總是|永远|永遠|绝不|絕不|先不|暂不|暫不|应该|應該"
    r"|(?<![特分区區类類级級性识識辨個])[別别](?![的人名のに途々紙表])"
    # Japanese
    r"|厳禁|必ず|絶対|決して|だけ|のみ|以外|まで(?:は|に)|ないで|なければ|ならない|なきゃ|べき|てはいけ|てはなら|するな|せよ"
    r"|いけません|少なくとも|以内"
)


def is_demand(sentence: str) -> bool:
    """Return whether the sentence demands or forbids something."""
    if _DEMAND.search(f" {sentence.lower()}"):
        return True
    return not sentence.isascii() and _WIDE_DEMAND.search(sentence) is not None


DEMAND_CHARACTERS = 1_000
"""A longer sentence is pasted material, not a demand."""
# Not before a small letter: "e.g. this" goes on.
_SENTENCE_END = compile_bounded(r"[.!?。！？](?:(?<=[。！？])|(?=\s+[^a-z\s]))")


def extract_user_constraints(middle: Sequence[Message]) -> tuple[str, ...]:
    """Return the sentences of the user's messages that demand or forbid something, in order, each once.

    Demands in an earlier compaction's ledger stay. What tools and assistant said never counts.
    """
    return tuple(dict.fromkeys(sentence for message in middle for sentence in _demands(message)))


def extract_user_words(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return what the user said in these messages, and earlier as far as ledgers have it verbatim."""
    heard = (_heard(message) for message in messages if _is_the_users(message))
    return tuple(words for said in heard for words in said)


def _heard(message: Message) -> tuple[str, ...]:
    return (
        parse_ledger_entries(message, CONSTRAINT_PREFIX) + parse_ledger_entries(message, REQUEST_PREFIX)
        if is_compaction_message(message)
        else (message.text,)
    )


def _sentences(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the sentences of a text verbatim, and whether each is a demand."""
    for line in _SENTENCE_END.sub("\\g<0>\n", strip_frame_tags(text)).splitlines():
        if sentence := line.strip():
            yield sentence, len(sentence) <= DEMAND_CHARACTERS and is_demand(sentence)


def _is_the_users(message: Message) -> bool:
    """Return whether it is the user's, including summaries and markers that stand for the user's messages."""
    return message.role == "user" and not message.is_platform_message


def _demands(message: Message) -> Iterator[str]:
    if not _is_the_users(message):
        return
    if is_compaction_message(message):
        yield from parse_ledger_entries(message, CONSTRAINT_PREFIX)
        return
    # What people send to a running task is meant for all later work, in whatever words.
    heeded = message.task_message > 0
    yield from (
        sentence
        for sentence, demands in _sentences(message.text)
        if demands or (heeded and len(sentence) <= DEMAND_CHARACTERS)
    )


MAX_REQUEST_CHARACTERS = 500
"""Maximum characters for one message, so that pasted text does not crowd out the others."""
_TAG = compile_bounded(r"<([A-Za-z][\w-]{0,40})[^<>]{0,200}>")


def extract_user_requests(middle: Sequence[Message]) -> tuple[str, ...]:
    """Return one line per user message with what it says besides its demands, in order, the last of equal ones.

    Lines of earlier ledgers are included. A message wrapped in a single tag was made by a program and says nothing.
    """
    lines = [line for message in middle if message.role == "user" for line in _asked_in(message)]
    return tuple(dict.fromkeys(reversed(lines)))[::-1]


def _asked_in(message: Message) -> Iterator[str]:
    if is_compaction_message(message):
        yield from parse_ledger_entries(message, REQUEST_PREFIX)
    elif not _is_wrapped(message.text.strip()):
        said = format_ledger_line(" ".join(sentence for sentence, demands in _sentences(message.text) if not demands))
        if said:
            yield shorten_text(said, MAX_REQUEST_CHARACTERS)


def _is_wrapped(text: str) -> bool:
    tag = _TAG.match(text)
    return tag is not None and text.endswith(f"</{tag[1]}>")


DECISION_CHARACTERS = 300
_NAMES = (
    r"(?:key |recorded |main )?decisions?(?: made| and reasons)?|entscheidungen|décisions|decisiones|决定|決定(?:事項)?"
)
_HEADING = compile_bounded(
    rf"^[\s#*_<]{{0,8}}(?:{_NAMES})[\s*_>]{{0,4}}(?:[:：][\s*_]{{0,4}}(?P<rest>.*)|$)", re.IGNORECASE
)
_BULLET = compile_bounded(r"^\s*(?:[-*•]|\d{1,3}[.)])\s+")
_OTHER_HEADING = compile_bounded(r"^\s*(?:#|<|\*\*[^*]{1,80}\*\*:?\s*$|[^:：]{1,60}[:：]\s*$)")


def extract_recorded_decisions(middle: Sequence[Message]) -> tuple[str, ...]:
    """Return the lines under "Decisions" in earlier summaries, and decisions in their ledgers; in order, each once.

    An agent's notes are stored elsewhere and do not need this.
    """
    found = (
        line
        for message in middle
        if message.role == "user" and is_compaction_message(message)
        for line in _decided_in(message)
    )
    return tuple(dict.fromkeys(shorten_text(line, DECISION_CHARACTERS) for line in found))


def _decided_in(message: Message) -> Iterator[str]:
    yield from parse_ledger_entries(message, DECISION_PREFIX)
    if is_summary(message):
        yield from filter(
            None,
            map(format_ledger_line, _decisions_listed(without_ledger(without_files(strip_summary_frame(message))))),
        )


def _decisions_listed(text: str) -> Iterator[str]:
    inside, only_bullets = False, False
    for line in text.split("\n"):
        bullet = _BULLET.match(line)
        if heading := _HEADING.match(line):
            rest: str = heading["rest"] or ""
            inside, only_bullets = True, bool(rest.strip())
            yield rest
        elif inside and bullet is None and (only_bullets or _OTHER_HEADING.match(line)):
            inside = False
        elif inside:
            yield line[bullet.end() :] if bullet else line


_NAME = r"[\w.@+-]"
IDENTIFIER_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("citations", compile_bounded(r"\[[^\[\]\n:]{1,200}:\d+-\d+\]")),
    ("URLs", compile_bounded(r"https?://[^\s<>\"'`)\]}|]+")),
    (
        "paths",
        compile_bounded(
            rf"(?<![\w.@+/:<-])(?:(?:~|\.{{1,2}})?/(?:{_NAME}{{1,100}}/){{0,30}}{_NAME}{{1,100}}"
            rf"|(?:{_NAME}{{1,100}}/){{1,30}}[\w@+-]{{1,100}}\.\w{{1,8}}"
            r"|[A-Za-z]:\\[\w.\\-]{1,200})"
        ),
    ),
    (
        "codes",
        compile_bounded(
            r"[A-Z](?<!\w.)(?:[A-Z]{0,11}[-_]?\d{2,12}|(?<=E)[A-Z]{3,15}|[A-Z]{1,11}(?:_[A-Z0-9]{2,20}){1,5}"
            r"|\w{0,40}(?:Error|Exception))\b"
        ),
    ),
    (
        "ids",
        compile_bounded(
            r"[0-9a-f](?<![\w-].)(?:[0-9a-f]{7}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
            r"|(?=\d{0,39}[a-f])(?<=\d)[0-9a-f]{6,63}|(?=[a-f]{0,39}\d)(?<=[a-f])[0-9a-f]{6,63})\b"
        ),
    ),
    (
        "figures",
        compile_bounded(
            r"[$€£¥\d](?<![\w.,:/-].)(?:(?<=[$€£¥])\s?\d[\d.,]{0,20}|(?<=\d)(?:[\d.,]{0,20}\s?%"
            r"|\d{0,2}(?:,\d{3}){1,6}(?:\.\d+)?|\d{0,19}\.\d{1,20}|\d{3,19}))(?![\w/-])"
        ),
    ),
)
"""Kinds with their patterns. Every repetition is bounded, or starts at a boundary: a line may have megabytes. Each
pattern except that of paths begins with a set of characters and looks behind after it, which is ten times as fast.
"""


def extract_identifiers(text: str) -> dict[str, Counter[str]]:
    """Return citations, URLs, paths, error codes, IDs and figures of a text by kind, with the number of occurrences.

    Within a kind, the one mentioned last comes first; so does `most_common` among equally frequent ones.
    """
    return {
        kind: Counter(found.rstrip(".,;:") for found in reversed(pattern.findall(_searched(kind, text))))
        for kind, pattern in IDENTIFIER_PATTERNS
    }


POINTER_KINDS = frozenset({"citations", "URLs", "paths"})
"""Kinds of identifiers that say where something stands: those that the agent wrote itself are worth keeping."""


def find_rereadable_identifiers(
    messages: Sequence[Message], middle: Sequence[Message], document_tools: Collection[str]
) -> frozenset[str]:
    """Return the identifiers that the agent has read in documents, and can read there again.

    Left out are those that stand elsewhere in the middle too and would be missed: what the user said, what an earlier
    compaction's ledger has kept, and the citations, URLs and paths that the agent wrote.

    Args:
        messages: All messages of the transcript, as they were before any compaction.
        middle: The messages to hide, as they are in the view.
        document_tools: Names of the tools that show text of documents.
    """
    calls = {call.id: call.name for message in messages for call in message.tool_uses}
    read = (
        result.content
        for message in messages
        for result in message.tool_results
        if calls.get(result.tool_use_id) in document_tools
    )
    kept = _identify(line for message in middle if _is_the_users(message) for line in _kept_lines(message))
    written = _identify(_written_by_agent(message) for message in middle if message.role == "assistant")
    return frozenset(
        value
        for kind, values in _identify(read).items()
        for value in values - kept[kind] - (written[kind] if kind in POINTER_KINDS else set())
    )


def _identify(texts: Iterable[str]) -> dict[str, set[str]]:
    return {kind: set(found) for kind, found in extract_identifiers("\n".join(texts)).items()}


def _kept_lines(message: Message) -> tuple[str, ...]:
    return parse_ledger_entries(message, "") if is_compaction_message(message) else (message.text,)


def _written_by_agent(message: Message) -> str:
    return "\n".join([message.text, *(str(value) for call in message.tool_uses for value in call.input.values())])


def _searched(kind: str, text: str) -> str:
    """Return the text to search. Paths are only searched in words with a slash: searching everything is slow."""
    return " ".join(word for word in text.split() if "/" in word or "\\" in word) if kind == "paths" else text


_WORD = compile_bounded(r"[a-z0-9]+|[^\sa-z0-9]")
_QUOTES = dict.fromkeys(map(ord, "“”„«»「」『』‘’`\"'"))
_ENDS = " .,;:!?…。，、；：！？"


def normalise_words(text: str) -> str:
    """Return the words and symbols of a text, each between spaces, without quotation marks.

    `in` then finds whole words.
    """
    return f" {' '.join(_WORD.findall(text.casefold().translate(_QUOTES)))} "


def contains_phrase(words: str, text: str) -> bool:
    """Return whether `words` (from `normalise_words`) contains those of the text in a row.

    The final punctuation of the text is ignored.
    """
    return normalise_words(text.strip(_ENDS)) in words


MAX_ITEMS, OPEN_WORK_CHARACTERS = 20, 200
STEP_ITEM_PREFIX: Final = "this step: "
"""Prefix of items that the platform itself knows to be open: they are stated afresh each time, not carried over."""
_ITEM = compile_bounded(
    r"^[ \t]*(?:(?:[-*•]|\d{1,3}[.)])[ \t]+)?\[(?P<status>TODO|IN PROGRESS|DONE|[ xX])\][ \t]+(?P<text>\S.*)$", re.M
)
_DONE = frozenset({"done", "x", "completed", "complete", "cancelled", "canceled"})


class _Item(NamedTuple):
    status: str
    text: str

    @property
    def open(self) -> bool:
        return self.status.lower() not in _DONE

    @property
    def line(self) -> str:
        return shorten_text(format_ledger_line(f"[{self.status}] {self.text}"), OPEN_WORK_CHARACTERS)


def find_open_items(middle: Sequence[Message], messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the open items at the end of the middle; none if a newer list follows it, which stays in view.

    Only the newest list counts: an item that an agent omits from it is no longer work. A list is lines such as `[TODO]
    …`, `[IN PROGRESS] …`, `- [x] …`, or the input of a call with items of a `content` and a `status`. An earlier
    summary's ledger has the items that were open at its end.
    """
    hidden = {message.id for message in middle}
    newest_first = list(reversed(messages))
    before = list(dropwhile(lambda message: message.id not in hidden, newest_first))
    if any(_items_listed(message) for message in newest_first[: len(newest_first) - len(before)]):
        return ()
    return tuple(dict.fromkeys(_newest(before)))[:MAX_ITEMS]


def _newest(newest_first: Iterable[Message]) -> Sequence[str]:
    for message in newest_first:
        if is_summary(message):
            return [
                line
                for line in parse_ledger_entries(message, OPEN_ITEM_PREFIX)
                if not line.startswith(STEP_ITEM_PREFIX)
            ]
        if listed := _items_listed(message):
            return [item.line for item in listed if item.open]
    return ()


def _items_listed(message: Message) -> list[_Item]:
    if message.role != "assistant" or is_compaction_message(message):
        return []
    text = message.text
    written = [_Item(found["status"], found["text"]) for found in _ITEM.finditer(text)] if "[" in text else []
    return [*written, *(item for call in message.tool_uses for value in call.input.values() for item in _kept(value))]


def _kept(value: JsonValue) -> Iterator[_Item]:
    """Yield the items of a list in a tool's input."""
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, dict):
            text, status = entry.get("content"), entry.get("status")
            if isinstance(text, str) and text.strip() and isinstance(status, str):
                yield _Item(status, text)
