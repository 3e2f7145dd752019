import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.domain.allowance import reply_room, shortfall


@pytest.mark.parametrize(
    ("left", "bound", "room", "missing"),
    [
        (10_000, 2_000, 4_000, 0),
        (6_000, 2_000, 4_000, 0),
        (5_999, 2_000, 3_999, 0),
        (2_256, 2_000, 256, 0),
        (2_255, 2_000, None, 1),
        (0, 2_000, None, 2_256),
        (-500, 2_000, None, 2_756),
    ],
)
def test_a_reply_shrinks_to_what_is_left_and_not_under_its_floor(
    left: int, bound: int, room: int | None, missing: int
) -> None:
    assert reply_room(left, bound, max_output=4_000, floor=256) == room
    assert shortfall(left, bound, floor=256) == missing


@given(st.integers(-1_000, 100_000), st.integers(1, 50_000), st.integers(256, 8_000))
def test_what_is_missing_is_exactly_what_makes_a_call_possible(left: int, bound: int, max_output: int) -> None:
    room, missing = reply_room(left, bound, max_output, 256), shortfall(left, bound, 256)
    assert (room is None) == (missing > 0)
    if room is not None:
        assert bound + room <= left
    else:
        assert reply_room(left + missing, bound, max_output, 256) == 256
        assert reply_room(left + missing - 1, bound, max_output, 256) is None
