"""Texts that are made to keep redaction busy: the time grows with their length and no faster."""

import time

import pytest

from benchmarks.privacy.worst import build_repeated_texts, sample_texts, time_redactions
from waystation.plugins.redaction.detections import Detection, resolve_overlaps
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.plugins.redaction.search import TextContext
from waystation.plugins.redaction.secrets import find_whole_text_matches
from waystation.privacy.policy import TextDestination

KEY = b"k" * 32
SMALL, TIMES = 10_000, 4
LEAST_SECONDS = 0.1
"""Under this a machine's moods count for more than the pattern."""
SLOW_BEFORE = (
    "passwords = [self.generate_secure_password(12) for _ in users]",
    "passwords = [" + "a " * 5_000,
    "kind: Secret\ndata:\n a: b" + " " * 20_000 + '"x',
    "_" * 2_000,
    "*" * 2_000,
    "insert into t (password) values (1)" + " " * 20_000,
    ",".join(["password"] * 5_000) + "\n" + ",".join(["a1"] * 5_000),
    "-----BEGIN PRIVATE KEY-----\n" + "MHcCAQEEIBdA1 " * 2_500 + "!",
    "WIFI:A:" * 5_000,
    "a." * 1_000 + " @",
    "AAAA" * 500 + "Authorization: " + "A" * 4_000,
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", range(len(SLOW_BEFORE)))
async def test_a_text_that_froze_a_worker_is_read(number: int) -> None:
    redactor = PresidioRedactor(KEY)
    try:
        await redactor.redact([SLOW_BEFORE[number]], TextDestination.TOOL_RESULT, "t")
    finally:
        redactor.close()


@pytest.mark.timeout(300)
def test_what_reads_whole_texts_takes_time_by_their_length() -> None:
    slower = [
        what
        for (what, short), (_, long) in zip(
            build_repeated_texts(SMALL), build_repeated_texts(SMALL * TIMES), strict=True
        )
        if seconds(long) > max(LEAST_SECONDS, 4 * TIMES * seconds(short))
    ]
    assert slower == []


def seconds(text: str) -> float:
    """Of the quicker of two tries: caches are others' on a busy machine."""
    return min(_seconds(text) for _ in range(2))


def _seconds(text: str) -> float:
    start = time.process_time()
    list(find_whole_text_matches(text))
    TextContext(text)
    return time.process_time() - start


@pytest.mark.timeout(300)
def test_no_chunk_takes_far_longer_than_others() -> None:
    slowest, *_, middle = time_redactions((*build_repeated_texts(2_000), *sample_texts(20, seed=3)))[:200]
    assert slowest.seconds < max(1.0, 100 * middle.seconds), slowest


async def test_where_each_find_uncovers_one_more_the_rest_goes_as_a_whole() -> None:
    redactor = PresidioRedactor(KEY)
    text = "pwd=a1{2 " * 200
    try:
        (result,) = await redactor.redact([f"{text}<EMAIL_0123456789ab>"], TextDestination.TOOL_RESULT, "t")
    finally:
        redactor.close()
    assert "a1{2" not in result.text
    assert result.text.endswith("<EMAIL_0123456789ab>")


def test_of_many_finds_in_one_long_name_all_are_kept() -> None:
    text = "ab1 " * 5_000
    secrets = [Detection("SECRET", start, start + 3, 1) for start in range(0, len(text), 4)]
    kept = resolve_overlaps(text, [Detection("EMAIL", 0, len(text), 1), *secrets])
    assert kept == tuple(secrets)
