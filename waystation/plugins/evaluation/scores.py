"""Scores reports by code against known answers, and compares evaluations.

Words and figures are compared, not meaning: a negated fact counts as found, and a paraphrased one as missed unless the
set lists the paraphrase or a model judges it.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import comb
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from waystation.documents.citations import CITATION_PATTERN, CitedDocument, check_citations, parse_citations
from waystation.documents.cited_sentences import SentenceCheck, check_cited_sentences
from waystation.documents.word_normalization import contains_phrase, normalize_words
from waystation.kernel.errors import BadInput
from waystation.kernel.text import format_first
from waystation.kernel.value import Value
from waystation.reports.report import extract_answer
from waystation.tasks.task import TaskPhase


def _several(written: object) -> object:
    return (written,) if isinstance(written, str) else written


_Phrase = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000)]
Fact = Annotated[tuple[_Phrase, ...], BeforeValidator(_several), Field(min_length=1)]
"""One fact that an answer must state, in any of these wordings."""
MAX_QUESTIONS = 1_000


class GoldQuestion(Value):
    """A question with its known answer."""

    id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]
    question: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000)]
    documents: tuple[str, ...] = ()
    """Files and folders, relative to the set; if neither these nor packages are given, those of the set."""
    packages: tuple[str, ...] = ()
    """Installed distributions whose descriptions are documents."""
    facts: tuple[Fact, ...] = ()
    cites: tuple[_Phrase, ...] = ()
    """Names of documents that must be cited."""
    never: tuple[_Phrase, ...] = ()
    """Phrases that must not occur."""
    criteria: tuple[_Phrase, ...] = ()
    """Criteria of the task, as in `submit --accept`; judged by a model only."""

    @model_validator(mode="after")
    def _sound(self) -> "GoldQuestion":
        asked = normalize_words(self.question)
        for wordings in self.facts:
            for wording in wordings:
                if not normalize_words(wording):
                    raise ValueError(f"the fact {wording!r} has neither a word nor a number")
                if contains_phrase(asked, wording):
                    raise ValueError(
                        f"the fact {wording!r} is in the question itself, so every report would contain it"
                    )
        if not (self.facts or self.cites or self.never):
            raise ValueError("the question has no expected answer: give `facts`, `cites` or `never`")
        return self


class QuestionSet(Value):
    """Questions that are asked and scored together."""

    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
    documents: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    questions: tuple[GoldQuestion, ...] = Field(min_length=1, max_length=MAX_QUESTIONS)

    @model_validator(mode="after")
    def _each_once(self) -> "QuestionSet":
        ids = [question.id for question in self.questions]
        if twice := next((one for one in ids if ids.count(one) > 1), None):
            raise ValueError(f"two questions have the id {twice!r}")
        return self


Metric = Literal["facts", "citations", "evidence", "clean"]
MEASURES: tuple[Metric, ...] = get_args(Metric)
MEANS: Mapping[Metric, str] = {
    "facts": "facts found",
    "citations": "citations whose lines support the sentence",
    "evidence": "expected documents cited",
    "clean": "reports without forbidden statements",
}


class ReportScore(Value):
    """Scores of one report, each from 0 to 1; None if the question does not ask for it, or there is nothing to
    measure.
    """

    facts: float | None = None
    citations: float | None = None
    evidence: float | None = None
    clean: float | None = None
    missed: tuple[str, ...] = ()
    """Facts that were not found, in their first wording."""
    judged: tuple[str, ...] = ()
    """Facts that only the judge found."""
    unheld: tuple[str, ...] = ()
    """Citations, with their sentences, whose lines do not support them."""
    uncited: tuple[str, ...] = ()
    """Gold documents that were not cited."""
    contradictions: tuple[str, ...] = ()
    """Forbidden phrases that occur."""

    def get(self, measure: Metric) -> float | None:
        """Return the score of that metric."""
        match measure:
            case "facts":
                return self.facts
            case "citations":
                return self.citations
            case "evidence":
                return self.evidence
            case "clean":
                return self.clean


class ScoredAnswer(Value):
    """The result of one question. `tokens` are fresh tokens; `micro_usd` is None if a price is unknown."""

    id: str
    question: str = ""
    task_id: str = ""
    phase: TaskPhase = TaskPhase.FAILED
    scores: ReportScore
    tokens: int = 0
    micro_usd: int | None = 0
    seconds: float = 0
    compactions: int = 0
    pauses: int = 0
    fault: str = ""
    """Why it failed; its score is then 0."""


class Evaluation(Value):
    """A question set answered with one configuration: the content of a result file."""

    set: str
    label: str
    """Name of the configuration: the settings file, the model, or a name that the person chose."""
    version: str
    model: str
    judge: str = ""
    """Model that was asked about facts that code did not find; empty: none was."""
    judge_micro_usd: int | None = 0
    answers: tuple[ScoredAnswer, ...]

    def mean(self, measure: Metric) -> float | None:
        """Return the mean over the questions that measure it."""
        found = [score for answer in self.answers if (score := answer.scores.get(measure)) is not None]
        return sum(found) / len(found) if found else None

    @property
    def micro_usd(self) -> int | None:
        """Cost of all tasks; None if a price is unknown."""
        costs = [answer.micro_usd for answer in self.answers]
        return None if None in costs else sum(cost or 0 for cost in costs)

    @property
    def failed(self) -> tuple[ScoredAnswer, ...]:
        """The questions without a report."""
        return tuple(answer for answer in self.answers if answer.fault)


def score_report(
    gold: GoldQuestion, report: str, documents: Mapping[str, Sequence[str]], judged: Iterable[str] = ()
) -> ReportScore:
    """Score the report against the known answer.

    Args:
        gold: The question with its known answer.
        report: The report as Markdown.
        documents: Lines of the documents, by name.
        judged: Facts, in their first wording, that a model found and code did not.
    """
    answer = extract_answer(report)
    # A document's name is not a statement of the report.
    words, by_judge = normalize_words(CITATION_PATTERN.sub(" ", answer)), set(judged)
    missed = [
        wordings[0] for wordings in gold.facts if not any(contains_phrase(words, wording) for wording in wordings)
    ]
    there, cited, unheld = _find_unsupported(answer, gold.question, documents)
    uncited = [name for name in gold.cites if name not in there]
    said = [phrase for phrase in gold.never if contains_phrase(words, phrase)]
    still = [fact for fact in missed if fact not in by_judge]
    return ReportScore(
        facts=_share(len(gold.facts) - len(still), len(gold.facts)),
        citations=_share(len(cited) - len(unheld), len(cited)),
        evidence=_share(len(gold.cites) - len(uncited), len(gold.cites)),
        clean=float(not said) if gold.never else None,
        missed=tuple(still),
        judged=tuple(fact for fact in missed if fact in by_judge),
        unheld=tuple(unheld),
        uncited=tuple(uncited),
        contradictions=tuple(said),
    )


def make_zero_score(gold: GoldQuestion) -> ReportScore:
    """Return the score of a task without a report: 0 for everything that is measured."""
    return ReportScore(
        facts=0.0 if gold.facts else None,
        citations=0.0,
        evidence=0.0 if gold.cites else None,
        clean=0.0 if gold.never else None,
        missed=tuple(wordings[0] for wordings in gold.facts),
        uncited=gold.cites,
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _find_unsupported(
    answer: str, question: str, documents: Mapping[str, Sequence[str]]
) -> tuple[set[str], Sequence[SentenceCheck], list[str]]:
    """Check the cited sentences as a report's are checked.

    Returns:
        The documents with a citation that can be resolved, the checks of all sentences, and the sentences that their
        lines do not support.
    """
    whole = {name: CitedDocument(lines) for name, lines in documents.items()}
    faults = check_citations(parse_citations(answer), whole)
    there = {citation.document for citation, fault in faults.items() if fault is None}
    checks = check_cited_sentences(answer, faults, whole, question=question)
    unheld = [
        f"{one.located.claim.text} {' '.join(map(str, one.located.claim.citations))}"
        for one in checks
        if any(faults[citation] for citation in one.located.claim.citations) or not one.is_probably_supported
    ]
    return there, checks, unheld


class MetricComparison(Value):
    """One metric of two evaluations of the same set, question by question."""

    measure: Metric
    questions: int
    """Number of questions that both have a score for."""
    first: float
    second: float
    better: int
    """Number of questions in which the second scores higher."""
    worse: int
    p: float
    """p-value of the exact two-sided sign test: the probability of so uneven a count if neither were better.

    Ties are left out.
    """


def compare_evaluations(first: Evaluation, second: Evaluation) -> tuple[MetricComparison, ...]:
    """Compare every metric that both have. Raises BadInput if they are not of the same questions."""
    ours, theirs = ({answer.id: answer.scores for answer in one.answers} for one in (first, second))
    if ours.keys() != theirs.keys():
        other = format_first(sorted(ours.keys() ^ theirs.keys()), 3)
        raise BadInput(f"{first.label} and {second.label} do not have the same questions; only in one of them: {other}")
    return tuple(found for measure in MEASURES if (found := _compared(measure, ours, theirs)) is not None)


def _compared(
    measure: Metric, ours: Mapping[str, ReportScore], theirs: Mapping[str, ReportScore]
) -> MetricComparison | None:
    each = [(one, other) for key in ours if (one := ours[key].get(measure)) is not None
            and (other := theirs[key].get(measure)) is not None]  # fmt: skip
    if not each:
        return None
    better, worse = sum(other > one for one, other in each), sum(other < one for one, other in each)
    return MetricComparison(
        measure=measure,
        questions=len(each),
        first=sum(one for one, _ in each) / len(each),
        second=sum(other for _, other in each) / len(each),
        better=better,
        worse=worse,
        p=compute_sign_test(better, worse),
    )


def compute_sign_test(better: int, worse: int) -> float:
    """Return the exact two-sided p-value: twice the probability of at most as many of the rarer sign in fair coin
    tosses, at most 1.
    """
    tosses = better + worse
    return min(1.0, 2 * sum(comb(tosses, heads) for heads in range(min(better, worse) + 1)) / 2**tosses)
