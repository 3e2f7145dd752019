"""What of the passages that were found is shown to an agent that did not ask."""

from datetime import UTC, datetime

import pytest

from waystation.memory.passages import COSINE_SCALES, MIN_RELEVANCE, MemoryQuery, Passage, is_relevant

NAME = "wordllama-l2-supercat-256"
SCALE = COSINE_SCALES[NAME]
NOON = datetime(2026, 11, 21, tzinfo=UTC)


def passage(text: str, place: int = 0, created: datetime = NOON) -> Passage:
    return Passage(
        id=f"00000000-0000-5000-8000-{place:012}",
        tenant="t",
        session="s",
        task_id="task",
        run_id="task/step",
        step_id="step",
        first_message="m1",
        last_message="m2",
        text=text,
        content_hash=text,
        created=created,
        place=place,
    )


def query(text: str = "the harbour") -> MemoryQuery:
    return MemoryQuery(tenant="t", session="s", text=text, dense=(1.0, 0.0))


def vector(relevance: float) -> tuple[float, float]:
    """Of a passage that is so relevant."""
    cosine = SCALE.unrelated + relevance * (SCALE.related - SCALE.unrelated)
    return cosine, (1 - cosine**2) ** 0.5


@pytest.mark.parametrize(("relevance", "shown"), [(MIN_RELEVANCE - 0.01, False), (MIN_RELEVANCE + 0.01, True)])
def test_a_passage_is_judged_on_the_scale_of_its_embedder(relevance: float, *, shown: bool) -> None:
    assert is_relevant(NAME, query(), passage("silt"), vector(relevance)) is shown


def test_what_cannot_be_told_is_shown() -> None:
    assert is_relevant("another", query(), passage("silt"), vector(0))
    assert is_relevant(NAME, query(), passage("silt"), None)


def test_a_code_of_the_query_makes_a_passage_relevant_and_a_message_id_does_not() -> None:
    assert is_relevant(NAME, query("why E4711?"), passage("[m12 user] E4711 again"), vector(0))
    assert not is_relevant(NAME, query("see m12"), passage("[m12 user] again"), vector(0))


def test_relevance_is_from_0_to_1() -> None:
    assert [SCALE.relevance(cosine) for cosine in (-1, SCALE.unrelated, SCALE.related, 1)] == [0, 0, 1, 1]
