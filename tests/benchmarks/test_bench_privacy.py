"""The proof of what is found, on a smaller corpus, and that its scores see a miss and a mistake."""

from collections.abc import Sequence
from contextlib import closing

from benchmarks.privacy.corpus import Label, Sentence, sentences
from benchmarks.privacy.finders import Find, WaystationFinder
from benchmarks.privacy.found import NAMES
from benchmarks.privacy.prose import Prose, load_prose, score_prose_finder
from benchmarks.privacy.score import score_finder
from benchmarks.privacy.structured import find_shown_values, generate_structures, measure_leaks
from tests.attacks.structures import STRUCTURES
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.privacy.policy import TextDestination
from waystation.testing.doubles import PlainRedactor


def test_every_identifier_is_found_and_nothing_else_is_touched() -> None:
    corpus = list(sentences(200, seed=7))
    score = score_finder(
        corpus, WaystationFinder(TextDestination.COMPRESSED).find([sentence.text for sentence in corpus])
    )
    assert score.touched.total() == 0
    types = set(score.there) - set(NAMES)
    assert {type_: score.recall(type_) for type_ in types} == dict.fromkeys(types, 1.0)
    assert {type_: score.f1(type_) for type_ in types} == dict.fromkeys(types, 1.0)
    assert len(types) >= 15
    assert score.recall("LOCATION") > 0.95
    assert score.recall("PERSON") > 0.75


def test_a_score_counts_leaks_misnomers_and_what_should_have_stayed() -> None:
    sentence = Sentence("a@b.c on 2024-01-15", (Label("EMAIL", 0, 5), Label("date", 9, 19)))
    half = score_finder([sentence], [[Find("EMAIL", 0, 3)]])
    assert (half.recall("EMAIL"), half.precision("EMAIL"), half.f1("EMAIL")) == (0, 1, 0)
    misnamed = score_finder([sentence], [[Find("URL", 0, 5), Find("PHONE", 15, 19)]])
    assert (misnamed.recall("EMAIL"), misnamed.f1("EMAIL"), misnamed.wrongly_replaced) == (1, 0, 1)


async def test_structured_files_are_measured_through_what_agents_call() -> None:
    structures = [one for one in generate_structures(seed=3) if one.name in {"csv", "next line"}]
    presentations = {"plain", "numbered", "from a line on", "line by line", "small pages", "search", "SQL"}
    with closing(PresidioRedactor(bytes(32))) as redactor:
        there, leaked, _ = await measure_leaks(structures, redactor)
    assert (set(there), leaked.total()) == (presentations, 0)
    # Without redaction they show what they have, so that nothing shown above is no failed call.
    _, leaked, _ = await measure_leaks(structures, PlainRedactor({}))
    assert {how: leaked[how] for how in ("plain", "numbered", "line by line", "SQL")} == {
        "plain": 3,
        "numbered": 3,
        "line by line": 3,
        "SQL": 2,
    }


def test_generated_values_have_the_shape_of_those_planted_and_are_others() -> None:
    for structure, known in zip(generate_structures(seed=3), STRUCTURES, strict=True):
        assert all(value in structure.text for value in structure.planted)
        assert not set(structure.planted) & set(known.planted)
    assert (
        find_shown_values(["Abcdefghi"], ["ihgfedcbA"])
        == find_shown_values(["Abcdefghi"], [b"Abcdefghi".hex()])
        == ["Abcdefghi"]
    )


class Given:
    """Finds what it was told to, in every text."""

    name = "given"

    def __init__(self, *finds: Find) -> None:
        self._finds = list(finds)

    def find(self, texts: Sequence[str]) -> list[list[Find]]:
        return [self._finds for _ in texts]


def test_a_tally_sees_names_that_were_missed_half_found_and_made_up() -> None:
    named, plain = Prose("Ask Rose Field.", ((4, 14),)), Prose("Ask roses.", ())
    assert score_prose_finder([named, plain], Given()) == ([], ["Rose Field"], [], [])
    assert score_prose_finder([named], Given(Find("PERSON", 4, 8))) == ([], ["Rose Field"], [], [])
    assert score_prose_finder([named], Given(Find("PERSON", 4, 8), Find("LOCATION", 8, 14))) == (
        ["Rose Field"],
        [],
        [],
        [],
    )
    assert score_prose_finder([named, plain], Given(Find("PERSON", 0, 3))) == (
        [],
        ["Rose Field"],
        ["Ask"],
        ["Ask roses."],
    )
    assert score_prose_finder([named, plain], Given(Find("DATE_TIME", 4, 14))) == ([], ["Rose Field"], [], [])


def test_names_in_prose_are_found_and_words_of_prose_stay_in_a_sample() -> None:
    corpus = load_prose()
    with_names, without = ([one for one in corpus if bool(one.names) is named] for named in (True, False))
    assert min(len(with_names), len(without)) >= 150
    assert all(one.text[start:end].strip() for one in with_names for start, end in one.names)
    assert not any(mark in one.text for one in corpus for mark in "⟦⟧")
    sample = [*with_names[::8], *without[::8]]
    counts = score_prose_finder(sample, WaystationFinder(TextDestination.COMPRESSED))
    assert len(counts.found) > len(counts.missed)
    assert len(counts.eaten) <= 2
    assert counts.beside == []
