import shlex
from datetime import UTC, datetime, timedelta

from tests.unit.render_values import ASKING, PAUSED
from waystation.cli.answers import Typed, answered_before
from waystation.domain.amount import Amount
from waystation.domain.sent import Origin
from waystation.domain.task import Approval
from waystation.seen import TaskView

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def view(*approvals: Approval) -> TaskView:
    return TaskView(
        progress=PAUSED.progress.model_copy(update={"approvals": approvals}),
        origins={"r1": Origin(identities=("ada@laptop (waystation)",))},
    )


def answered(request_id: str, minutes: int) -> Approval:
    answer = {"decision": "approved", "granted": Amount(tokens=9_000), "by": "Ada", "note": "go on"}
    at = NOON + timedelta(minutes=minutes)
    return ASKING.model_copy(update={**answer, "request_id": request_id, "answered_at": at})


def test_a_command_is_given_again_as_it_was_typed_with_the_request_named() -> None:
    typed = Typed("approve", "0123", None, {"--add": "$0.50", "--note": "it's fine", "--by": None})
    again = typed.naming("task-0123456789abcdef", "research-1-1")
    assert again.startswith("waystation approve task-0123456789abcdef --request research-1-1 --add '$0.50' --note ")
    assert shlex.split(again)[-1] == "it's fine"


def test_who_comes_late_is_told_who_answered_when_and_what() -> None:
    assert answered_before(view(answered("r1", 3)), "r1") == (
        "research-1 asked for 30,000 tokens after 7 calls; 9,000 tokens approved by Ada (a name as given; sent from "
        "ada@laptop (waystation)): go on (2026-11-21 12:03 UTC)"
    )


def test_where_no_request_is_named_the_newest_answer_is_told() -> None:
    told = answered_before(view(answered("r2", 9), answered("r1", 3)), None)
    assert told.endswith(": go on (2026-11-21 12:09 UTC)")


def test_of_an_open_request_and_of_one_that_never_was_there_is_nothing_to_tell() -> None:
    assert answered_before(view(ASKING, answered("r2", 1)), "r1") == ""
    assert answered_before(view(), None) == ""
