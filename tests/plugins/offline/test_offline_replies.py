import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from waystation.models.anthropic.received_requests import MessagesApiError, MessagesRequest
from waystation.models.profiles import OFFLINE_MODEL
from waystation.plugins.offline.responses import OfflineResponse, build_call, fit_to_max_tokens
from waystation.plugins.offline.transport import build_offline_response

FINDINGS: list[JsonValue] = [
    {"claim": f"claim {number}", "citations": [f"[a:{number}-{number}]"]} for number in range(9)
]
FULL = OfflineResponse(
    text="I hand in.", calls=(build_call("submit_findings", findings=FINDINGS, open_questions=["none"]),)
)


@given(st.integers(1, 400))
def test_no_reply_is_longer_than_its_maximum_and_no_call_is_cut(most: int) -> None:
    reply = fit_to_max_tokens(FULL, most)
    assert reply.tokens <= most
    for made in reply.calls:
        findings = made.input["findings"]
        assert isinstance(findings, list)
        assert findings == FINDINGS[: len(findings)]
    assert reply.calls or reply.stop_reason == "max_tokens"


def test_of_several_calls_the_last_go_first() -> None:
    notes = OfflineResponse(calls=tuple(build_call("take_note", text=f"note {number}") for number in range(5)))
    assert fit_to_max_tokens(notes, notes.tokens // 2).calls == notes.calls[:2]


def test_a_section_loses_its_last_lines() -> None:
    section = OfflineResponse(
        calls=(build_call("write_section", heading="Rent", markdown="- one line\n- another line\n- a third line"),)
    )
    (kept,) = fit_to_max_tokens(section, section.tokens - 1).calls
    assert kept.input == {"heading": "Rent", "markdown": "- one line\n- another line"}


def test_a_tool_that_this_model_does_not_know_cannot_be_forced() -> None:
    request = MessagesRequest.model_validate(
        {
            "model": OFFLINE_MODEL,
            "max_tokens": 10,
            "messages": [{"role": "user", "content": "x"}],
            "tools": [{"name": "look", "input_schema": {}}],
            "tool_choice": {"type": "tool", "name": "look"},
        }
    )
    with pytest.raises(MessagesApiError, match="cannot be made to call 'look'"):
        build_offline_response(request)
