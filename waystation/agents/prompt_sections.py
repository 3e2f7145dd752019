"""The layers of a request to the model: their order, their shares of the window, and what of each gives way first.

The allocator decides about what is put into a request on purpose; how a conversation is made smaller is decided by the
ladder (`context.pipeline`), so its parts are firm here: measured, never dropped.

The reminder: what an agent has left and how its task stands, as a status message that stays in the conversation.

Every part of an agent's request, in the layer that it belongs to.
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
"""Of the window: what an estimate may be wrong by is kept free."""


class PromptSection(StrEnum):
    """In the order of a request: what never changes first, so that the prompt cache holds."""

    SYSTEM = "system and policy"
    """System prompt and tools."""
    CONTRACT = "task contract"
    """Question, instructions, criteria, output form, deadline, the step and what it builds on."""
    RUNTIME = "runtime state"
    """The status messages in the conversation."""
    SHORT_TERM = "short-term memory"
    """What agent and user have said, and the agent's calls."""
    EPISODIC = "episodic memory"
    """Summaries and markers of what is hidden."""
    SEMANTIC = "semantic memory"
    """Notes and findings that were read."""
    PROCEDURAL = "procedural memory"
    """The user's procedures."""
    OBSERVATIONS = "observations"
    """Results of tools."""
    RETRIEVED = "retrieved evidence"
    """Recalled passages, and the names of documents."""
    WORK = "work buffer"
    """Room for the reply."""


SECTION_SHARES: Mapping[PromptSection, int] = {
    PromptSection.SYSTEM: 5,
    PromptSection.CONTRACT: 5,
    PromptSection.RUNTIME: 3,
    PromptSection.SHORT_TERM: 18,
    PromptSection.EPISODIC: 13,
    PromptSection.SEMANTIC: 9,
    PromptSection.PROCEDURAL: 7,
    PromptSection.OBSERVATIONS: 22,
    PromptSection.RETRIEVED: 9,
    PromptSection.WORK: 9,
}
"""Percent of the limit."""


class PromptPart(Value):
    """Something that wants to be in a request. Within a layer parts stand in the order in which they are shown."""

    name: str
    tokens: int
    firm: bool = False
    """It cannot be left out."""
    divisible: bool = False
    """Some of it is of use, too."""
    relevance: float = 0.0
    """From 0 to 1."""
    repeatable: bool = False
    """It can be had again by asking for it."""


class _Rule(NamedTuple):
    """What of a layer gives way first."""

    words: str
    order: Callable[[int, PromptPart], tuple[float, ...]]
    """Parts by what this says of their place and of them: the greatest gives way first."""


def _by_place(place: int, _: PromptPart) -> tuple[float, ...]:
    return (place,)


def _by_age(place: int, _: PromptPart) -> tuple[float, ...]:
    return (-place,)


def _by_relevance(place: int, part: PromptPart) -> tuple[float, ...]:
    return (-part.relevance, place)


def _by_repetition(place: int, part: PromptPart) -> tuple[float, ...]:
    return (part.repeatable, -place)


SECTION_RULES: Mapping[PromptSection, _Rule] = {
    PromptSection.SYSTEM: _Rule("the last named", _by_place),
    PromptSection.CONTRACT: _Rule("the last named", _by_place),
    PromptSection.RUNTIME: _Rule("the last named", _by_place),
    PromptSection.SHORT_TERM: _Rule("the oldest", _by_age),
    PromptSection.EPISODIC: _Rule("the oldest", _by_age),
    PromptSection.SEMANTIC: _Rule("what can be read again, the oldest first", _by_repetition),
    PromptSection.PROCEDURAL: _Rule("the least relevant", _by_relevance),
    PromptSection.OBSERVATIONS: _Rule("what can be read again, the oldest first", _by_repetition),
    PromptSection.RETRIEVED: _Rule("the least relevant", _by_relevance),
    PromptSection.WORK: _Rule("the last named", _by_place),
}

PromptDemands = Mapping[PromptSection, Sequence[PromptPart]]
"""What wants to be in a request, by layer; a layer that is not there wants nothing."""


class SectionAllocation(Value):
    """What one layer asked for, and what it got. All in tokens."""

    layer: PromptSection
    share: int
    asked: int
    got: int
    kept: tuple[str, ...] = ()
    """The parts that are in, in their order; divisible ones also where they are not whole."""
    gave_way: tuple[str, ...] = ()
    """The parts that are not, or not whole: the first to give way first."""


class PromptAllocation(Value):
    """Who gets what of a request. Rows stand in the order of the layers, one for each."""

    limit: int
    rows: tuple[SectionAllocation, ...]

    @property
    def allocated_tokens(self) -> int:
        """Tokens of all layers: never over the limit."""
        return sum(row.got for row in self.rows)

    def get_row(self, layer: PromptSection) -> SectionAllocation:
        """Of this layer."""
        return next(row for row in self.rows if row.layer is layer)


def compute_request_limit(window: int) -> int:
    """What a request may have, in tokens."""
    return window * LIMIT_PERCENT // 100


def compute_section_tokens(layer: PromptSection, window: int) -> int:
    """A layer's share of a window, in tokens."""
    return compute_request_limit(window) * SECTION_SHARES[layer] // 100


def allocate_prompt(window: int, demands: PromptDemands) -> PromptAllocation:
    """Share a window out. The same demands always get the same.

    A layer whose firm parts are over its share takes what they need, and the others share the rest as their shares are
    to each other. What a layer leaves of its room flows down to the next one.
    """
    limit = compute_request_limit(window)
    firm = {layer: sum(part.tokens for part in demands.get(layer, ()) if part.firm) for layer in PromptSection}
    rooms = _rooms(limit, firm)
    rows: list[SectionAllocation] = []
    left, flowing = limit, 0
    for layer in PromptSection:
        room = min(left, rooms[layer] + flowing)
        row = _row(layer, compute_section_tokens(layer, window), room, demands.get(layer, ()))
        left, flowing = left - row.got, room - row.got
        rows.append(row)
    return PromptAllocation(limit=limit, rows=tuple(rows))


def _rooms(limit: int, firm: Mapping[PromptSection, int]) -> Mapping[PromptSection, int]:
    """What each layer may have before anything flows down."""
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


def _row(layer: PromptSection, share: int, room: int, parts: Sequence[PromptPart]) -> SectionAllocation:
    """Firm parts first, then the others: what gives way last is served first."""
    places = {part.name: place for place, part in enumerate(parts)}
    served = sorted(parts, key=lambda part: (not part.firm, *SECTION_RULES[layer].order(places[part.name], part)))
    got: dict[str, int] = {}
    for part in served:
        left = room - sum(got.values())
        if part.tokens <= left:
            got[part.name] = part.tokens
        elif part.firm or (part.divisible and left):
            got[part.name] = left
    return SectionAllocation(
        layer=layer,
        share=share,
        asked=sum(part.tokens for part in parts),
        got=sum(got.values()),
        kept=tuple(part.name for part in parts if part.name in got),
        gave_way=tuple(part.name for part in reversed(served) if got.get(part.name) != part.tokens),
    )


MORE_IS_ASKED_FOR = "more is asked for when it is spent"
"""Said where that is so: the agent then need not hand in early."""
MOST_TOKENS, MOST_MICRO_USD = 999_999_999_999, 999_999_999_999
RECENT_RESULTS, SHOWN_FAILURES = 12, 3
"""Failures among so many results at the end of the conversation are recent; so many of them are shown."""
WHY_CHARACTERS = 160


class ToolFailure(Value):
    """A call that failed."""

    tool: str
    why: str
    """The beginning of its result."""


ROUNDING_STEPS = (80, 63, 50, 40, 32, 25, 20, 16, 13, 10)
"""Two digits of the amounts that a status names, each some four fifths of the one before it."""


def round_down_to_step(amount: int) -> int:
    """The largest step that is no more than the amount."""
    scale = 10 ** max(0, len(str(amount)) - 2)
    digits = amount // scale
    return next((step for step in ROUNDING_STEPS if step <= digits), digits) * scale


def round_limit_down(left: Limit) -> Limit:
    """What is left in steps: a status that names it holds, as a lower bound, until the next step is reached."""
    return Limit(
        tokens=None if left.tokens is None else round_down_to_step(left.tokens),
        micro_usd=None if left.micro_usd is None else round_down_to_step(left.micro_usd),
    )


def round_up_to_step(amount: int) -> int:
    """The smallest step that is no less than the amount."""
    if amount < ROUNDING_STEPS[-1]:
        return amount
    scale = 10 ** max(0, len(str(amount)) - 2)
    return next((step * scale for step in (*ROUNDING_STEPS[::-1], 100) if step * scale >= amount), amount)


class StatusMessage(Value):
    """What a status message says.

    It stays in the conversation as it was sent, so a new one is written only where its text would be another one: what
    it says changes in steps and not at every turn.
    """

    step_id: str
    left: Limit
    """What the agent may spend, with what its task could lend it: see `round_limit_down`."""
    final: bool
    """Nobody will be asked for more when that is spent."""
    submit_below: Amount = Amount()
    """See `round_up_to_step`: with less than this left the next call may not fit. Nothing before the first reply."""
    team: tuple[TeammateState, ...] = ()
    failures: tuple[ToolFailure, ...] = ()
    """The newest first. They ride along: each stands in a result already, so they are no reason for a new status."""

    def text(self, window: int) -> str:
        """Within the runtime share of this window: the last named lines are left out first, the budget never."""
        parts = [self._head, *self._lines]
        above = {
            layer: [PromptPart(name="held", tokens=compute_section_tokens(layer, window))]
            for layer in (PromptSection.SYSTEM, PromptSection.CONTRACT)
        }
        row = allocate_prompt(window, {**above, PromptSection.RUNTIME: parts}).get_row(PromptSection.RUNTIME)
        return _status("\n".join(part.name for part in parts if part.name in row.kept))

    @property
    def shortest_text(self) -> str:
        """The budget alone."""
        return _status(self._head.name)

    @property
    def with_widest_amounts(self) -> "StatusMessage":
        """With as much left as has room on the line: what fits with this fits whatever is left."""
        most = Limit(
            tokens=None if self.left.tokens is None else MOST_TOKENS,
            micro_usd=None if self.left.micro_usd is None else MOST_MICRO_USD,
        )
        return self.replace(left=most, submit_below=most.amount)

    @property
    def _head(self) -> PromptPart:
        more = "" if self.final or self.left.is_unlimited else f" ({MORE_IS_ASKED_FOR})"
        if self.final and not self.submit_below.is_zero:
            more = f"; submit before less than {format_amount(self.submit_below)} are left"
        said = f"budget left {format_limit(self.left)}{more}"
        return PromptPart(name=said, tokens=estimate_text(_status(said)), firm=True)

    @property
    def _lines(self) -> Iterator[PromptPart]:
        """The most important first."""
        plan = [mate for mate in self.team if get_parent_id(mate.id) is None]
        siblings = [mate for mate in self.team if get_parent_id(mate.id) is not None and mate.id != self.step_id]
        failed = " | ".join(f"{failure.tool}: {failure.why}" for failure in self.failures)
        tagged = {"plan": self._states(plan), "siblings": self._states(siblings), "failed": failed}
        for tag, said in tagged.items():
            if said:
                line = wrap_untrusted_line(tag, said)
                yield PromptPart(name=line, tokens=estimate_text(f"{line}\n"))

    def _states(self, team: Sequence[TeammateState]) -> str:
        return ", ".join(f"{mate.id} {'(you)' if mate.id == self.step_id else mate.state}" for mate in team)


def find_latest_status(shown: Iterable[Message]) -> str | None:
    """The last status message of a view, as it was sent."""
    return next((message.text for message in reversed([*shown]) if message.is_status), None)


def with_status(shown: tuple[Message, ...], message_id: str, status: str) -> tuple[Message, ...]:
    """The view, and after it a message of this id with the status, where the newest one says anything else."""
    told = find_latest_status(shown)
    same = told is not None and _lines_of(told) == _lines_of(status)
    return shown if same else (*shown, build_status_message(message_id, status))


def _lines_of(status: str) -> list[str]:
    """Without its failures."""
    inside = status.removeprefix(STATUS_OPEN).removesuffix(STATUS_CLOSE)
    return [line for line in inside.split("\n") if not line.startswith(_FAILED)]


def find_recent_failures(messages: Sequence[Message]) -> tuple[ToolFailure, ...]:
    """Of the tools, the newest first, each message once."""
    names = {call.id: call.name for message in messages for call in message.tool_uses}
    results = [result for message in messages for result in message.tool_results][-RECENT_RESULTS:]
    failed = [
        ToolFailure(tool=names.get(result.tool_use_id, "a tool"), why=_beginning(result.content))
        for result in reversed(results)
        if result.is_error
    ]
    return tuple(dict.fromkeys(failed))[:SHOWN_FAILURES]


def _beginning(text: str) -> str:
    """In one line, and nothing that looks like a tag."""
    return sanitize_line(" ".join(text.split()).translate(_NO_TAGS), WHY_CHARACTERS)


def _status(lines: str) -> str:
    """Each line is our own, or in a tag of its own."""
    return wrap_untrusted_line("status", SafeMarkup(lines))


_NO_TAGS = str.maketrans("<>", "()")
_FAILED = "<failed>"


CONTRACT_OPEN = "<task>"
_PROCEDURES = DelimitedPattern(r"<procedures? ", r"</procedures?>")
_RETRIEVED = (DelimitedPattern(r"<documents\b", r"</documents>"), DelimitedPattern(r"<recalled\b", r"</recalled>"))


_ASKED = (DelimitedPattern(r"<question>", r"</question>"), DelimitedPattern(r"<step\b", r"</step>"))


def extract_question(transcript: Transcript) -> str:
    """The question and the step's goal, each in its tag, as the contract of an agent has them; empty without one."""
    contract = next(
        (one.text for one in get_effective_transcript(transcript).messages if one.text.startswith(CONTRACT_OPEN)), ""
    )
    return "\n".join(found for kind in _ASKED for found in kind.extract_delimited(contract)[0][:1])


def compute_prompt_demands(
    transcript: Transcript, measure: TokenEstimator, result_layers: Mapping[str, PromptSection]
) -> Mapping[PromptSection, Sequence[PromptPart]]:
    """What the next request has of system prompt, tools and conversation, as its provider would count it. All firm.

    `result_layers`: by name of the tool, the layer of its results; those of other tools are observations.
    """
    shown = build_model_view(transcript)
    hidden = {
        get_replacement(record).id
        for record in get_effective_transcript(transcript).compactions
        if not isinstance(record, MaskRecord)
    }
    calls = {call.id: call.name for message in shown for call in message.tool_uses}
    demands: dict[PromptSection, list[PromptPart]] = {
        PromptSection.SYSTEM: [_part("system and tools", measure.fixed, measure)]
    }
    for message in shown:
        for number, (layer, tokens) in enumerate(_layered(message, hidden, calls, result_layers)):
            demands.setdefault(layer, []).append(_part(f"{message.id}.{number}", tokens, measure))
    return demands


def _part(name: str, estimated: int, measure: TokenEstimator) -> PromptPart:
    return PromptPart(name=name, tokens=measure.scale_estimate(estimated), firm=True)


def _layered(
    message: Message, hidden: set[str], calls: Mapping[str, str], result_layers: Mapping[str, PromptSection]
) -> Iterator[tuple[PromptSection, int]]:
    """The message's parts with their plain estimates, which together are that of the message."""
    if message.id in hidden:
        yield PromptSection.EPISODIC, estimate_message(message)
        return
    if message.is_status:
        yield PromptSection.RUNTIME, estimate_message(message)
        return
    if message.role == "user" and message.text.startswith(CONTRACT_OPEN):
        yield from _of_contract(message)
        return
    yield PromptSection.SHORT_TERM, MESSAGE_TOKENS
    for block in message.blocks:
        alone = message.replace(blocks=(block,))
        yield _layer_of(block, calls, result_layers), estimate_message(alone) - MESSAGE_TOKENS


def _of_contract(message: Message) -> Iterator[tuple[PromptSection, int]]:
    text = message.text
    procedures, rest = _PROCEDURES.extract_delimited(text)
    retrieved: list[str] = []
    for kind in _RETRIEVED:
        found, rest = kind.extract_delimited(rest)
        retrieved += found
    apart = {
        PromptSection.PROCEDURAL: estimate_text("".join(procedures)),
        PromptSection.RETRIEVED: estimate_text("".join(retrieved)),
    }
    yield PromptSection.CONTRACT, max(0, estimate_message(message) - sum(apart.values()))
    yield from ((layer, tokens) for layer, tokens in apart.items() if tokens)


def _layer_of(block: Block, calls: Mapping[str, str], result_layers: Mapping[str, PromptSection]) -> PromptSection:
    if block.type != "tool_result":
        return PromptSection.SHORT_TERM
    return result_layers.get(calls.get(block.tool_use_id, ""), PromptSection.OBSERVATIONS)
