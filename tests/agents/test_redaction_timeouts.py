"""A text that cannot be redacted, with Presidio and a recogniser whose pattern takes for ever on it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from waystation.agents.redaction import PAID_DESTINATIONS, REQUIRED_DESTINATIONS, RedactionRetryPolicy, TextRedactor
from waystation.kernel.errors import (
    RedactionAbandonedError,
    RedactionBlockedError,
    RedactionFailed,
    TextRedactionError,
)
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.plugins.redaction.rules import DetectionConfig, load_custom_rules
from waystation.privacy.policy import (
    PLACEHOLDER_PATTERN,
    RedactionFailureMode,
    RedactionLevel,
    RedactionPolicy,
    TextDestination,
    build_redaction_notes,
    get_redaction_level,
)
from waystation.security.placeholders import compute_fingerprint
from waystation.testing.doubles import InMemorySlowTextStore, PlainRedactor

KEY = b"k" * 32
SLOW = r"recognizers: [{name: slow, supported_entity: SLOW, patterns: [{regex: '(?=x)(x+x+)+y', score: 1}]}]"
ENDLESS = "x" * 1_500
FINE = "Write to alice@example.com."
REDACTED = {
    place
    for place in TextDestination
    if get_redaction_level(place, RedactionPolicy.STANDARD) not in {RedactionLevel.ORIGINAL, RedactionLevel.NO_TEXT}
}


@dataclass
class Work:
    """What is in hand, and how often it was begun."""

    attempt: int = 1
    pauses: list[float] = field(default_factory=list[float])

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.fixture
async def presidio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PresidioRedactor]:
    monkeypatch.setattr("waystation.plugins.redaction.rules.SECONDS_PER_CHUNK", 0.02)
    (tmp_path / "rules.yaml").write_text(SLOW)
    redactor = PresidioRedactor(KEY, DetectionConfig(custom=load_custom_rules(tmp_path / "rules.yaml")))
    yield redactor
    redactor.close()


def enduring(
    redactor: PresidioRedactor | PlainRedactor, work: Work, then: RedactionFailureMode = "placeholder"
) -> TextRedactor:
    of_text = partial(compute_fingerprint, KEY)
    endurance = RedactionRetryPolicy(of_text, InMemorySlowTextStore(), lambda: work.attempt, 3, then, work.pause)
    return TextRedactor(redactor, retry_policy=endurance)


@pytest.mark.parametrize("destination", sorted(REDACTED - PAID_DESTINATIONS))
async def test_until_the_last_attempt_nothing_goes_on(presidio: PresidioRedactor, destination: TextDestination) -> None:
    with pytest.raises(TextRedactionError, match="your own recogniser 'slow' took more than"):
        await enduring(presidio, Work(attempt=2)).redact([FINE, ENDLESS], destination, "t")


@pytest.mark.parametrize("destination", sorted(REDACTED - PAID_DESTINATIONS - REQUIRED_DESTINATIONS))
@pytest.mark.parametrize("attempt", [3, 4])
async def test_then_a_placeholder_stands_for_that_text_and_the_others_are_redacted(
    presidio: PresidioRedactor, destination: TextDestination, attempt: int
) -> None:
    fine, endless = await enduring(presidio, Work(attempt)).redact([FINE, ENDLESS], destination, "t")
    assert fine.text.startswith("Write to <EMAIL_")
    assert PLACEHOLDER_PATTERN.fullmatch(endless.text)
    assert endless.text.startswith("<UNREDACTED_TEXT_")
    assert build_redaction_notes(fine) == ()
    assert build_redaction_notes(endless, fine) == (
        "Text that could not be redacted was left out and replaced by a placeholder.",
    )
    (again,) = await presidio.redact([endless.text], destination, "t")
    assert again.text == endless.text


@pytest.mark.parametrize("destination", sorted(REQUIRED_DESTINATIONS))
async def test_without_what_it_is_to_do_no_agent_begins(
    presidio: PresidioRedactor, destination: TextDestination
) -> None:
    with pytest.raises(RedactionAbandonedError, match=r"^after 3 attempts .* your own recogniser 'slow' took more"):
        await enduring(presidio, Work(3)).redact([ENDLESS], destination, "t")


@pytest.mark.parametrize("destination", sorted(REDACTED - PAID_DESTINATIONS))
async def test_by_setting_a_person_is_to_see_to_it(presidio: PresidioRedactor, destination: TextDestination) -> None:
    with pytest.raises(RedactionBlockedError, match="after 3 attempts"):
        await enduring(presidio, Work(3), "pause").redact([ENDLESS], destination, "t")


@pytest.mark.parametrize("destination", sorted(PAID_DESTINATIONS))
@pytest.mark.parametrize("then", ["placeholder", "pause"])
async def test_what_a_model_was_paid_for_is_tried_again_without_asking_it_again(
    presidio: PresidioRedactor, destination: TextDestination, then: RedactionFailureMode
) -> None:
    work = Work()
    (endless,) = await enduring(presidio, work, then).redact([ENDLESS], destination, "t")
    assert endless.redaction_failed
    assert work.pauses == [1, 2]


async def test_a_redactor_that_is_down_is_waited_for_without_end() -> None:
    down = PlainRedactor({})
    down.failing = True
    for attempt in (1, 3, 100):
        with pytest.raises(RedactionFailed, match="told to fail"):
            await enduring(down, Work(attempt)).redact([FINE], TextDestination.TOOL_RESULT, "t")

    class Mended(Work):
        async def pause(self, seconds: float) -> None:
            await super().pause(seconds)
            down.failing = len(self.pauses) < 8

    work = Mended()
    (fine,) = await enduring(down, work).redact([FINE], TextDestination.MODEL_OUTPUT, "t")
    assert fine.text == FINE
    assert work.pauses == [1, 2, 4, 8, 16, 32, 60, 60]
