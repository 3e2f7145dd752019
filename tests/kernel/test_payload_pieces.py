"""A state in pieces: each fits into a payload, and together they are what was split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from waystation.kernel.json_chunks import JsonChunk, join_json, split_json

MOST = 600
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=900)
BODIES: st.SearchStrategy[JsonValue] = st.recursive(
    SCALARS,
    lambda inside: st.lists(inside, max_size=12) | st.dictionaries(st.text(max_size=12), inside, max_size=12),
    max_leaves=60,
)


@given(BODIES)
def test_pieces_together_are_the_value_that_was_split(body: JsonValue) -> None:
    pieces = split_json(body, MOST)
    written = [piece.model_dump_json(exclude_none=False) for piece in pieces]
    assert join_json(map(JsonChunk.model_validate_json, written)) == body


@given(st.lists(st.text(max_size=5_000), max_size=10))
def test_each_piece_fits_however_long_the_texts_are(body: list[str]) -> None:
    assert max(len(piece.model_dump_json()) for piece in split_json([*body], MOST)) < 4 * MOST


def test_a_missing_piece_is_an_error_and_no_smaller_value() -> None:
    pieces = split_json([["a" * 500], ["b" * 500], ["c" * 500]], MOST)
    assert len(pieces) > 2
    with pytest.raises(ValueError, match="missing"):
        join_json((pieces[0], *pieces[2:]))
    with pytest.raises(ValueError, match="no pieces"):
        join_json(())


def test_pieces_can_be_joined_twice() -> None:
    pieces = split_json({"runs": {name: name * 400 for name in "abc"}}, MOST)
    assert join_json(pieces) == join_json(pieces)
