from collections.abc import Mapping, Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from waystation.documents.citations import Claim, extract_claims, parse_citations
from waystation.kernel.errors import BadInput
from waystation.plugins.evaluation.scores import (
    MEASURES,
    Evaluation,
    GoldQuestion,
    QuestionSet,
    ReportScore,
    ScoredAnswer,
    compare_evaluations,
    compute_sign_test,
    make_zero_score,
    score_report,
)

DOCUMENTS: Mapping[str, Sequence[str]] = {
    "harbour.md": ["The harbour was dug in 1811.", "It cost 1,500,000 crowns, 12 percent of the city's revenue."],
    "keeper.md": ["The keeper lights the lamp at dusk."],
}
GOLD = GoldQuestion(
    id="harbour",
    question="When was it dug for Queen Victoria, and what did it cost?",
    facts=(("1811",), ("1.5 million crowns", "a million and a half")),
    cites=("harbour.md", "keeper.md"),
    never=("dug in 1911",),
)


def report(body: str) -> str:
    return (
        "> **No LLM wrote this.** It says dug in 1911.\n\n# Title\n\n**Question.** What of 1811?\n\n"
        f"{body}\n\n## Sources\n\n- harbour.md: lines 1\n\n## About this report\n\n- 1.5 million crowns\n"
    )


def test_facts_count_in_what_agents_wrote_alone() -> None:
    """Not in the question, not in warnings, and not in what code says of the work."""
    empty = score_report(GOLD, report("Nothing."), DOCUMENTS)
    assert (empty.facts, empty.evidence, empty.clean, empty.citations) == (0, 0, 1, None)
    assert empty.missed == ("1811", "1.5 million crowns")


def test_a_fact_counts_in_any_of_its_wordings_and_writings() -> None:
    found = score_report(
        GOLD, report("Dug in 1811 [harbour.md:1-1]. It cost 1,500,000 crowns [harbour.md:2-2]."), DOCUMENTS
    )
    assert (found.facts, found.citations, found.evidence, found.uncited) == (1, 1, 0.5, ("keeper.md",))


def test_a_fact_in_the_name_of_a_document_is_not_said() -> None:
    assert score_report(GOLD, report("See [1811:1-1]."), DOCUMENTS).facts == 0


def test_what_must_not_be_said_is_named() -> None:
    found = score_report(GOLD, report("It was dug in 1911."), DOCUMENTS)
    assert (found.clean, found.contradictions) == (0, ("dug in 1911",))


@pytest.mark.parametrize(
    ("sentence", "held"),
    [
        ("The harbour was dug in 1811 [harbour.md:1-1].", True),
        ("The harbour was dug in 1911 [harbour.md:1-1].", False),
        ("The harbour was dug in 1811 [harbour.md:1-9].", False),
        ("The harbour was dug in 1811 [elsewhere.md:1-1].", False),
        ("Ships sink near cliffs during storms [harbour.md:1-1].", False),
        ("The harbour, dug in 1811, cost 1.5 million crowns [harbour.md:1-1] [harbour.md:2-2].", True),
        ('They agree: "The harbour was dug in 1811." [harbour.md:1-1]', True),
        ("The harbour was dug, and Queen Charlotte paid [harbour.md:1-1].", False),
        ("Victoria had the harbour dug in 1811 [harbour.md:1-1].", True),
        ("One of them: the harbour was dug in 1811 [harbour.md:1-1].", True),
    ],
)
def test_a_citation_holds_where_its_lines_have_the_figures_and_most_words(sentence: str, *, held: bool) -> None:
    found = score_report(GOLD, report(sentence), DOCUMENTS)
    assert found.citations == float(held)
    assert bool(found.unheld) != held


def test_a_list_of_places_claims_nothing() -> None:
    pointers = "- Quoted above already: harbour [harbour.md:1-1], keeper [keeper.md:1-1]"
    found = score_report(GOLD, report(pointers), DOCUMENTS)
    assert (found.citations, found.evidence) == (None, 1)


def test_a_judge_finds_only_what_code_missed() -> None:
    found = score_report(GOLD, report("Dug in 1811."), DOCUMENTS, judged=["1.5 million crowns", "1811"])
    assert (found.facts, found.judged, found.missed) == (1, ("1.5 million crowns",), ())


def test_a_task_that_failed_is_scored_nothing() -> None:
    scores = make_zero_score(GOLD)
    assert [scores.get(measure) for measure in MEASURES] == [0, 0, 0, 0]


@given(
    st.lists(st.sampled_from(["1811", "a million and a half", "[harbour.md:1-1]", "dug in 1911", ". ", "\n\n", "x"]))
)
def test_scores_are_shares_and_more_text_never_loses_a_fact(parts: list[str]) -> None:
    texts = [" ".join(parts[:end]) for end in range(len(parts) + 1)]
    every = [score_report(GOLD, report(f"Said. {text}"), DOCUMENTS) for text in texts]
    assert all(0 <= score <= 1 for one in every for measure in MEASURES if (score := one.get(measure)) is not None)
    facts = [one.facts or 0 for one in every]
    assert facts == sorted(facts)


def test_claims_are_sentences_with_what_stands_behind_them() -> None:
    text = "# Head\n\n- First said. Then dug [harbour.md:1-1] [keeper.md:1-1]. Last.\n\n> ---\n"
    first, second = parse_citations(text)
    assert (
        extract_claims(text)
        == (
            Claim(text="First said."),
            Claim(text="Then dug", citations=(first, second)),
            Claim(text="Last."),
            Claim(text="> ---"),
        )[:3]
    )


@given(st.text(alphabet='ab. \n[]:1-"#*'))
def test_every_citation_belongs_to_a_claim_with_words(text: str) -> None:
    assert all(claim.text.strip() for claim in extract_claims(text))
    known = [citation for line in text.splitlines() for citation in parse_citations(line)]
    assert all(citation in known for claim in extract_claims(text) for citation in claim.citations)


def test_sentences_end_without_a_space_where_scripts_have_none() -> None:
    first, second = extract_claims("彼は「深い。」と言った。橋は古い。[harbour.md:1-1]")
    assert (first.text, first.citations) == ("彼は「深い。」と言った。", ())
    assert (second.text, second.citations) == ("橋は古い。", parse_citations("橋は古い。[harbour.md:1-1]"))


def test_a_claim_with_no_words_to_look_for_holds() -> None:
    assert score_report(GOLD, report("So it is [harbour.md:1-1]"), DOCUMENTS).citations == 1


@pytest.mark.parametrize(
    ("fields", "says_what"),
    [
        ({"facts": ["dug"]}, "is in the question itself"),
        ({"facts": ["—"]}, "neither a word nor a number"),
        ({}, "the question has no expected answer"),
    ],
)
def test_a_question_that_measures_nothing_is_refused(fields: dict[str, object], says_what: str) -> None:
    with pytest.raises(ValidationError, match=says_what):
        GoldQuestion.model_validate({"id": "a", "question": "When was it dug?", **fields})


def test_two_questions_of_one_id_are_refused() -> None:
    with pytest.raises(ValidationError, match="'harbour'"):
        QuestionSet(name="twice", questions=(GOLD, GOLD))


def evaluation(facts: Sequence[float], label: str = "one") -> Evaluation:
    answers = [ScoredAnswer(id=f"q{number}", scores=ReportScore(facts=share)) for number, share in enumerate(facts)]
    return Evaluation(set="s", label=label, version="0", model="m", answers=tuple(answers))


def test_two_ways_are_compared_question_by_question() -> None:
    (pair,) = compare_evaluations(evaluation([0, 0, 0.5, 1, 0]), evaluation([1, 1, 1, 1, 1], "other"))
    assert (pair.measure, pair.better, pair.worse, pair.questions) == ("facts", 4, 0, 5)
    assert (pair.first, pair.second, pair.p) == (0.3, 1.0, 2 / 2**4)


def test_other_questions_cannot_be_compared() -> None:
    with pytest.raises(BadInput, match="q1"):
        compare_evaluations(evaluation([1]), evaluation([1, 1], "other"))


@given(st.integers(0, 40), st.integers(0, 40))
def test_the_sign_test_is_the_exact_binomial_of_two_sides(better: int, worse: int) -> None:
    tosses, weight = better + worse, Fraction(1)
    below = Fraction(0)
    for heads in range(min(better, worse) + 1):
        below += weight / 2**tosses
        weight = weight * (tosses - heads) / (heads + 1)
    assert compute_sign_test(better, worse) == pytest.approx(float(min(Fraction(1), 2 * below)))
    assert compute_sign_test(better, worse) == compute_sign_test(worse, better)
