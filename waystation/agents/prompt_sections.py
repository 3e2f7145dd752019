"""Sections of a request to the model: their order, their shares of the window, and what is left out first.

The allocator decides what is put into a request deliberately, such as the task brief and the status messages. The
compaction pipeline (`context.pipeline`) shrinks conversations, so their parts are firm here: measured, never dropped.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from waystation.agents.delegation import TeammateState, get_parent_id
from waystation.context.history import build_model_view, get_effective_transcript, get_replacement
from waystation.context.tokens import MESSAGE_TOKENS, TokenEstimator, estimate_message, estimate_text
from waystation.context.transcript import (
    STATUS_CLOSE,
    STATUS_OPEN,
    Block,
    MaskRecord,
    Message,
    Transcript,
    build_status_message,
)
from waystation.kernel.amount import Amount, Limit, format_amount, format_limit
from waystation.kernel.patterns import DelimitedPattern
from waystation.kernel.value import Value
from waystation.security.untrusted import SafeMarkup, sanitize_line, wrap_untrusted_line

LIMIT_PERCENT = 90
"""Usable percentage of the window; the rest covers errors of estimates."""


class PromptSection(StrEnum):
    """Sections in the order of a request: the most stable first, so that the prompt cache holds."""

    SYSTEM = "system and policy"
    """System prompt and tools."""
    TASK_BRIEF = "task brief"
    """Question, instructions, criteria, output format, deadline, the step and what it builds on."""
    RUNTIME = "runtime state"
    """Status messages in the conversation."""
    SHORT_TERM = "short-term memory"
    """What agent and user have said, and the agent's calls."""
    EPISODIC = "episodic memory"
    """Summaries, and markers of hidden messages."""
    SEMANTIC = "semantic memory"
    """Notes and findings that the agent has read."""
    PROCEDURAL = "procedural memory"
    """The user's procedures."""
    OBSERVATIONS = "observations"
    """Results of tools."""
    RETRIEVED = "retrieved evidence"
    """Recalled passages, and names of documents."""
    WORK = "work buffer"
    """Space for the reply."""


SECTION_SHARES: Mapping[PromptSection, int] = {
    PromptSection.SYSTEM: 5,
    PromptSection.TASK_BRIEF: 5,
    PromptSection.RUNTIME: 3,
    PromptSection.SHORT_TERM: 18,
    PromptSection.EPISODIC: 13,
    PromptSection.SEMANTIC: 9,
    PromptSection.PROCEDURAL: 7,
    PromptSection.OBSERVATIONS: 22,
    PromptSection.RETRIEVED: 9,
    PromptSection.WORK: 9,
}
"""Percentage of the request limit."""


class PromptCandidate(Value):
    """A candidate for a request. Within a section, parts are shown in their order."""

    name: str
    tokens: int
    required: bool = False
    """Whether it cannot be left out."""
    divisible: bool = False
    """Whether a fraction of it is useful, too."""
    relevance: float = 0.0
    """From 0 to 1."""
    repeatable: bool = False
    """Whether the agent can get it again by asking."""


class _Rule(NamedTuple):
    """Which parts of a section are left out first."""

    description: str
    order: Callable[[int, PromptCandidate], tuple[float, ...]]
    """Sort key by place and part: the part with the greatest key is left out first."""


def _by_place(place: int, _: PromptCandidate) -> tuple[float, ...]:
    return (place,)


def _by_age(place: int, _: PromptCandidate) -> tuple[float, ...]:
    return (-place,)


def _by_relevance(place: int, part: PromptCandidate) -> tuple[float, ...]:
    return (-part.relevance, place)


def _by_repetition(place: int, part: PromptCandidate) -> tuple[float, ...]:
    return (part.repeatable, -place)


SECTION_RULES: Mapping[PromptSection, _Rule] = {
    PromptSection.SYSTEM: _Rule("the last named", _by_place),
    PromptSection.TASK_BRIEF: _Rule("the last named", _by_place),
    PromptSection.RUNTIME: _Rule("the last named", _by_place),
    PromptSection.SHORT_TERM: _Rule("the oldest", _by_age),
    PromptSection.EPISODIC: _Rule("the oldest", _by_age),
    PromptSection.SEMANTIC: _Rule("what can be read again, the oldest first", _by_repetition),
    PromptSection.PROCEDURAL: _Rule("the least relevant", _by_relevance),
    PromptSection.OBSERVATIONS: _Rule("what can be read again, the oldest first", _by_repetition),
    PromptSection.RETRIEVED: _Rule("the least relevant", _by_relevance),
    PromptSection.WORK: _Rule("the last named", _by_place),
}

PromptDemands = Mapping[PromptSection, Sequence[PromptCandidate]]
"""Candidates for a request by section; a missing section has none."""


class SectionAllocation(Value):
    """What one section asked for, and what it got, in tokens."""

    section: PromptSection
    share: int
    requested: int
    allocated: int
    included: tuple[str, ...] = ()
    """Names of the included parts, in order; divisible ones may be included only in part."""
    omitted: tuple[str, ...] = ()
    """Names of the parts left out or shortened, the first to give way first."""


class PromptAllocation(Value):
    """Allocation of a request: one row per section, in their order."""

    limit: int
    rows: tuple[SectionAllocation, ...]

    @property
    def allocated_tokens(self) -> int:
        """Tokens of all sections: never over the limit."""
        return sum(row.allocated for row in self.rows)

    def get_row(self, layer: PromptSection) -> SectionAllocation:
        """Return the row of a section."""
        return next(row for row in self.rows if row.section is layer)


def compute_request_limit(window: int) -> int:
    """Return the maximum size of a request in tokens."""
    return window * LIMIT_PERCENT // 100


def compute_section_tokens(layer: PromptSection, window: int) -> int:
    """Return a section's share of a window in tokens."""
    return compute_request_limit(window) * SECTION_SHARES[layer] // 100


def allocate_prompt(window: int, demands: PromptDemands) -> PromptAllocation:
    """Allocate a window. The same demands always get the same allocation.

    A section whose firm parts exceed its share gets what they need; the others divide the rest in proportion to their
    shares. What a section leaves unused goes to the next one.
    """
    limit = compute_request_limit(window)
    firm = {layer: sum(part.tokens for part in demands.get(layer, ()) if part.required) for layer in PromptSection}
    rooms = _rooms(limit, firm)
    rows: list[SectionAllocation] = []
    left, flowing = limit, 0
    for layer in PromptSection:
        room = min(left, rooms[layer] + flowing)
        row = _row(layer, compute_section_tokens(layer, window), room, demands.get(layer, ()))
        left, flowing = left - row.allocated, room - row.allocated
        rows.append(row)
    return PromptAllocation(limit=limit, rows=tuple(rows))


def _rooms(limit: int, firm: Mapping[PromptSection, int]) -> Mapping[PromptSection, int]:
    """Return the space of each section before unused space is passed on."""
    over: set[PromptSection] = set()
    while True:
        rest = max(0, limit - sum(firm[layer] for layer in over))
        percent = sum(share for layer, share in SECTION_SHARES.items() if layer not in over)
        rooms = {
            layer: firm[layer] if layer in over else rest * share // percent for layer, share in SECTION_SHARES.items()
        }
        more = {layer for layer in SECTION_SHARES if layer not in over and firm[layer] > rooms[layer]}
        if not more:
            return rooms
        over |= more


def _row(layer: PromptSection, share: int, room: int, parts: Sequence[PromptCandidate]) -> SectionAllocation:
    """Allocate firm parts first, then the others, the last to give way first."""
    places = {part.name: place for place, part in enumerate(parts)}
    served = sorted(parts, key=lambda part: (not part.required, *SECTION_RULES[layer].order(places[part.name], part)))
    got: dict[str, int] = {}
    for part in served:
        left = room - sum(got.values())
        if part.tokens <= left:
            got[part.name] = part.tokens
        elif part.required or (part.divisible and left):
            got[part.name] = left
    return SectionAllocation(
        section=layer,
        share=share,
        requested=sum(part.tokens for part in parts),
        allocated=sum(got.values()),
        included=tuple(part.name for part in parts if part.name in got),
        omitted=tuple(part.name for part in reversed(served) if got.get(part.name) != part.tokens),
    )


MORE_BUDGET_NOTE = "when it is spent, the system asks a person for more"
"""Shown if a person will be asked for more budget: the agent then need not submit early."""
MAX_TOKENS, MAX_MICRO_USD = 999_999_999_999, 999_999_999_999
RECENT_RESULTS, MAX_SHOWN_FAILURES = 12, 3
"""Failures among this many newest results count as recent; at most `MAX_SHOWN_FAILURES` of them are shown."""
MAX_REASON_CHARACTERS = 160


class ToolFailure(Value):
    """A failed tool call."""

    tool: str
    reason: str
    """Beginning of its result."""


ROUNDING_STEPS = (80, 63, 50, 40, 32, 25, 20, 16, 13, 10)
"""First two digits of the amounts that a status names; each step is about four fifths of the previous one."""


def round_down_to_step(amount: int) -> int:
    """Return the largest amount that begins with one of `ROUNDING_STEPS` and is not above this one."""
    scale = 10 ** max(0, len(str(amount)) - 2)
    digits = amount // scale
    return next((step for step in ROUNDING_STEPS if step <= digits), digits) * scale


def round_limit_down(remaining: Limit) -> Limit:
    """Round the remaining limit down: the status stays valid, as a lower bound, until the next step is reached."""
    return Limit(
        tokens=None if remaining.tokens is None else round_down_to_step(remaining.tokens),
        micro_usd=None if remaining.micro_usd is None else round_down_to_step(remaining.micro_usd),
    )


def round_up_to_step(amount: int) -> int:
    """Return the smallest amount that begins with one of `ROUNDING_STEPS` and is not below this one.

    Amounts with a single digit stay.
    """
    if amount < ROUNDING_STEPS[-1]:
        return amount
    scale = 10 ** max(0, len(str(amount)) - 2)
    return next((step * scale for step in (*ROUNDING_STEPS[::-1], 100) if step * scale >= amount), amount)


class StatusMessage(Value):
    """Content of a status message.

    It stays in the conversation as it was sent, so a new one is written only if its text changes: amounts change in
    steps, not every turn.
    """

    step_id: str
    remaining: Limit
    """What the agent may spend, including what its task could lend it; see `round_limit_down`."""
    final: bool
    """Whether no one will be asked for more when that is spent."""
    submit_below: Amount = Amount()
    """With less than this left, the next call may not fit; see `round_up_to_step`. Zero before the first reply."""
    teammates: tuple[TeammateState, ...] = ()
    failures: tuple[ToolFailure, ...] = ()
    """Recent failures, newest first. They already appear in results, so they are no reason for a new status."""

    def text(self, window: int) -> str:
        """Return the text within the runtime share of this window.

        The last lines are left out first, the budget never.
        """
        parts = [self._head, *self._lines]
        above = {
            layer: [PromptCandidate(name="held", tokens=compute_section_tokens(layer, window))]
            for layer in (PromptSection.SYSTEM, PromptSection.TASK_BRIEF)
        }
        row = allocate_prompt(window, {**above, PromptSection.RUNTIME: parts}).get_row(PromptSection.RUNTIME)
        return _status("\n".join(part.name for part in parts if part.name in row.included))

    @property
    def shortest_text(self) -> str:
        """The budget line alone."""
        return _status(self._head.name)

    @property
    def with_widest_amounts(self) -> "StatusMessage":
        """The status with the widest possible amounts: if this fits, any amount fits."""
        most = Limit(
            tokens=None if self.remaining.tokens is None else MAX_TOKENS,
            micro_usd=None if self.remaining.micro_usd is None else MAX_MICRO_USD,
        )
        return self.replace(remaining=most, submit_below=most.amount)

    @property
    def _head(self) -> PromptCandidate:
        more = "" if self.final or self.remaining.is_unlimited else f" ({MORE_BUDGET_NOTE})"
        if self.final and not self.submit_below.is_zero:
            more = f"; submit before less than {format_amount(self.submit_below)} are left"
        said = f"budget left {format_limit(self.remaining)}{more}"
        return PromptCandidate(name=said, tokens=estimate_text(_status(said)), required=True)

    @property
    def _lines(self) -> Iterator[PromptCandidate]:
        """Optional lines, the most important first."""
        plan = [mate for mate in self.teammates if get_parent_id(mate.id) is None]
        siblings = [mate for mate in self.teammates if get_parent_id(mate.id) is not None and mate.id != self.step_id]
        failed = " | ".join(f"{failure.tool}: {failure.reason}" for failure in self.failures)
        tagged = {"plan": self._states(plan), "siblings": self._states(siblings), "failed": failed}
        for tag, said in tagged.items():
            if said:
                line = wrap_untrusted_line(tag, said)
                yield PromptCandidate(name=line, tokens=estimate_text(f"{line}\n"))

    def _states(self, team: Sequence[TeammateState]) -> str:
        return ", ".join(f"{mate.id} {'(you)' if mate.id == self.step_id else mate.state}" for mate in team)


def find_latest_status(messages: Iterable[Message]) -> str | None:
    """Return the last status message of a view, as it was sent."""
    return next((message.text for message in reversed([*messages]) if message.is_status), None)


def with_status(messages: tuple[Message, ...], message_id: str, status: str) -> tuple[Message, ...]:
    """Return the view, with a new status message appended unless the latest one says the same."""
    told = find_latest_status(messages)
    same = told is not None and _lines_of(told) == _lines_of(status)
    return messages if same else (*messages, build_status_message(message_id, status))


def _lines_of(status: str) -> list[str]:
    """Return the lines of a status without its failures."""
    inside = status.removeprefix(STATUS_OPEN).removesuffix(STATUS_CLOSE)
    return [line for line in inside.split("\n") if not line.startswith(_FAILED)]


def find_recent_failures(messages: Sequence[Message]) -> tuple[ToolFailure, ...]:
    """Return the recent tool failures, newest first, without duplicates."""
    names = {call.id: call.name for message in messages for call in message.tool_uses}
    results = [result for message in messages for result in message.tool_results][-RECENT_RESULTS:]
    failed = [
        ToolFailure(tool=names.get(result.tool_use_id, "a tool"), reason=_beginning(result.content))
        for result in reversed(results)
        if result.is_error
    ]
    return tuple(dict.fromkeys(failed))[:MAX_SHOWN_FAILURES]


def _beginning(text: str) -> str:
    """Return the beginning of a text in one line, without anything that looks like a tag."""
    return sanitize_line(" ".join(text.split()).translate(_NO_TAGS), MAX_REASON_CHARACTERS)


def _status(lines: str) -> str:
    """Wrap lines into a status. Each line is our own, or in a tag of its own."""
    return wrap_untrusted_line("status", SafeMarkup(lines))


_NO_TAGS = str.maketrans("<>", "()")
_FAILED = "<failed>"


CONTRACT_OPEN = "<task>"
_PROCEDURES = DelimitedPattern(r"<procedures? ", r"</procedures?>")
_MATERIAL = tuple(DelimitedPattern(rf"<{tag}\b", f"</{tag}>") for tag in ("findings", "analysis", "notes"))
_RETRIEVED = (DelimitedPattern(r"<documents\b", r"</documents>"), DelimitedPattern(r"<recalled\b", r"</recalled>"))


_QUESTION = DelimitedPattern(r"<question>", r"</question>")
_STEP = DelimitedPattern(r"<step\b", r"</step>")


def extract_question(transcript: Transcript) -> str:
    """Return the task's question from the agent's task brief; empty without a brief."""
    tagged = _extract_from_brief(transcript, _QUESTION)
    return tagged.removeprefix("<question>").removesuffix("</question>").strip()


def extract_assignment(transcript: Transcript) -> str:
    """Return the question and the step's goal from the agent's task brief, each in its tag; empty without a brief."""
    return _extract_from_brief(transcript, _QUESTION, _STEP)


def _extract_from_brief(transcript: Transcript, *patterns: DelimitedPattern) -> str:
    messages = get_effective_transcript(transcript).messages
    brief = next((one.text for one in messages if one.text.startswith(CONTRACT_OPEN)), "")
    return "\n".join(found for pattern in patterns for found in pattern.extract_delimited(brief)[0][:1])


def compute_prompt_demands(
    transcript: Transcript, measure: TokenEstimator, result_layers: Mapping[str, PromptSection]
) -> Mapping[PromptSection, Sequence[PromptCandidate]]:
    """Return the parts of the next request, as its provider would count them: system prompt, tools, conversation.

    All firm.

    Args:
        transcript: The conversation.
        measure: Token estimator.
        result_layers: Section of a tool's results by tool name; results of other tools are observations.
    """
    shown = build_model_view(transcript)
    hidden = {
        get_replacement(record).id
        for record in get_effective_transcript(transcript).compactions
        if not isinstance(record, MaskRecord)
    }
    calls = {call.id: call.name for message in shown for call in message.tool_uses}
    demands: dict[PromptSection, list[PromptCandidate]] = {
        PromptSection.SYSTEM: [_part("system and tools", measure.fixed_tokens, measure)]
    }
    for message in shown:
        for number, (layer, tokens) in enumerate(_layered(message, hidden, calls, result_layers)):
            demands.setdefault(layer, []).append(_part(f"{message.id}.{number}", tokens, measure))
    return demands


def _part(name: str, estimated: int, measure: TokenEstimator) -> PromptCandidate:
    return PromptCandidate(name=name, tokens=measure.scale_estimate(estimated), required=True)


def _layered(
    message: Message, hidden: set[str], calls: Mapping[str, str], result_layers: Mapping[str, PromptSection]
) -> Iterator[tuple[PromptSection, int]]:
    """Yield the message's parts with their plain estimates, which add up to the message's."""
    if message.id in hidden:
        yield PromptSection.EPISODIC, estimate_message(message)
        return
    if message.is_status:
        yield PromptSection.RUNTIME, estimate_message(message)
        return
    if message.role == "user" and message.text.startswith(CONTRACT_OPEN):
        yield from _split_task_brief(message)
        return
    yield PromptSection.SHORT_TERM, MESSAGE_TOKENS
    for block in message.blocks:
        alone = message.replace(blocks=(block,))
        yield _layer_of(block, calls, result_layers), estimate_message(alone) - MESSAGE_TOKENS


def _split_task_brief(message: Message) -> Iterator[tuple[PromptSection, int]]:
    text = message.text
    procedures, rest = _PROCEDURES.extract_delimited(text)
    parts: dict[PromptSection, list[str]] = {
        PromptSection.SEMANTIC: [],
        PromptSection.PROCEDURAL: procedures,
        PromptSection.RETRIEVED: [],
    }
    for layer, kinds in ((PromptSection.SEMANTIC, _MATERIAL), (PromptSection.RETRIEVED, _RETRIEVED)):
        for kind in kinds:
            found, rest = kind.extract_delimited(rest)
            parts[layer] += found
    apart = {layer: estimate_text("".join(texts)) for layer, texts in parts.items()}
    yield PromptSection.TASK_BRIEF, max(0, estimate_message(message) - sum(apart.values()))
    yield from ((layer, tokens) for layer, tokens in apart.items() if tokens)


def _layer_of(block: Block, calls: Mapping[str, str], result_layers: Mapping[str, PromptSection]) -> PromptSection:
    if block.type != "tool_result":
        return PromptSection.SHORT_TERM
    return result_layers.get(calls.get(block.tool_use_id, ""), PromptSection.OBSERVATIONS)
