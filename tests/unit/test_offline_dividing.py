import pytest
from pydantic import JsonValue

from waystation.adapters.offline.dividing import LEAST_PART, MANY_DOCUMENTS, PARTS, PERCENT, dividing
from waystation.adapters.offline.view import view_of
from waystation.adapters.offline.wire import OFFLINE_MODEL, MessagesRequest
from waystation.domain.amount import Limit
from waystation.domain.reminder import Reminder

ENOUGH = LEAST_PART * 100 // PERCENT


def request(documents: int, left: Limit, *, final: bool) -> MessagesRequest:
    contract = f'<question>\nWhat?\n</question>\n<documents count="{documents}">\n- a.md (3 lines)\n</documents>'
    said: list[JsonValue] = [contract, Reminder(step_id="research-1", turn=1, left=left, final=final).least]
    return MessagesRequest.model_validate(
        {
            "model": OFFLINE_MODEL,
            "max_tokens": 4_000,
            "messages": [{"role": "user", "content": [{"type": "text", "text": text} for text in said]}],
            "tools": [{"name": "delegate", "input_schema": {}}],
        }
    )


@pytest.mark.parametrize("final", [True, False], ids=["nobody is asked", "a person is asked"])
def test_many_documents_are_divided_where_each_part_can_be_read(final: bool) -> None:
    def parts(documents: int, left: Limit) -> int:
        reply = dividing(view_of(request(documents, left, final=final)))
        return 0 if reply is None else len(reply.calls)

    assert parts(MANY_DOCUMENTS, Limit(tokens=ENOUGH)) == PARTS
    assert parts(MANY_DOCUMENTS, Limit(tokens=ENOUGH - 1)) == 0
    assert parts(MANY_DOCUMENTS - 1, Limit(tokens=ENOUGH)) == 0
    assert parts(MANY_DOCUMENTS, Limit()) == PARTS


def test_a_small_rest_is_no_reason_to_hurry_where_more_is_asked_for() -> None:
    asks, ends = (view_of(request(1, Limit(tokens=900), final=final)) for final in (False, True))
    assert (asks.budget_now, asks.must_hand_in) == (900, False)
    assert (ends.budget_now, ends.must_hand_in) == (900, True)
