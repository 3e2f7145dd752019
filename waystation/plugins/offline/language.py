"""Text analysis without a model, for any script: words, stems, query terms with synonyms, sentences."""

import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from waystation.kernel.patterns import LinearPattern, compile_bounded, compile_linear

_WORD = compile_bounded(r"[^\W_]+(?:['’][^\W_]+)?")
_POSSESSIVE = compile_bounded(r"['’]s?$")
_CJK = compile_bounded(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+")
_SENTENCE_END = compile_bounded(r"(?<=[^.\s][.!?])[\"')\]”’»]*\s+(?=[^\sa-z])|(?<=[。！？])\s*")
_ABBREVIATED = compile_bounded(
    r"(?:\b(?:\w|No|Nos|Mrs?|Ms|Dr|Prof|St|Inc|Corp|Co|Ltd|Fig|Sec|Art|Abs|Nr|Bd|Abb|vs|cf|approx|ca|bzw|Jan|Feb|Aug"
    r"|Sept?|Oct|Nov|Dec))\.$"
)
"""A full stop that ends no sentence: `U.S. Treasury`, `ASU No. 5`."""
_VERSION_TAIL = compile_bounded(r"(?<=[a-z]{3})v?\d+$")

_STOP_WORDS = """
a about above according after again all also am among an and any are as ask asked at be because been before being
between both but by can carry carries could contain contains describe did do does doing down during each either else
every explain few find for from further give given goal had has have having he her here hers him his how i if in into
is it its just let list many may me might more most much must my need needs neither no nor not of off on once one only
or other our out over own passage passages question same say says see shall she should show so some state such tell than
that the their them then there these they this those through to too under until up upon us use used uses using very
was we were what when where whether which while who whom whose why will with would you your answer answers direct
directly document documents evidence aber als auf aus bei das dem den der des die ein eine einen einer es für gegen
hat ich im ist nach nicht oder sich sie sind und von vor war welche welcher welches wer wie wird wo zu zum zur au aux
avec ce ces cette comment dans de du elle en est et il la le les leur mais ne ou où par pas pour quand que quel quelle
quelles quels qui se ses son sont sur un une como con cual cuales cuando del donde el esta las lo los más para pero
por qué quién sin su sus una y
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words without topical meaning, in English, German, French and Spanish."""

_RELATED: tuple[tuple[str, ...], ...] = (
    ("licence", "license", "licences", "licensing", "licensed"),
    ("revenue", "revenues", "sales", "turnover"),
    ("expenditure", "expenditures", "purchases", "capex", "spend", "spent"),
    ("profit", "earnings"),
    ("inventory", "inventories"),
    ("population", "inhabitants", "people"),
    ("employees", "employed", "headcount", "staff", "workforce"),
    ("purpose", "summary", "overview", "description", "introduction", "library", "helps"),
    (
        "attention", "deprecated", "beta", "alpha", "gpl", "lgpl", "mpl", "security", "deprecation", "breaking",
        "experimental", "unmaintained", "vulnerability", "incompatible", "agpl", "unstable", "obsolete", "warning",
        "caution",
    ),
    ("exceptions", "except", "exception", "unless", "however", "limitation", "limits", "caveat", "unsupported"),
    ("contradictions", "contradict", "contrary", "conflict", "although", "inconsistent"),
    ("gaps", "unknown", "unclear", "todo", "missing", "undecided"),
    ("cost", "costs", "price", "fee", "charge"),
    ("limit", "limits", "maximum", "minimum", "quota", "threshold"),
    ("author", "maintainer", "owner", "contact"),
    ("deadline", "date", "due", "until", "expires"),
    ("error", "errors", "failure", "fault", "bug", "crash"),
    ("requirement", "requirements", "requires", "dependency", "dependencies", "prerequisite"),
    ("install", "installation", "setup", "configure"),
    ("decision", "decided", "agreed", "concluded", "resolution"),
)  # fmt: skip
"""Common words that are synonyms in documents; the first names the group."""

_INTENTS: tuple[tuple[re.Pattern[str] | LinearPattern, str], ...] = (
    (
        compile_linear(
            r"\bwhat\b.*\b(?:for(?:[^\p{L}\p{N}_ ]|$)|do(?:es)?[^\p{L}\p{N}_]*$)|\bused for\b|\bpurpose", re.IGNORECASE
        ),
        "purpose",
    ),
    (compile_bounded(r"\b(watch out|careful|concern|risk|problem|caveat)", re.IGNORECASE), "attention"),
    (compile_bounded(r"\bhow (?:much (?:is|was|are|were)|expensive)\b", re.IGNORECASE), "cost"),
    (compile_bounded(r"\bby when\b|^when\b", re.IGNORECASE), "deadline"),
    (compile_bounded(r"^who\b", re.IGNORECASE), "author"),
    (compile_bounded(r"\bcapital (?:expenditures?|spending)\b", re.IGNORECASE), "property plant equipment"),
)
"""Topics of question forms whose words alone do not express them: a group of related words, or these words."""

_SHORT_FORMS = tuple(
    (compile_bounded(rf"\b(?:{short})\b", re.IGNORECASE), long)
    for short, long in (
        ("capex", "capital expenditures"),
        ("cogs", "cost of revenue"),
        ("ppn?e|pp&e", "property, plant and equipment"),
        ("sg&a", "selling, general and administrative expenses"),
        ("r&d", "research and development"),
        ("eps", "earnings per share"),
        ("net ar", "accounts receivable, net"),
    )
)
"""Short forms in questions for figures, with the words that documents use."""

_FIGURE_ASKED = compile_bounded(
    r"\b(?:how (?:many|much|long|high|old|far|fast|often|large|big)|what (?:percentage|share|number|amount)"
    r"|combien|cuánt[oa]s?|wie (?:viele?|hoch|lange|oft|alt|groß)"
    r"|(?:what|which|wie|was|quels?|quelles?|cuál(?:es)?) (?:was|were|is|are|war|waren|ist|sind|est|sont|era|fue|es"
    r"|son)\b[^?]{0,120}?\b(?:revenues?|sales|turnover|incomes?|profits?|loss|earnings|assets|liabilities|equity|debts?"
    r"|costs?|expenses?|expenditures?|margins?|rates?|prices?|fees?|dividends?|payables?|receivables?|inventor(?:y|ies)"
    r"|backlog|cash ?flows?|cogs|capex|ppn?e|pp&e|ebitda|eps|amounts?|totals?|numbers?|percentage|share"
    r"|property|goodwill|depreciation|amortization|tax(?:es)?|umsatz|gewinn|verlust|kosten|preis|miete|anzahl))\b",
    re.IGNORECASE,
)
_DATE_ASKED = compile_bounded(r"\bwhen\b|\bwhat (?:year|date)\b|\b(?:wann|quand|cuándo)\b", re.IGNORECASE)
_FIGURE, _DATE = "0", "00"
"""Stems that stand for any figure in a text, and for a figure that may be only a date or a reference number."""
_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_PLACED = compile_bounded(
    rf"\b(?:{_MONTHS}|notes?|items?|sections?|tables?|pages?|parts?|forms?|no\.)\s+\d+(?:[.,-]\w+)*+"
    r"|(?<![\d,.$€£])\b(?:19|20)\d\d\b(?![,.]\d)|\bfy\d+",
    re.IGNORECASE,
)
"""Figures that state a time or a place, not a quantity."""
_DIGIT = compile_bounded(r"\d")
_YEAR = compile_bounded(r"(?:fy)?\d{1,9}$", re.IGNORECASE)
_ADJUNCT = compile_bounded(
    r"\b(?:before|after|when|while)\s+\w+ing\b|\b(?:total )?(?:amount|number)s? of\b", re.IGNORECASE
)
_RANGE = compile_bounded(
    r"\b(?:documents?|pages?|lines?|seiten?)\s+\d{1,9}\s?(?:to|bis|-|–)\s?\d{1,9}\b", re.IGNORECASE
)
"""States where to look, not what to look for."""
_ASKS = compile_bounded(r"[,:]\s+(?=(?:what|which|how|who|whose|when|where|why)\b)", re.IGNORECASE)
_DIRECTS = compile_bounded(
    r"^(?:according|based|basing|by|considering|given|taking|using|when)\b"
    r"|\b(?:answers?|answering|asked|assum(?:e|ing)|decimal|information|judge?ments?|metric|question|respon(?:d|se)|round"
    r"|solution)\b",
    re.IGNORECASE,
)
"""Matches a sentence, or the part before the question in one, that says how to answer, not what is asked."""
_UNIT_ASKED = compile_bounded(r"\((?:in|as) [^()?]{0,60}\)", re.IGNORECASE)
_COLLECTION = compile_bounded(
    r"\b(?:each|every|all|these|those|jede[rsnm]?|alle[rn]?|diese[rnms]?|chaque|tous|toutes|ces|cada|todos|todas|estos|estas)"
    r"(?:\s+(?:of\s+)?(?:the\s+|these\s+|them\b)?(?P<noun>\w+))?",
    re.IGNORECASE,
)


FIGURE_WEIGHT, ASIDE = 2.0, 0.25
_WHEN = "end ended year years fiscal quarter period amount number total"
_ASIDE = frozenset([*_MONTHS.split("|"), *_WHEN.split()])
"""Words of a question for a figure that say when, or that a figure is wanted.

The table row that has it says neither.
"""


class QueryTerm(NamedTuple):
    """One thing to look for: the words to search with, and the stems that show it in a text."""

    words: tuple[str, ...]
    """Empty for a figure: any will do."""
    stems: frozenset[str]
    weight: float = 1.0
    """Weight relative to the other terms; see `apply_idf_weights`."""
    aside: bool = False
    """Whether it only says when, or that a figure is wanted: a text that shows nothing else is not about the
    question.
    """


def iter_words(text: str) -> Iterator[str]:
    """Yield the words of a text in lower case; scripts without spaces give character pairs."""
    for match in _WORD.finditer(text):
        word = _POSSESSIVE.sub("", match.group().casefold())
        if not _CJK.search(word):
            yield word
            continue
        for run in _CJK.findall(word):
            yield from (run[at : at + 2] for at in range(max(1, len(run) - 1)))


@lru_cache(maxsize=20_000)
def compute_stem(word: str) -> str:
    """Return a crude stem, for comparisons only: `licences` and `licence`, `shipping` and `ship` are equal."""
    root = _VERSION_TAIL.sub("", word.casefold())
    if root.endswith("ies") and len(root) > 4:
        return f"{root[:-3]}y"
    if root.endswith("s") and not root.endswith("ss") and len(root) > 3:
        root = root[:-1]
    for ending in ("ing", "ed", "e"):
        if root.endswith(ending) and len(root) - len(ending) >= 3:
            root = root[: -len(ending)]
            break
    return root[:-1] if len(root) > 3 and root[-1] == root[-2] and root[-1] not in "sl" else root


def build_stem_set(text: str) -> frozenset[str]:
    """Return the stems of a text's words; if it has digits, also the marker stem of dates, and that of figures unless
    all of them state a time or a place.
    """
    found = frozenset(map(compute_stem, iter_words(text)))
    if not _DIGIT.search(text):
        return found
    return found | ({_DATE, _FIGURE} if _DIGIT.search(_PLACED.sub(" ", text)) else {_DATE})


def is_number_or_date_question(text: str) -> bool:
    """Return whether a question asks for a number or a date."""
    text = normalize_question(text)
    return _FIGURE_ASKED.search(text) is not None or _DATE_ASKED.search(text) is not None


def strip_answer_instructions(text: str) -> str:
    """Remove how to answer from a question: "Answer in USD millions", "Using only the balance sheet, …"."""
    told = split_sentences(text)
    asking = [sentence for sentence in told if sentence.endswith(("?", "？")) or not _DIRECTS.search(sentence)]
    return " ".join(map(_without_lead, asking)) if any(one.endswith(("?", "？")) for one in asking) else text


def _without_lead(sentence: str) -> str:
    begin = _ASKS.search(sentence)
    return sentence[begin.end() :] if begin and _DIRECTS.search(sentence[: begin.start()]) else sentence


def normalize_question(text: str) -> str:
    """Expand the short forms of a question or goal, and remove where to look and how to answer."""
    text = _RANGE.sub(" ", _UNIT_ASKED.sub(" ", strip_answer_instructions(text)))
    for short, long in _SHORT_FORMS:
        text = short.sub(long, text)
    return text


def extract_stems(text: str) -> list[str]:
    """Return the stems of a text's words without stop words, in order."""
    return [compute_stem(word) for word in iter_words(text) if word not in STOP_WORDS]


def extract_query_terms(text: str) -> tuple[QueryTerm, ...]:
    """Return what a question or goal looks for, in order, each with its synonyms.

    Leaves out what it calls the documents ("these packages") and when the answer is wanted ("before shipping").
    """
    text = normalize_question(text)
    found: dict[str, QueryTerm] = {}
    figure = is_number_or_date_question(text)
    collection = {noun.casefold() for match in _COLLECTION.finditer(text) if (noun := match["noun"])}
    for word in iter_words(_ADJUNCT.sub(" ", text)):
        if word not in STOP_WORDS and word not in collection:
            concept = _concept(word)
            aside = figure and (word in _ASIDE or _YEAR.match(word))
            found.setdefault(min(concept.stems), concept._replace(weight=ASIDE, aside=True) if aside else concept)
    for pattern, name in _INTENTS:
        if pattern.search(text):
            # A question about a person is not answered by a sentence that shares only the word "owner" with it.
            concept = _concept(*name.split())._replace(aside=name == "author")
            found.setdefault(min(concept.stems), concept)
    if all(concept.aside for concept in found.values()):
        found = {key: concept._replace(aside=False) for key, concept in found.items()}
    if found and figure:
        kind = _DATE if _DATE_ASKED.search(text) else _FIGURE
        found[kind] = QueryTerm(words=(), stems=frozenset({kind}), weight=FIGURE_WEIGHT)
    return tuple(found.values())


def extract_proper_names(question: str) -> list[str]:
    """Return the names in an English question, as written."""
    question = normalize_question(question)
    found = _NAME.findall(question) if _ENGLISH.search(question) else []
    return [name for name in dict.fromkeys(found) if not _ASIDE.union(STOP_WORDS).issuperset(iter_words(name))]


_NAME = compile_bounded(r"(?<=[a-z,(] )[A-Z][A-Za-z]+(?:(?: & | of | )[A-Z][A-Za-z]+)*+")
_ENGLISH = compile_bounded(r"\b(?:the|what|which|how|who|when|where|why|is|are|do|does|did|were)\b", re.IGNORECASE)
"""Without such a word the text may be German, which capitalises every noun."""


def apply_idf_weights(looked_for: Sequence[QueryTerm], texts: Sequence[str]) -> tuple[QueryTerm, ...]:
    """Reduce the weight of terms that more of these texts show (inverse document frequency); the rarest term that any
    text shows keeps its weight.
    """
    present = [build_stem_set(text) for text in texts]
    counts = [sum(not concept.stems.isdisjoint(own) for own in present) for concept in looked_for]
    telling = [count for count, concept in zip(counts, looked_for, strict=True) if not concept.aside]
    most = _rarity(min(filter(None, telling or counts), default=0), len(texts))
    return tuple(
        concept._replace(weight=concept.weight * min(1.0, _rarity(number, len(texts)) / most))
        for concept, number in zip(looked_for, counts, strict=True)
    )


def is_about_every_document(text: str) -> bool:
    """Return whether a question or goal concerns all documents: "which licences do these packages carry"."""
    return _COLLECTION.search(text) is not None


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences with single spaces."""
    return [sentence for start, end in find_sentence_spans(text) if (sentence := " ".join(text[start:end].split()))]


def find_sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return start and end of each sentence, in characters."""
    cuts = [
        (match.start(), match.end())
        for match in _SENTENCE_END.finditer(text)
        if not _ABBREVIATED.search(text, max(0, match.start() - 8), match.start())
    ]
    starts = [0, *(end for _, end in cuts)]
    ends = [*(start for start, _ in cuts), len(text)]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if text[start:end].strip()]


def truncate_at_word(text: str, characters: int) -> str:
    """Return the beginning of a text, cut between words if it has any."""
    if len(text) <= characters:
        return text
    cut = text[: max(0, characters)]
    return cut.rsplit(None, 1)[0] if " " in cut.strip() else cut


def _rarity(shown: int, texts: int) -> float:
    return math.log(1 + (1 + texts) / (1 + shown))


def _concept(word: str, *others: str) -> QueryTerm:
    root = compute_stem(word)
    group = others or next((group for group in _RELATED if root in {compute_stem(member) for member in group}), ())
    known = tuple(dict.fromkeys((word, *group)))
    return QueryTerm(words=known, stems=frozenset(compute_stem(member) for member in known))
