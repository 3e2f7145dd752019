"""Fusion of what the searches of memory found: by places, and the same in each run."""

from dataclasses import dataclass
from itertools import permutations

import pytest

from waystation.memory.qdrant.points import RANK_CONSTANT, fuse_rankings


@dataclass(frozen=True)
class Hit:
    id: str
    score: float
    payload: None = None


def hits(**scores: float) -> list[Hit]:
    return [Hit(name, score) for name, score in scores.items()]


def test_the_best_of_every_side_has_all_of_the_score_and_later_ones_less_by_their_places() -> None:
    by_words, by_meaning = hits(a=9.0, b=5.0), hits(a=0.9, c=0.8, b=0.1)
    found = fuse_rankings([by_words, by_meaning], limit=10)
    second, third = RANK_CONSTANT / (RANK_CONSTANT + 1) / 2, RANK_CONSTANT / (RANK_CONSTANT + 2) / 2
    assert found == pytest.approx({"a": 1.0, "b": second + third, "c": second})
    assert [*found] == ["a", "b", "c"]


def test_a_single_search_counts_whole() -> None:
    assert fuse_rankings([hits(a=1.0)], limit=10) == {"a": 1.0}
    assert fuse_rankings([], limit=10) == {}


def test_equal_scores_share_a_place_in_whatever_order_they_come() -> None:
    orders = permutations(hits(a=5.0, b=3.0, c=3.0, d=3.0, e=1.0)[1:4])
    found = [fuse_rankings([[Hit("a", 5.0), *order, Hit("e", 1.0)]], limit=10) for order in orders]
    assert all([*one.items()] == [*found[0].items()] for one in found)
    assert found[0]["b"] == found[0]["d"] == pytest.approx(RANK_CONSTANT / (RANK_CONSTANT + 2))
    assert found[0]["e"] == pytest.approx(RANK_CONSTANT / (RANK_CONSTANT + 4))


def test_of_a_full_search_the_last_equal_ones_are_left_out_as_others_might_have_come() -> None:
    assert [*fuse_rankings([hits(a=5.0, b=3.0, c=3.0)], limit=3)] == ["a"]
    assert [*fuse_rankings([hits(a=5.0, b=3.0, c=3.0)], limit=4)] == ["a", "b", "c"]


def test_a_full_search_of_equal_ones_alone_still_finds_them() -> None:
    assert [*fuse_rankings([hits(b=3.0, a=3.0)], limit=2)] == ["a", "b"]
