"""Summaries of a conversation: what was searched, read, noted and written, and its key sentences, verbatim."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from pydantic import JsonValue, TypeAdapter, ValidationError

from waystation.documents.documents import parse_place_marker
from waystation.kernel.patterns import DelimitedPattern, compile_bounded
from waystation.kernel.value import Value
from waystation.plugins.offline.agent_request import NOTHING_NEW, STALLED
from waystation.plugins.offline.language import extract_stems, split_sentences, truncate_at_word
from waystation.plugins.offline.responses import CHARACTERS_A_TOKEN, OfflineResponse

MIN_SUMMARY_TOKENS, MAX_SUMMARY_TOKENS = 400, 2_000
KEY_SENTENCE_CHARACTERS = 300
MIN_STEMS = 4
"""Minimum number of content words of a key sentence."""
BULLET = "- "
NOTE_CHARACTERS = 100
LABELS = ("Asked", "Kept", "Documents read", "Searches", "Findings read", "Failed", "Last actions")
"""The lists of a summary, in this order; each is one line, its items separated by `; `."""
SECTIONS = {
    "overall_goal": ("Asked",),
    "constraints": (),
    "key_knowledge": ("Findings read", "Failed"),
    "file_system_state": ("Documents read",),
    "recent_actions": ("Searches", "Last actions"),
    "current_plan": ("Kept",),
}
"""The parts of a snapshot, with the lists that belong there.

Key sentences are knowledge; a stall belongs to the plan.
"""
RESULT_NOT_KEPT = "(Constraints are listed with the requests, because the offline model does not distinguish the two.)"
DONE = "[DONE] "
SNAPSHOT_CHARACTERS = 400
"""Characters of a snapshot's parts besides the lists."""

_RANGE = compile_bounded(r"(?<![\d,])(\d[\d,]{0,29}+)\s{0,9}+(?:to|-|–)\s{0,9}+(\d[\d,]{0,29}+)\s{0,9}+tokens")
_CONVERSATION, _CONVERSATION_END = "<conversation>", "</conversation>"
_EARLIER = DelimitedPattern(r"<earlier_conversation[^>]{0,300}+>\n?", r"</earlier_conversation>")
_ENTRY = compile_bounded(r"^\[(\S+) (user|assistant calls|assistant|result of)(?: ([\w-]+))?\] ?", re.MULTILINE)
_KEPT = compile_bounded(r"^(?:note \d+ kept|section \d+ kept: .*)$", re.MULTILINE)
_PAGE = compile_bounded(r"^(.+, lines \d+-\d+) of \d+$|^(findings \d+-\d+ of \d+ of step .+)$", re.MULTILINE)
_FAULT = compile_bounded(
    r"\b(?:error|fail(?:ed|s|ure)?|cannot|could not|refused|outcome unknown|there is no)\b", re.IGNORECASE
)
_NUMBER = compile_bounded(r"^\d+\| ")
_ARGUMENTS = TypeAdapter(dict[str, JsonValue])


class _Part(Value):
    who: str
    tool: str
    text: str


def build_summary_response(prompt: str, max_tokens: int, *, snapshot: bool = False) -> OfflineResponse:
    """Build the summary that `prompt` asks for, with the parts of a snapshot if requested."""
    asked = _RANGE.findall(prompt)
    most = int(asked[-1][1].replace(",", "")) if asked else MAX_SUMMARY_TOKENS
    least = int(asked[-1][0].replace(",", "")) if asked else MIN_SUMMARY_TOKENS
    conversation = _conversation(prompt)
    # Less than half of what it replaces: a summary that saves little is refused.
    room = min(most, max_tokens, max(len(conversation) // 2 // CHARACTERS_A_TOKEN, 40)) * CHARACTERS_A_TOKEN
    room = max(0, room - SNAPSHOT_CHARACTERS) if snapshot else room
    earlier = [stretch.inside.strip() for stretch in _EARLIER.finditer(conversation)]
    new = _EARLIER.extract_delimited(conversation)[1].strip()
    parts = _parts(new) if new or not earlier else []
    lists = _lists(parts, earlier)
    lines = _within(lists, room)
    # Only earlier summaries: these are parts of one summary to be merged, not a stall.
    if earlier and parts and not any(_KEPT.search(part.text) for part in parts):
        again = any(NOTHING_NEW in text or STALLED in text for text in earlier)
        lines.append(STALLED if again else NOTHING_NEW)
    left = min(room, (least + most) // 2 * CHARACTERS_A_TOKEN) - sum(len(line) + 1 for line in lines)
    lines += _key_sentences(parts, earlier, left)
    return OfflineResponse(text=_snapshot(lines, room) if snapshot else truncate_at_word("\n".join(lines), room))


def _conversation(prompt: str) -> str:
    """Return the text to summarise: everything if nothing marks it."""
    begin, end = prompt.find(_CONVERSATION), prompt.rfind(_CONVERSATION_END)
    inside = begin + len(_CONVERSATION)
    return prompt[inside:end].removeprefix("\n") if begin >= 0 and inside <= end else prompt


def _snapshot(lines: Sequence[str], room: int) -> str:
    """Format the lines in the parts of a snapshot; each stays a line of its own, so that the next summary can carry it
    on.
    """
    labels = {label: name for name, labels in SECTIONS.items() for label in labels}
    parts: dict[str, list[str]] = {name: [] for name in SECTIONS}
    for line in truncate_at_word("\n".join(lines), room).splitlines():
        label = line.partition(": ")[0]
        if line in {NOTHING_NEW, STALLED}:
            parts["current_plan"].append(line)
        else:
            part = labels.get(label, "key_knowledge")
            parts[part].append(f"{DONE}{line}" if label == "Kept" else line)
    parts["constraints"].append(RESULT_NOT_KEPT)
    sections = ("\n".join([f"<{name}>", *said, f"</{name}>"]) for name, said in parts.items())
    return "\n".join(["<state_snapshot>", *sections, "</state_snapshot>"])


def _parts(conversation: str) -> list[_Part]:
    """Return the rendered messages; a conversation in another form is one user text."""
    marks = list(_ENTRY.finditer(conversation))
    if not marks:
        return [_Part(who="user", tool="", text=conversation.strip())]
    ends = [*(mark.start() for mark in marks[1:]), len(conversation)]
    return [
        _Part(who=mark.group(2), tool=mark.group(3) or "", text=conversation[mark.end() : end].strip())
        for mark, end in zip(marks, ends, strict=True)
    ]


def _lists(parts: Sequence[_Part], earlier: Sequence[str]) -> dict[str, list[str]]:
    """Return what happened, by label; the lists of earlier summaries are carried on."""
    lists: dict[str, list[str]] = {label: [] for label in LABELS}
    for line in (line for text in earlier for line in text.splitlines()):
        label, separator, items = line.removeprefix(DONE).partition(": ")
        if separator and label in lists and label != "Last actions":
            lists[label] += items.split("; ")
    for part in parts:
        for label, item in _happened(part):
            lists[label].append(" ".join(item.split()).replace("; ", ", "))
    actions = [f"{part.tool} {truncate_at_word(part.text, 120)}" for part in parts if part.who == "assistant calls"]
    lists["Last actions"] = [" ".join(action.split()).replace("; ", ", ") for action in actions[-4:]]
    return {label: list(dict.fromkeys(items)) for label, items in lists.items()}


def _happened(part: _Part) -> Iterator[tuple[str, str]]:
    match part.who:
        case "user":
            for sentence in split_sentences(part.text)[:20]:
                yield "Asked", truncate_at_word(sentence, KEY_SENTENCE_CHARACTERS)
        case "assistant calls":
            yield from _called(part)
        case "result of":
            first = part.text.partition("\n")[0]
            yield from (("Kept", kept) for kept in _KEPT.findall(part.text) if kept.startswith("section"))
            for read, findings in _PAGE.findall(first):
                yield ("Documents read", read) if read else ("Findings read", findings)
            if len(part.text) < 400 and _FAULT.search(part.text):
                yield "Failed", f"{part.tool}: {first}"
        case _:
            pass


def _called(part: _Part) -> Iterator[tuple[str, str]]:
    try:
        arguments = _ARGUMENTS.validate_json(part.text)
    except ValidationError:
        return
    match arguments:
        case {"query": str(query)}:
            yield "Searches", query
        case {"document": str(document), "first_line": int(first), "last_line": int(last), "text": str(text)}:
            yield "Kept", f"note [{document}:{first}-{last}] {truncate_at_word(text, NOTE_CHARACTERS)}"
        case _:
            pass


def _within(lists: dict[str, list[str]], room: int) -> list[str]:
    """Format the lists as lines; if they are too long, the oldest items of the longest are dropped, never the last of
    any.
    """
    lists = {label: items for label, items in lists.items() if items}
    sizes = {label: sum(len(item) + 2 for item in items) + len(label) for label, items in lists.items()}
    while sum(sizes.values()) > room:
        longest = max(sizes, key=lambda label: sizes[label] if len(lists[label]) > 1 else 0)
        if len(lists[longest]) == 1:
            break
        sizes[longest] -= len(lists[longest].pop(0)) + 2
    return [f"{label}: {'; '.join(items)}" for label, items in lists.items()]


def _key_sentences(parts: Sequence[_Part], earlier: Sequence[str], room: int) -> list[str]:
    """Return the sentences whose words are most frequent and new, in their order, as many as fit."""
    told = [line.removeprefix(BULLET) for text in earlier for line in text.splitlines() if line.startswith(BULLET)]
    lines = [line for part in parts if part.who in {"assistant", "result of"} for line in part.text.splitlines()]
    content = (text for line in lines if parse_place_marker(text := _NUMBER.sub("", line)) is None)
    said = (sentence for text in content for sentence in split_sentences(text))
    candidates = {
        sentence: frozenset(extract_stems(sentence))
        for sentence in dict.fromkeys([*told, *said])
        if len(sentence) <= KEY_SENTENCE_CHARACTERS
    }
    candidates = {sentence: own for sentence, own in candidates.items() if len(own) >= MIN_STEMS}
    frequency = Counter(stem for own in candidates.values() for stem in own)
    chosen: set[str] = set()
    covered: set[str] = set()
    for sentence, own in sorted(candidates.items(), key=lambda item: -_weight(item[1], frequency)):
        cost = len(BULLET) + len(sentence) + 1
        if cost <= room and len(own & covered) <= len(own) / 2:
            chosen.add(sentence)
            covered |= own
            room -= cost
    return [f"{BULLET}{sentence}" for sentence in candidates if sentence in chosen]


def _weight(own: frozenset[str], frequency: Counter[str]) -> float:
    return sum(frequency[stem] for stem in own) / (8 + len(own))
