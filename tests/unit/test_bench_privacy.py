"""The proof of what is found, on a smaller corpus, and that its scores see a miss and a mistake."""

from benchmarks.privacy.corpus import Label, Sentence, sentences
from benchmarks.privacy.finders import Find, Ours
from benchmarks.privacy.found import NAMES
from benchmarks.privacy.score import scored
from waystation.domain.privacy import Place


def test_every_identifier_is_found_and_nothing_else_is_touched() -> None:
    corpus = list(sentences(200, seed=7))
    score = scored(corpus, Ours(Place.COMPRESSED).find([sentence.text for sentence in corpus]))
    assert score.touched.total() == 0
    types = set(score.there) - set(NAMES)
    assert {type_: score.recall(type_) for type_ in types} == dict.fromkeys(types, 1.0)
    assert {type_: score.f1(type_) for type_ in types} == dict.fromkeys(types, 1.0)
    assert len(types) >= 15
    assert score.recall("LOCATION") > 0.95
    assert score.recall("PERSON") > 0.75


def test_a_score_counts_leaks_misnomers_and_what_should_have_stayed() -> None:
    sentence = Sentence("a@b.c on 2024-01-15", (Label("EMAIL", 0, 5), Label("date", 9, 19)))
    half = scored([sentence], [[Find("EMAIL", 0, 3)]])
    assert (half.recall("EMAIL"), half.precision("EMAIL"), half.f1("EMAIL")) == (0, 1, 0)
    misnamed = scored([sentence], [[Find("URL", 0, 5), Find("PHONE", 15, 19)]])
    assert (misnamed.recall("EMAIL"), misnamed.f1("EMAIL"), misnamed.wrongly_replaced) == (1, 0, 1)
