from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.plugins.redaction.detections import Detection, resolve_overlaps
from waystation.plugins.redaction.engines import CHUNK_CHARACTERS, iter_chunk_spans
from waystation.plugins.redaction.redactor import RedactionCache
from waystation.plugins.redaction.search import NameFilter
from waystation.privacy.key_file import load_or_create_key
from waystation.privacy.policy import RedactionLevel, RedactionResult, Span


def test_a_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "home" / "redaction.key"
    key = load_or_create_key(path)
    assert len(key) == 32
    assert load_or_create_key(path) == key
    assert path.stat().st_mode & 0o777 == 0o600


def test_many_who_create_the_key_at_once_get_the_same_one(tmp_path: Path) -> None:
    path = tmp_path / "redaction.key"
    with ThreadPoolExecutor(8) as threads:
        keys = set(threads.map(load_or_create_key, [path] * 8))
    assert len(keys) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["redaction.key"]


def test_a_file_that_is_no_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "redaction.key"
    path.write_bytes(b"short")
    path.chmod(0o600)
    with pytest.raises(ValueError, match="5 bytes instead of 32"):
        load_or_create_key(path)


TEXTS = st.lists(
    st.tuples(st.sampled_from(["word", "x" * 700, "End.", "9" * 2_500]), st.sampled_from([" ", "\n", ". ", ""])),
    max_size=30,
).map(lambda pairs: "".join(a + b for a, b in pairs))


@given(TEXTS)
def test_chunks_cover_the_text_in_order_and_stay_small(text: str) -> None:
    covered = 0
    for start, end in iter_chunk_spans(text):
        assert start <= covered < end
        assert end - start <= CHUNK_CHARACTERS
        covered = end
    assert covered == len(text)


@given(TEXTS)
def test_where_no_line_ends_the_next_chunk_repeats_the_last_words(text: str) -> None:
    spans = list(iter_chunk_spans(text))
    for (_, end), (start, _) in pairwise(spans):
        assert start < end or text[end - 1] == "\n"


@st.composite
def finds(draw: st.DrawFn) -> Detection:
    start = draw(st.integers(0, 40))
    type_ = draw(st.sampled_from(["SECRET", "EMAIL", "PHONE", "PERSON", "LOCATION"]))
    return Detection(type_, start, start + draw(st.integers(1, 12)), draw(st.sampled_from([0.5, 0.9])))


@given(st.lists(finds(), max_size=12))
def test_finds_that_are_kept_do_not_overlap_and_leave_no_secret_uncovered(found: list[Detection]) -> None:
    text = "ab cd " * 10
    kept = resolve_overlaps(text, found)
    assert all(left.end <= right.start for left, right in pairwise(kept))
    secrets = [find for find in found if find.type == "SECRET"]
    for secret in secrets:
        assert any(find.type == "SECRET" and find.start <= secret.start and secret.end <= find.end for find in kept)


def test_of_overlapping_finds_the_more_severe_wins_and_then_the_longer() -> None:
    text = "John Smith john.smith@example.com"
    name, email = Detection("PERSON", 0, 20, 0.8), Detection("EMAIL", 11, 33, 1.0)
    assert resolve_overlaps(text, [name, email]) == (Detection("PERSON", 0, 10, 0.8), email)
    secret = Detection("SECRET", 11, 16, 0.9)
    assert resolve_overlaps(text, [email, secret]) == (secret,)
    shorter = Detection("PHONE", 12, 20, 1.0)
    assert resolve_overlaps(text, [shorter, email]) == (email,)
    beginning, rest = Detection("SECRET", 11, 20, 0.9), Detection("SECRET", 16, 33, 0.6)
    assert resolve_overlaps(text, [email, rest, beginning]) == (Detection("SECRET", 11, 33, 0.9),)


def test_the_cache_forgets_what_was_used_longest_ago() -> None:
    cache = RedactionCache(capacity=10)
    for text in ("aaaa", "bbbb"):
        cache.put(text, RedactionLevel.IDENTIFIERS, "t", RedactionResult(text=text))
    assert cache.get("aaaa", RedactionLevel.IDENTIFIERS, "t")
    cache.put("cccc", RedactionLevel.IDENTIFIERS, "t", RedactionResult(text="cccc"))
    assert cache.get("bbbb", RedactionLevel.IDENTIFIERS, "t") is None
    assert cache.get("aaaa", RedactionLevel.IDENTIFIERS, "t") == RedactionResult(text="aaaa")


def test_the_cache_keeps_scopes_and_tenants_apart_and_knows_its_own_results() -> None:
    cache = RedactionCache(capacity=100)
    span = Span(type="PERSON", start=0, end=5, score=0.8, placeholder="<PERSON_0123456789ab>")
    cache.put("Alice", RedactionLevel.NAMES, "t", RedactionResult(text=span.placeholder, spans=(span,)))
    assert cache.get("Alice", RedactionLevel.IDENTIFIERS, "t") is None
    assert cache.get("Alice", RedactionLevel.NAMES, "other") is None
    assert cache.get(span.placeholder, RedactionLevel.NAMES, "t") == RedactionResult(text=span.placeholder)


@pytest.mark.parametrize("text", ["ask Ben", "J. Li", "(O'Brien)", "é Anna-Lena.", "李明来了", "Paris", '"Ada"'])
def test_what_may_be_a_name_is_given_to_the_language_model(text: str) -> None:
    assert NameFilter(text).has_candidate_in(0, len(text))


@pytest.mark.parametrize("text", ["no capital here, 17 %", "token=Ab3dE9fG f(x) `Ben` Ben() src/Ben", ""])
def test_text_without_anything_of_the_form_of_a_name_is_not(text: str) -> None:
    assert not NameFilter(text).has_candidate_in(0, len(text))
