"""How good a report is, by code: questions with what is known of their answers, and the scores of reports against them.

Words and figures are compared, never meaning: a negated fact is found, and one in other words is missed unless the set
names these, too, or a model judges it.
"""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from math import comb
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from waystation.documents.citations import (
    CITATION_PATTERN,
    Citation,
    CitedDocument,
    Claim,
    check_citations,
    extract_claims,
)
from waystation.kernel.errors import BadInput
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value
from waystation.privacy.policy import PLACEHOLDER_PATTERN
from waystation.reports.report import STEM_CHARACTERS, STOP_WORDS, extract_answer
from waystation.tasks.task import TaskPhase

_WORD = compile_bounded(r"\d[\d.,/-]*+|[^\W\d_]++|[%$€£]")
_NUMBER_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
_SAME = {word: str(number) for number, word in enumerate(_NUMBER_WORDS)} | {"percent": "%", "€": "euros", "£": "pounds"}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_MONTH = {name: number for number, month in enumerate(_MONTHS, 1) for name in (month, month[:3])} | {"sept": 9}
_MOST_DIGITS = 18
"""Of a number that is worth something; longer ones are identifiers, and stay as they are written."""
TELLING_LETTERS = 4
HELD_SHARE = 0.5
"""Of a sentence's telling words, how many at least its cited lines have; and all of its figures."""


def normalize_words(text: str) -> tuple[str, ...]:
    """The words and figures of a text in one writing: `1,234` is `1234`, `1.5 million` is `1500000`, `three` is `3`,
    `12 percent` is `12 %`, `$5` is `5 $`, and `22 November 2026` or `Nov 22nd, 2026` is `2026-11-22`. Versions stay
    (`3.10` is not `3.1`), and marks between words are none.
    """
    found = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return tuple(_joined([_SAME.get(part, part) for word in found for part in _figures(word)]))


def _figures(word: str) -> Sequence[str]:
    """A run of digits and marks, apart where it is several figures."""
    if not word[0].isdecimal():
        return (word,)
    word = word.rstrip(".,/-")
    if (day := _iso(word)) is not None:
        return (day,)
    parts = word.replace("/", "-").split("-")
    return [figure for part in parts if part for figure in _without_thousands(part.strip(".,"))]


def _iso(word: str) -> str | None:
    parts = word.replace("/", "-").split("-")
    return _day(*parts) if [len(part) for part in parts] == [4, 2, 2] else None


def _day(year: str, month: str | int, day: str) -> str | None:
    try:
        return date(int(year), int(month), int(day)).isoformat()
    except ValueError:
        return None


def _without_thousands(part: str) -> Sequence[str]:
    first, *groups = part.split(",")
    whole, dot, fraction = groups[-1].partition(".") if groups else ("", "", "")
    if groups and 1 <= len(first) <= 3 and all(len(group) == 3 for group in [*groups[:-1], whole]):
        return ("".join([first, *groups[:-1], whole, dot, fraction]),)
    return [figure.strip(".") for figure in (first, *groups) if figure.strip(".")]


def _joined(words: Sequence[str]) -> Iterable[str]:
    """What takes several words, as one: dates, scales, amounts of money, shares."""
    at = 0
    while at < len(words):
        took, meant = _date_at(words, at) or _amount_at(words, at) or (1, (words[at],))
        yield from meant
        at += took


_Meant = tuple[int, tuple[str, ...]]
"""How many words it takes, and what they are in one writing."""


def _date_at(words: Sequence[str], at: int) -> _Meant | None:
    """`22 november 2026`, `22nd of november 2026`, `november 22 2026`."""
    near = [
        (place, word) for place, word in enumerate(words[at : at + 6]) if word not in {"st", "nd", "rd", "th", "of"}
    ]
    if len(near) < 3 or near[0][0]:
        return None
    (_, first), (_, second), (last, year) = near[:3]
    day, month = (second, first) if first in _MONTH else (first, second)
    if month not in _MONTH or not (day.isdecimal() and year.isdecimal() and len(year) == 4):
        return None
    written = _day(year, _MONTH[month], day) if len(day) <= 2 else None
    return None if written is None else (last + 1, (written,))


def _amount_at(words: Sequence[str], at: int) -> _Meant | None:
    near = words[at : at + 3]
    behind = at > 0 and words[at - 1][0].isdecimal() and words[at - 2 : at - 1] != ["$"]
    if near[0] == "$" and not behind and len(near) > 1 and near[1][0].isdecimal():
        took, meant = _amount_at(words, at + 1) or (1, (near[1],))
        return took + 1, (*meant, "$")
    if near[0] == "per" and near[1:2] == ["cent"]:
        return 2, ("%",)
    if len(near) > 1 and near[1] in _SCALES and (value := _decimal(near[0])) is not None:
        return 2, (f"{(value * _SCALES[near[1]]).normalize():f}",)
    if near[0] in {"dollar", "dollars", "usd"}:
        return 1, ("$",)
    return None


def _decimal(word: str) -> Decimal | None:
    try:
        return Decimal(word) if word[0].isdecimal() and len(word) <= _MOST_DIGITS else None
    except InvalidOperation:
        return None


def contains_phrase(text_words: Sequence[str], phrase: str) -> bool:
    """Whether the words and figures of the phrase stand in the text, in their order and side by side."""
    wanted = " ".join(normalize_words(phrase))
    return bool(wanted) and f" {wanted} " in f" {' '.join(text_words)} "


def _several(written: object) -> object:
    return (written,) if isinstance(written, str) else written


_Phrase = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000)]
Fact = Annotated[tuple[_Phrase, ...], BeforeValidator(_several), Field(min_length=1)]
"""One thing that an answer must hold, in any of these wordings."""
MAX_QUESTIONS = 1_000


class GoldQuestion(Value):
    """A question, and what is known of its answer."""

    id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]
    question: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000)]
    documents: tuple[str, ...] = ()
    """Files and folders, relative to the set; with none here or in the packages, those of the set."""
    packages: tuple[str, ...] = ()
    """Installed distributions whose descriptions are documents."""
    facts: tuple[Fact, ...] = ()
    cites: tuple[_Phrase, ...] = ()
    """Names of documents that have to be cited."""
    never: tuple[_Phrase, ...] = ()
    """What must not be said."""
    criteria: tuple[_Phrase, ...] = ()
    """For the task, as `submit --accept` has them; judged by a model only."""

    @model_validator(mode="after")
    def _sound(self) -> "GoldQuestion":
        asked = normalize_words(self.question)
        for wordings in self.facts:
            for wording in wordings:
                if not normalize_words(wording):
                    raise ValueError(f"the fact {wording!r} has no word and no figure")
                if contains_phrase(asked, wording):
                    raise ValueError(f"the fact {wording!r} stands in the question itself: any report would hold it")
        if not (self.facts or self.cites or self.never):
            raise ValueError("nothing is known of the answer: give facts, cites or never")
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
    "citations": "citations whose lines hold the sentence",
    "evidence": "gold documents cited",
    "clean": "reports that say nothing they must not",
}


class ReportScore(Value):
    """Of one report, each from 0 to 1; None where the question does not ask for it, or nothing is there to measure."""

    facts: float | None = None
    citations: float | None = None
    evidence: float | None = None
    clean: float | None = None
    missed: tuple[str, ...] = ()
    """Facts that were not found, in their first wording."""
    judged: tuple[str, ...] = ()
    """Facts that only the judge found."""
    unheld: tuple[str, ...] = ()
    """Citations, with their sentence, whose lines do not hold it."""
    uncited: tuple[str, ...] = ()
    """Gold documents that were not cited."""
    contradictions: tuple[str, ...] = ()
    """What must not be said, and was."""

    def get(self, measure: Metric) -> float | None:
        """The score of that name."""
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
    """How one question went. `tokens` are fresh; `micro_usd` is None where a price is not known."""

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
    """Why it failed; it is scored 0 then."""


class Evaluation(Value):
    """A set of questions, answered in one way. What a result file holds."""

    set: str
    label: str
    """In which way: the settings' file, the model, or whatever the person called it."""
    version: str
    model: str
    judge: str = ""
    """The model that was asked for facts which code did not find; empty: none was."""
    judge_micro_usd: int | None = 0
    answers: tuple[ScoredAnswer, ...]

    def mean(self, measure: Metric) -> float | None:
        """Over the questions that ask for it."""
        found = [score for answer in self.answers if (score := answer.scores.get(measure)) is not None]
        return sum(found) / len(found) if found else None

    @property
    def micro_usd(self) -> int | None:
        """All tasks together; None where a price is not known."""
        costs = [answer.micro_usd for answer in self.answers]
        return None if None in costs else sum(cost or 0 for cost in costs)

    @property
    def failed(self) -> tuple[ScoredAnswer, ...]:
        """The questions without a report."""
        return tuple(answer for answer in self.answers if answer.fault)


def score_report(
    gold: GoldQuestion, report: str, documents: Mapping[str, Sequence[str]], judged: Iterable[str] = ()
) -> ReportScore:
    """The report against what is known. `documents`: their lines, by name. `judged`: facts, in their first wording,
    that a model has found where code did not.
    """
    answer = extract_answer(report)
    # What a document is called is not said by the report.
    words, by_judge = normalize_words(CITATION_PATTERN.sub(" ", answer)), set(judged)
    missed = [
        wordings[0] for wordings in gold.facts if not any(contains_phrase(words, wording) for wording in wordings)
    ]
    pointing = [claim for claim in extract_claims(answer) if claim.citations]
    cited = [claim for claim in pointing if not claim.is_pointer_only]
    there, unheld = _held(pointing, cited, documents)
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
    """Of a task that has no report: 0 in everything that is asked for."""
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


def _held(
    pointing: Sequence[Claim], cited: Sequence[Claim], documents: Mapping[str, Sequence[str]]
) -> tuple[set[str], list[str]]:
    """The documents with a citation that can be looked up, and the claims that their lines do not hold."""
    whole = {name: CitedDocument(lines) for name, lines in documents.items()}
    faults = check_citations((citation for claim in pointing for citation in claim.citations), whole)
    there = {citation.document for citation, fault in faults.items() if fault is None}
    unheld = [
        f"{claim.text} {' '.join(map(str, claim.citations))}"
        for claim in cited
        if any(faults[citation] for citation in claim.citations) or not is_claim_supported(claim, documents)
    ]
    return there, unheld


def is_claim_supported(claim: Claim, documents: Mapping[str, Sequence[str]]) -> bool:
    """Whether the cited lines, together, have every figure of the sentence and half of its telling words. A quotation
    that is most of a sentence stands for it: what leads to it is often the writer's own count.
    """
    text = PLACEHOLDER_PATTERN.sub(" ", claim.text)
    said = normalize_words(text)
    quoted = claim.citations[0].quotation or ""
    if 2 * len(words := normalize_words(PLACEHOLDER_PATTERN.sub(" ", quoted))) >= len(said):
        text, said = quoted, words
    lines = normalize_words("\n".join(line for citation in claim.citations for line in _lines(citation, documents)))
    # A small number in words may be none: `one of them`.
    digits = {figure for word in _WORD.findall(text) for figure in _figures(word)}
    figures = {word for word in said if word[0].isdecimal() and (len(word) > len("12") or word in digits)}
    telling, there = _stems(said), _stems(lines)
    return figures <= set(lines) and len(telling & there) >= HELD_SHARE * len(telling)


def _lines(citation: Citation, documents: Mapping[str, Sequence[str]]) -> Sequence[str]:
    return documents.get(citation.document, ())[max(0, citation.first_line - 1) : citation.last_line]


def _stems(words: Iterable[str]) -> set[str]:
    return {word[:STEM_CHARACTERS] for word in words if len(word) >= TELLING_LETTERS and word not in STOP_WORDS}


class MetricComparison(Value):
    """One measure of two evaluations of the same set, question by question."""

    measure: Metric
    questions: int
    """That both have a score for."""
    first: float
    second: float
    better: int
    """Questions in which the second has more."""
    worse: int
    p: float
    """Of the exact sign test with two sides: how likely so uneven a count is if neither way were better. Ties say
    nothing, and are left out."""


def compare_evaluations(first: Evaluation, second: Evaluation) -> tuple[MetricComparison, ...]:
    """Every measure that both have. Raises BadInput where they are not of the same questions."""
    ours, theirs = ({answer.id: answer.scores for answer in one.answers} for one in (first, second))
    if ours.keys() != theirs.keys():
        other = ", ".join(sorted(ours.keys() ^ theirs.keys())[:3])
        raise BadInput(f"{first.label} and {second.label} are not of the same questions: {other} is in one of them")
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
    """The exact p of two sides: twice the chance of at most as many of the rarer sign among fair coins, 1 at most."""
    tosses = better + worse
    return min(1.0, 2 * sum(comb(tosses, heads) for heads in range(min(better, worse) + 1)) / 2**tosses)
