import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.conversations import arbitrary_messages, make_call_message, make_result_message, make_text_message
from waystation.context.tokens import (
    TokenEstimator,
    compute_correction_factor,
    compute_request_upper_bound,
    estimate_fixed_tokens,
    estimate_message,
    estimate_request_tokens,
    estimate_text,
)
from waystation.context.transcript import Message, Thinking, build_user_message


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("The report was late again this year, said the board.", 14),
        ('{"id": 17, "path": "/srv/a", "ok": true}', 17),
        ("四月の報告書", 8),
        ("отчёт за апрель", 7),
        ("😀😀", 6),
        ("Zürich über Köln", 8),
    ],
)
def test_text_is_estimated_by_kind_of_content(text: str, tokens: int) -> None:
    assert estimate_text(text) == tokens


@given(st.text(), st.text())
def test_a_text_costs_what_its_pieces_cost_but_for_one_cut_and_rounding(text: str, more: str) -> None:
    together, apart = estimate_text(text + more), estimate_text(text) + estimate_text(more)
    assert bool(together) is bool(text + more)
    assert max(estimate_text(text), estimate_text(more), apart - 1) <= together <= apart + 2


def test_a_message_costs_five_tokens_beside_its_content() -> None:
    assert estimate_message(build_user_message("m1", "word " * 8)) == 5 + 10
    assert estimate_message(make_result_message("m2", a="word " * 8)) == 5 + 10


@given(arbitrary_messages(), arbitrary_messages())
def test_what_a_message_keeps_is_what_it_is_measured_to_be_and_a_copy_is_measured_anew(
    said: tuple[Message, ...], others: tuple[Message, ...]
) -> None:
    for one, other in zip(said, others, strict=False):
        fresh = Message.model_validate_json(one.model_dump_json())
        tokens, outline = estimate_message(one), one.outline
        assert (estimate_message(one), one.outline) == (tokens, outline) == (estimate_message(fresh), fresh.outline)
        changed = one.replace(blocks=other.blocks)
        assert estimate_message(changed) == estimate_message(other)
        assert changed.outline.calls == other.outline.calls
        # Nobody sees that anything is kept.
        assert (one, one.model_dump_json(), repr(one)) == (fresh, fresh.model_dump_json(), repr(fresh))


def test_omitted_reasoning_is_estimated_by_its_signature() -> None:
    sealed = Message(id="m1", role="assistant", blocks=(Thinking(thinking="", signature="x" * 600),))
    assert estimate_message(sealed) == 5 + 100


def test_a_request_includes_system_prompt_and_tools_and_is_corrected_as_a_whole() -> None:
    fixed = estimate_fixed_tokens("word " * 80, "")
    assert fixed == 100
    messages = (build_user_message("m1", "word " * 76),)
    assert estimate_request_tokens(fixed, messages) == 200
    assert estimate_request_tokens(fixed, messages, 1.25) == 250
    assert TokenEstimator(fixed_tokens=fixed, token_ratio=1.25).request(messages) == 250


@pytest.mark.parametrize(
    ("estimated", "real", "factor"),
    [(100, 120, 1.2), (100, 80, 0.8), (100, 900, 2.0), (100, 1, 0.5), (0, 50, 1.0), (50, 0, 1.0)],
)
def test_the_correction_is_bounded(estimated: int, real: int, factor: float) -> None:
    assert compute_correction_factor(estimated, real) == pytest.approx(factor)


def test_the_upper_bound_covers_what_a_tokeniser_makes_of_a_ligature() -> None:
    assert compute_request_upper_bound("\ufdfa" * 100, "", ()) >= 1_000 + 33 * 100


def test_the_upper_bound_grows_with_each_message_block_and_tool() -> None:
    for message, blocks in (
        (make_text_message("m1", "a"), 1),
        (make_call_message("m1", "a"), 1),
        (make_call_message("m1", "a", "b"), 2),
    ):
        bound = 1_000 + len(message.model_dump_json()) + 64 * (1 + blocks)
        assert compute_request_upper_bound("", "", (message,)) == bound
        assert compute_request_upper_bound("", "", (message, message)) == 2 * bound - 1_000
    tool = '{"name": "x", "input_schema": {}}'
    assert compute_request_upper_bound("", tool, ()) == 1_000 + len(tool) + 64


@pytest.mark.parametrize(
    ("text", "tokens"), [("iPhone", 3), ("aB" * 4, 6), ("a1" * 4, 8), ("AB12ab", 3), ("a B", 1), ("a.B", 2)]
)
def test_a_word_is_cut_where_it_goes_on_in_capitals_or_digits_and_nowhere_else(text: str, tokens: int) -> None:
    assert estimate_text(text) == tokens
