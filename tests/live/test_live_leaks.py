"""A whole task over private values, with a model that passes everything on: what is left of them, and where."""

from pathlib import Path

import pytest

from benchmarks.privacy.leaks import MODEL_SEES, ObservedText, PlantedValues, build_planted_values, run_planted_task
from benchmarks.privacy.structured import QUERIES
from waystation.agents.tools.tables import is_table
from waystation.privacy.policy import RedactionPolicy

PLANTED = build_planted_values(60, seed=3, every=5)
assert len(set(PLANTED.values_by_type.values())) >= 15
assert len(set(PLANTED.structure_values.values())) >= 6
PLACES = {
    "Qdrant's payloads",
    "heartbeats and failures",
    "logs",
    "reports",
    "requests to the model",
    "search attributes",
    "summaries",
    "transcripts",
    "webhooks",
    "workflow history",
}
AUTHOR = "Ada Lovelace"
"""Whom one document is named after."""
MISSED = 0.25
"""Share of names that the language model may overlook in a place."""


def names_in(seen: ObservedText, place: str, planted: PlantedValues = PLANTED) -> float:
    return seen.count_leaks(place, planted.names).total() / len(planted.names)


@pytest.mark.parametrize(
    ("policy", "encrypted"),
    [(RedactionPolicy.STANDARD, True), (RedactionPolicy.STRICT, False)],
    ids=["standard", "strict, plain"],
)
async def test_no_secret_and_no_identifier_comes_through_anywhere(
    policy: RedactionPolicy, encrypted: bool, tmp_path: Path
) -> None:
    seen = await run_planted_task(PLANTED, tmp_path, encrypted=encrypted, policy=policy)
    assert {place: seen.count_leaks(place, PLANTED.values_by_type) for place in seen.texts} == {
        place: {} for place in PLACES
    }
    assert [place for place in PLACES if seen.count_leaks_through_sql(place, PLANTED.structure_values)] == []
    transcripts = "".join(seen.texts["transcripts"])
    # Each structure was shown with numbers before its lines, and each table was queried in every way.
    structures = PLANTED.documents[-len(PLANTED.structures) :]
    assert [one.name for one in structures if f"[{one.name}:1-{len(one.text.splitlines())}]" not in transcripts] == []
    tables = [one.name for one in structures if is_table(one.name)]
    assert len(tables) >= 2
    assert [name for name in tables if transcripts.count(f"t is [{name}:") < len(QUERIES)] == []
    assert seen.progress is not None
    assert seen.progress.privacy is policy
    assert any(made.status.made_room and made.passages for made in seen.progress.compactions)
    assert all(any(seen.texts[place]) for place in PLACES)
    assert any("Starting activity" in line for line in seen.texts["logs"])
    # Names are another matter; and where they stay, the search above would have found what else stays.
    assert [place for place in PLACES - MODEL_SEES if names_in(seen, place) > MISSED] == []
    assert [place for place in PLACES - MODEL_SEES if any(AUTHOR in text for text in seen.texts[place])] == []
    assert (names_in(seen, "transcripts") > 1 - MISSED) is (policy is RedactionPolicy.STANDARD)
    failed = "ValueError: its message is not shown, because it may quote text"
    assert any(failed in text for text in seen.texts["heartbeats and failures"])
