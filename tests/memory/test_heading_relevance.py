"""What a heading says of the lines below it, where they do not say it themselves."""

import pytest

from waystation.documents.search_terms import SPEAKER, TextScorer
from waystation.memory.passage_builder import with_speakers

LINES = ["class Mailer:", *(f"    STEP_{number} = {number}" for number in range(200))]


def test_a_line_has_details_in_what_alone_its_heading_says() -> None:
    mailer, other = 'read_document {"name": "src/mailer.py"}', 'read_document {"name": "src/sampler.py"}'
    above = TextScorer("Which step of the mailer is it?", LINES).compute_heading_scores([mailer] * 100 + [other] * 101)
    assert set(above[100:]) == {0.0}
    assert len({*above[:100]}) == 1
    assert 0.0 < above[0] < 1.0


def test_what_many_lines_say_themselves_is_not_looked_for_in_their_headings() -> None:
    said = ["Kestrel has a roof.", "The lift stands still."] * 100
    assert TextScorer("Kestrel", said).compute_heading_scores(["site log, Kestrel"] * 200) == [0.0] * 200


def test_a_heading_that_says_the_whole_question_counts_one() -> None:
    assert TextScorer("the uploader", ["a", "b"]).compute_heading_scores(["src/uploader.py", ""]) == pytest.approx(
        [1.0, 0.0]
    )


@pytest.mark.parametrize("query", ["", "the of and", "?"])
def test_a_question_without_words_tells_nothing(query: str) -> None:
    assert TextScorer(query, ["a line"]).compute_heading_scores(["a heading"]) == [0.0]
    assert TextScorer("a question", []).compute_heading_scores([]) == []


def test_what_is_said_by_whom_the_query_names_is_more_alike() -> None:
    said = ["Ada: I went to Oslo.", "Ben: I went to Oslo.", "Ada went to Oslo with Ben: they say so.", "Oslo, Ada"]
    ada, ben, *others = TextScorer("Where did Ada go?", said).compute_similarity([0.5] * 4, ())
    assert ada > ben == 0.5
    assert others == [0.5 + SPEAKER, 0.5], "a few words before a colon name who speaks, or a field"


def test_what_asks_is_less_alike_than_what_answers() -> None:
    said = ["Which berth is it?", "Which berth it is: the third.", "哪个泊位？"]
    asks, answers, asks_too = TextScorer("Oslo", said).compute_similarity([0.5] * 3, ())
    assert asks == asks_too < answers == 0.5


def test_what_goes_on_is_said_by_who_began() -> None:
    first, second = ("run", "c1"), ("run", "c2")
    said = {
        (first, 3): "and then to Bergen,",
        (first, 1): "Ben: Not me.",
        (first, 2): "Ada: I went to Oslo,",
        (first, 4): "and home.",
        (second, 9): "whose beginning is not there",
    }
    assert with_speakers(said, {(first, 3), (first, 4), (second, 9)}) == [
        "Ada: and then to Bergen,",
        "Ben: Not me.",
        "Ada: I went to Oslo,",
        "Ada: and home.",
        "whose beginning is not there",
    ]
