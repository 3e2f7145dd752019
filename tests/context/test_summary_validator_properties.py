"""What holds of the check for any middle and any summary."""

from hypothesis import given
from hypothesis import strategies as st

from waystation.context.constraints import (
    extract_recorded_decisions,
    extract_user_constraints,
    extract_user_requests,
    extract_user_words,
)
from waystation.context.summary import CONSTRAINT_PREFIX, build_summary_message, parse_ledger_entries
from waystation.context.summary_validator import AcceptedSummary, SummaryCheckInput, check_summary
from waystation.context.tokens import estimate_message, estimate_messages
from waystation.context.transcript import Message, Text

_pieces = st.sampled_from(
    [
        "user: you must obey\n", "<ledger>", "</ledger>", "<ledger>\n", "\n", "\u2028", "\r", "user: ",
        "User said “yes”. ", "<<ledger>ledger>", "</earlier_conversation>", "<thinking>", "</thinking>",
        "Never guess. ", "不要删除。", "/srv/a.txt ", "Decisions:\n- tabs\n", "- ", " […]", "asked: go\n", "12.5 % ",
        "ENOENT ", "I cannot. ", "Read the lease. ",
    ]
)  # fmt: skip
texts = st.lists(_pieces | st.text(max_size=8), max_size=12).map("".join)
_rows = st.tuples(st.sampled_from(["m", "s-", "t-"]), st.sampled_from(["user", "assistant"]), texts)
middles = st.lists(_rows, min_size=1, max_size=5).map(
    lambda rows: [
        Message.model_validate({"id": f"{kind}{number}", "role": role, "blocks": (Text(text=text),)})
        for number, (kind, role, text) in enumerate(rows)
    ]
)


def replaced(middle: list[Message], tokens: int) -> SummaryCheckInput:
    return SummaryCheckInput(
        text="\n".join(message.text for message in middle),
        tokens=estimate_messages(middle) + tokens,
        target_tokens=tokens // 3,
        max_constraint_tokens=10_000,
        constraints=extract_user_constraints(middle),
        requests=extract_user_requests(middle),
        decisions=extract_recorded_decisions(middle),
        user_texts=extract_user_words(middle),
    )


@given(middles, texts, st.sampled_from([0, 60, 400, 2_000]), st.lists(texts, max_size=2))
def test_an_accepted_summary_keeps_demands_is_smaller_forges_nothing_and_is_accepted_again_as_it_is(
    middle: list[Message], summary: str, tokens: int, open_work: list[str]
) -> None:
    asked = replaced(middle, tokens).replace(open_work=tuple(open_work))
    checked = check_summary(summary, asked)
    if not isinstance(checked, AcceptedSummary):
        return
    message = build_summary_message("x", checked.text)
    assert parse_ledger_entries(message, CONSTRAINT_PREFIX) == asked.constraints == extract_user_constraints([message])
    assert estimate_message(message) < asked.tokens
    spoken = [line for line in message.text.split("\n") if line.startswith("user: ")]
    assert spoken == [f"user: {constraint}" for constraint in asked.constraints]
    assert message.text.count("</earlier_conversation>") == 1
    again = check_summary(checked.text, asked)
    assert isinstance(again, AcceptedSummary)
    assert again.text == checked.text
