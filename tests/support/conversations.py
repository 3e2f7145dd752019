"""Conversations for tests: small builders, and hypothesis strategies for regular and for arbitrary histories."""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from waystation.context.policy import CompactionPolicy
from waystation.context.transcript import (
    Block,
    Message,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Transcript,
    build_user_message,
)

READ = "read_document"
REREADABLE = frozenset({READ})


def make_transcript(*messages: Message) -> Transcript:
    return Transcript(run_id="task-1/step-1", version=len(messages), messages=messages)


def make_call_message(message_id: str, *call_ids: str, tool: str = READ, thinking: str = "") -> Message:
    """Make an assistant message with these calls."""
    uses = tuple(ToolUse(id=call_id, name=tool, input={"name": f"{call_id}.md"}) for call_id in call_ids)
    thought = (Thinking(thinking=thinking, signature="c2lnbmVk"),) if thinking else ()
    return Message(id=message_id, role="assistant", blocks=(*thought, *uses))


def make_result_message(message_id: str, /, *also: Block, **contents: str) -> Message:
    """Make a user message with these results, followed by other blocks."""
    given = tuple(ToolResult(tool_use_id=call_id, content=content) for call_id, content in contents.items())
    return Message(id=message_id, role="user", blocks=(*given, *also))


def make_text_message(message_id: str, text: str) -> Message:
    """Make an assistant message of one text."""
    return Message(id=message_id, role="assistant", blocks=(Text(text=text),))


def make_filler_text(tokens: int) -> str:
    """Make a text of about this many tokens."""
    return "word " * (tokens * 4 // 5)


def make_research_turns(turns: int, result_tokens: int = 1_500, *, tool: str = READ, start: int = 1) -> list[Message]:
    """Make turns of one call each, as an agent makes them: ids m2, m3 … and c1, c2 …"""
    messages: list[Message] = []
    for turn in range(start, start + turns):
        messages.append(make_call_message(f"m{2 * turn}", f"c{turn}", tool=tool))
        messages.append(
            make_result_message(f"m{2 * turn + 1}", **{f"c{turn}": f"{turn} {make_filler_text(result_tokens)}"})
        )
    return messages


def make_research_transcript(turns: int, result_tokens: int = 1_500, *, tool: str = READ) -> Transcript:
    """Make a transcript of a task brief and this many turns."""
    return make_transcript(
        build_user_message("m1", "Find out what changed."), *make_research_turns(turns, result_tokens, tool=tool)
    )


def make_small_policy(window: int = 20_000) -> CompactionPolicy:
    """Make a policy with a window that tests fill quickly."""
    return CompactionPolicy(window=window, trigger=window * 3 // 4, target=window * 3 // 8)


# ------------------------------------------------------------------------------------------------------- strategies

_texts = st.sampled_from(
    [
        "",
        " \n",
        "go on",
        "Never delete a file.",
        make_filler_text(40),
        make_filler_text(400),
        "四月の報告書",
        '{"a": [1, 2]}',
    ]
)
_call_ids = st.sampled_from([f"c{number}" for number in range(8)])
_sizes = st.sampled_from([5, 60, 400, 1_100, 2_500])


def _block() -> SearchStrategy[Block]:
    return st.one_of(
        st.builds(Text, text=_texts),
        st.builds(Thinking, thinking=_texts, signature=st.just("c2lnbmVk")),
        st.builds(RedactedThinking, data=st.just("c2VhbGVk")),
        st.builds(ToolUse, id=_call_ids, name=st.sampled_from([READ, "take_note"]), input=st.just({})),
        st.builds(ToolResult, tool_use_id=_call_ids, content=_texts),
    )


def arbitrary_messages() -> SearchStrategy[tuple[Message, ...]]:
    """Anything at all: orphans, repeated ids, blocks in the wrong role, no task brief."""
    rows = st.tuples(st.sampled_from(["user", "assistant"]), st.lists(_block(), max_size=4))
    return st.lists(rows, max_size=14).map(
        lambda drawn: tuple(
            Message.model_validate({"id": f"m{number}", "role": role, "blocks": blocks})
            for number, (role, blocks) in enumerate(drawn, 1)
        )
    )


@st.composite
def further_messages(draw: st.DrawFn, first: int, most: int = 6) -> tuple[Message, ...]:
    """Possible continuations of an agent run: turns of parallel calls, user remarks, replies without a call."""
    messages: list[Message] = []
    for _ in range(draw(st.integers(0, most))):
        number = first + len(messages)
        kind = draw(st.sampled_from(["turn", "turn", "turn", "remark", "reply"]))
        if kind == "remark":
            messages.append(
                build_user_message(
                    f"m{number}", draw(st.sampled_from(["Hurry.", "Do not touch main.", make_filler_text(300)]))
                )
            )
        elif kind == "reply":
            messages.append(make_text_message(f"m{number}", make_filler_text(draw(_sizes))))
        else:
            messages += draw(_turn(number))
    return tuple(messages)


@st.composite
def _turn(draw: st.DrawFn, number: int) -> Sequence[Message]:
    ids = [f"c{number}-{place}" for place in range(draw(st.integers(1, 3)))]
    tool = draw(st.sampled_from([READ, READ, "take_note"]))
    asked = make_call_message(f"m{number}", *ids, tool=tool, thinking=draw(st.sampled_from(["", "Look it up."])))
    remark = (Text(text="Also look at the appendix."),) if draw(st.integers(0, 9)) == 0 else ()
    return asked, make_result_message(
        f"m{number + 1}", *remark, **{call_id: make_filler_text(draw(_sizes)) for call_id in ids}
    )
