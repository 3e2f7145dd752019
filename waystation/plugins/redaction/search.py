"""Runs Presidio on chunks of a text, and filters what must stay and junk; also finds larger cities by name, which the
language model takes for dates or firms, or misses.

Names are filtered because the language model was trained on news, and reads code and manuals here. Dropped are names in
code or joined to it, lower-case words, acronyms, CamelCase, words of software manuals, and single words that the same
text also uses in lower case. A person's name that looks like one of these stays in the text.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from presidio_analyzer import AnalyzerEngine, BatchAnalyzerEngine, RecognizerResult

from waystation.kernel.errors import RedactionFailed
from waystation.kernel.patterns import compile_bounded
from waystation.plugins.redaction.columns import (
    expand_to_full_name,
    find_people_by_context,
    find_signature_names,
    find_speaker_names,
)
from waystation.plugins.redaction.detections import (
    MASK,
    SECRET,
    Detection,
    NormalizedView,
    UnescapedSpan,
    blank_number_joints,
    extract_json_prose,
    iter_unescaped_spans,
    mask_detections,
    resolve_overlaps,
)
from waystation.plugins.redaction.engines import (
    LANGUAGE,
    Chunk,
    Recogniser,
    build_format_recognizers,
    build_name_engine,
    detect_language,
    iter_chunk_spans,
)
from waystation.plugins.redaction.formats import FormatRecognizer, ProtectedSpanIndex, RecognizerMatch
from waystation.plugins.redaction.joined_names import JoinedWordSpan, find_joined_words
from waystation.plugins.redaction.people import (
    CITIES,
    GIVEN_NAMES,
    LAWS,
    NAMES_THAT_ARE_WORDS,
    ORDINARY_WORDS,
    TECHNOLOGY,
    TERMS,
    filter_person_names,
    find_listed_people,
    find_repeated_names,
    find_stated_people,
    strip_accents_and_case,
    strip_names,
)
from waystation.plugins.redaction.rules import DetectionConfig
from waystation.plugins.redaction.secrets import SecretRecognizer, find_whole_text_matches
from waystation.privacy.policy import RedactionLevel
from waystation.security.placeholders import SHORT_TYPES

_LAST_OF_NAME = compile_bounded(r"['’]s\b|\s-|[\n\t,;:|(){}\[\]<>\"“”*#=+/\\]|  ")
_BEHIND_NAMES = " \t\n'’"
"""The language model takes a closing quote after a name for a part of it."""
_PARTICLE = r"(?:van|von|der|den|de|del|della|di|da|do|dos|du|la|le|el|al|bin|ibn|ben|of|the|y|e|zu|ter|ten)"
_A_PARTICLE = compile_bounded(rf"\A{_PARTICLE}\Z")
_WORD = r"[^\W\d_a-z][^\W\d_]*+(?:['’-][^\W\d_]++)*+\.?"
_SHAPE = compile_bounded(rf"\A(?:{_PARTICLE} )?{_WORD}(?: (?:{_PARTICLE} ){{0,2}}(?:[ae]l-)?{_WORD}){{0,4}}\Z")
_WORD_OF_A_NAME = compile_bounded(r"(?<![\w`/\\.@#$~-])[^\W\d_a-z](?:\.|['’-]?[^\W\d_]++)(?![\w(@/\\`])")
_WORDS = compile_bounded(r"[^\W\d_]+")
_LOWER_WORD = compile_bounded(r"(?<![\w'’@./-])[a-z]{2,30}(?![\w@/]|\.\w)")
_CAMEL_CASE = compile_bounded(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_NAME_WITH_INNER_CAPITAL = compile_bounded(r"\A(?:Mc|Mac|De|Di|Du|La|Le|Van|Fitz)[A-Z][a-z]+\Z")
_GLUED_BEFORE = compile_bounded(r"[`_/\\.@#$~-]$|\w$")
_GLUED_AFTER = compile_bounded(r"[`_/\\(@#\w]|[.=:-]\w|\.?\[")
_BEHIND = compile_bounded(r"(?P<owned>['’]s)? (?P<noun>[A-Za-z][a-z]{2,20}+)(?![\w'’-])")
_MAKER = compile_bounded(r"\b(?:Amazon|AWS|Apache|Azure|Eclipse|IBM|Microsoft|Mozilla|Oracle) \Z")
_BEFORE = 20


class NameFilter:
    """Distinguishes names from junk within one text."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _lower_words(self) -> frozenset[str]:
        return frozenset(_LOWER_WORD.findall(self._text)) - NAMES_THAT_ARE_WORDS

    def has_candidate_in(self, start: int, end: int) -> bool:
        """Return whether anything there has the form of a name: if not, the language model need not read it."""
        return _WORD_OF_A_NAME.search(self._text, start, end) is not None

    def extract_name(self, find: Detection) -> Detection | None:
        """Return the part of the detection that is a name; None if there is none."""
        cut = _LAST_OF_NAME.search(self._text, find.start, find.end)
        end = cut.start() if cut else find.end
        name = self._text[find.start : end].rstrip(_BEHIND_NAMES)
        end = find.start + len(name)
        if not _SHAPE.match(name) or self._is_glued(find.start, end) or self._is_junk(name):
            return None
        return None if " " not in name and self._is_term(name, end) else find._replace(end=end)

    def _is_term(self, name: str, end: int) -> bool:
        """Return whether its surroundings make it half of a term: `Fourier transform`, `Dijkstra's algorithm`, `Amazon
        Aurora`.
        """
        if _MAKER.search(self._text, max(0, end - len(name) - _BEFORE), end - len(name)):
            return True
        behind = _BEHIND.match(self._text, end)
        if behind is None:
            return False
        noun = behind["noun"].lower()
        nouns = {noun, noun.removesuffix("s")}
        if behind["owned"] is None:
            return not TERMS.isdisjoint(nouns)
        return not LAWS.isdisjoint(nouns) and strip_accents_and_case(name) not in GIVEN_NAMES

    def _is_glued(self, start: int, end: int) -> bool:
        before = _GLUED_BEFORE.search(self._text, max(0, start - 1), start)
        return before is not None or _GLUED_AFTER.match(self._text, end) is not None

    def _is_junk(self, name: str) -> bool:
        words = [word for word in _WORDS.findall(name) if not _A_PARTICLE.match(word)]
        if len(name) < 3 or all(word.isupper() for word in words):
            return True
        if any(_CAMEL_CASE.search(word) and not _NAME_WITH_INNER_CAPITAL.match(word) for word in words):
            return True
        lower = {word.lower() for word in words}
        if lower & (TECHNOLOGY - NAMES_THAT_ARE_WORDS):
            return True
        return lower <= self._lower_words and not (len(lower) > 1 and lower & GIVEN_NAMES - ORDINARY_WORDS)


_SCORE = 0.5
"""Below the language model's score: `Florence` and `Austin` are people if it says so."""
_MAX_WORDS = 4
_CAPITALISED = compile_bounded(r"(?<!\w)[^\W\d_a-z][^\W\d_]*+(?:['’-][^\W\d_]++)*+")


def find_cities(text: str, start: int, end: int) -> Iterator[Detection]:
    """Yield cities in this span of the text, each with its longest name."""
    words = [word.span() for word in _CAPITALISED.finditer(text, start, end)]
    position = start
    for first, (begin, _) in enumerate(words):
        if begin < position:
            continue
        for _, last in reversed(words[first : first + _MAX_WORDS]):
            if text[begin:last] in CITIES:
                yield Detection("LOCATION", begin, last, _SCORE)
                position = last
                break


_SEPARATOR = compile_bounded(r"(?<=\S),(?=[^\s\d])|(?<=[^\s\d]),(?=\S)")
"""The comma of CSV: the language model takes `17,Ada Lovelace,4` for one word, and finds the name between line ends."""
_ANY_DIGIT = "0"
"""Makes every recogniser compile its patterns, which Presidio's do on their first use."""
_NUMBERS = frozenset({"CREDIT_CARD", "IBAN_CODE", "PHONE_NUMBER", "US_SSN"})
"""Types that are also searched for when joined to a word: other identifiers are names of things there."""
MAX_SEARCH_ROUNDS, MAX_FINDS_PER_CHUNK = 2, 200
"""Maximum search rounds and detections of a chunk.

In 7,000 documents and pieces of them no round after the first found anything.
"""


class TextContext:
    """A text, with what must be known about all of it in order to judge a detection."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.protected = ProtectedSpanIndex(text)
        self.names = NameFilter(text)

    @cached_property
    def _prose(self) -> Sequence[UnescapedSpan]:
        """Prose of its JSON, in pieces, in the order in which they begin."""
        values = (
            UnescapedSpan(value.text[start:end], value.starts[start:end], value.ends[start:end])
            for value in extract_json_prose(self.text)
            for start, end in iter_chunk_spans(value.text)
        )
        return sorted(values, key=_first_place)

    def get_json_prose(self, start: int, end: int) -> Sequence[UnescapedSpan]:
        """Return the sentences in JSON values that begin in this span."""
        first, last = (bisect_left(self._prose, place, key=_first_place) for place in (start, end))
        return self._prose[first:last]


def _first_place(prose: UnescapedSpan) -> int:
    return prose.starts[0]


class _Part(NamedTuple):
    """A part that is read without its surroundings: a chunk, or a sentence that the text quotes."""

    context: TextContext
    start: int
    end: int
    quoted: UnescapedSpan | None = None

    @classmethod
    def from_quoted(cls, quoted: UnescapedSpan) -> "_Part":
        """Build it as a text of its own."""
        return cls(TextContext(quoted.text), 0, len(quoted.text), quoted)


class DetectionResult(NamedTuple):
    """The detections in chunks of a text."""

    detections: list[Detection]
    unsearched_languages: frozenset[str]
    """Languages of chunks in which names were searched for by lists only, since there is no model."""

    def merge(self, more: "DetectionResult") -> "DetectionResult":
        """Return both results combined."""
        return DetectionResult(self.detections + more.detections, self.unsearched_languages | more.unsearched_languages)

    def map_to_original(self, view: NormalizedView) -> "DetectionResult":
        """Return the result in positions of the text of the view."""
        return DetectionResult(
            [_between(find, *view.to_original_range(find.start, find.end)) for find in self.detections],
            self.unsearched_languages,
        )


class PresidioSearch:
    """Presidio's engines, loaded when first needed. Not thread-safe."""

    def __init__(self, rules: DetectionConfig) -> None:
        self._rules = rules
        self._unclear = next(iter(rules.models))
        self._formats: list[Recogniser] = []
        self._names: dict[str, BatchAnalyzerEngine] = {}

    def load(self, *, with_names: bool) -> None:
        """Load what most texts need. Raises RedactionFailed if the spaCy model is not installed."""
        self._formats_in(_ANY_DIGIT, secrets_only=False)
        if with_names:
            detect_language("")
            self._name_engine(self._unclear)

    def search_whole_text(self, text: str, level: RedactionLevel) -> DetectionResult:
        """Detect what only the text as a whole shows. Raises TextRedactionError."""
        hits = (Detection(*hit) for hit in (*find_whole_text_matches(text), *_hits_in_escapes(text)))
        finds = (find for find in hits if find.type == SECRET or level is not RedactionLevel.SECRETS)
        return DetectionResult(
            [find for find in finds if not self._rules.custom.is_allowed(text[find.start : find.end])], frozenset()
        )

    def search_chunks(self, searched: TextContext, chunks: Sequence[Chunk], level: RedactionLevel) -> DetectionResult:
        """Detect everything to replace in these chunks. Raises RedactionFailed."""
        formats = self.find_formats(searched, chunks, secrets_only=level is RedactionLevel.SECRETS)
        if level is not RedactionLevel.NAMES:
            return DetectionResult(formats, frozenset())
        names = self.find_names(searched, chunks)
        return DetectionResult(formats + names.detections, names.unsearched_languages)

    def find_formats(self, searched: TextContext, chunks: Sequence[Chunk], *, secrets_only: bool) -> list[Detection]:
        """Detect secrets, and direct identifiers if requested.

        What was found is masked, and its chunk searched again until nothing more is found: next to another number a
        phone number may look like part of a table, next to a placeholder it does not. So redacting twice changes
        nothing. A chunk in which each detection uncovers another was crafted for that, as was one with a detection
        every ten characters: the rest of it is replaced as a whole.
        """
        finds, dense = list[Detection](), list[Chunk]()
        pieces = [(start, searched.text[start:end]) for start, end in chunks]
        for _ in range(MAX_SEARCH_ROUNDS):
            searched_again: list[tuple[int, str]] = []
            for offset, piece in pieces:
                found = self._formats_of(searched, offset, piece, secrets_only=secrets_only)
                if len(found) > MAX_FINDS_PER_CHUNK:
                    dense.append((offset, offset + len(piece)))
                elif found:
                    finds += [_moved(hit, offset) for hit in found]
                    searched_again.append((offset, mask_detections(piece, found)))
            pieces = searched_again
        dense += [(offset, offset + len(piece)) for offset, piece in pieces]
        return finds + [rest for start, end in dense for rest in searched.protected.iter_gaps_as_secrets(start, end)]

    def _formats_of(
        self, searched: TextContext, offset: int, piece: str, *, secrets_only: bool
    ) -> tuple[Detection, ...]:
        """Return new detections in a piece, in positions of it."""
        fresh = (
            hit
            for hit in self._formats_in(piece, secrets_only=secrets_only)
            if MASK not in piece[hit.start : hit.end] and self._counts(searched, _moved(hit, offset))
        )
        return resolve_overlaps(piece, fresh)

    def find_names(self, searched: TextContext, chunks: Sequence[Chunk]) -> DetectionResult:
        """Detect names of people and places, in the languages that have a model.

        Raises RedactionFailed if a spaCy model is not installed.
        """
        by_language: dict[str, list[_Part]] = {}
        quoted = (_Part.from_quoted(one) for start, end in chunks for one in searched.get_json_prose(start, end))
        for part in (*(_Part(searched, start, end) for start, end in chunks), *quoted):
            if part.context.names.has_candidate_in(part.start, part.end):
                language = detect_language(strip_names(part.context.text[part.start : part.end])) or self._unclear
                by_language.setdefault(language, []).append(part)
        not_sought = frozenset(by_language) - frozenset(self._rules.models)
        finds = [
            find
            for language, parts in by_language.items()
            for find in self._names_in(searched, parts, None if language in not_sought else language)
        ]
        return DetectionResult(finds + self._joined_names(searched, chunks), not_sought)

    def _joined_names(self, searched: TextContext, chunks: Sequence[Chunk]) -> list[Detection]:
        """Detect names in file names, and others of joined words.

        They reveal no language, so the first model reads them. Each is read once, however often it occurs.
        """
        by_text: dict[str, list[JoinedWordSpan]] = {}
        for joined in (one for start, end in chunks for one in find_joined_words(searched.text, start, end)):
            by_text.setdefault(joined.reading.text, []).append(joined)
        parts = [_Part.from_quoted(same[0].reading) for same in by_text.values()]
        names = list[Detection]()
        for part, finds, same in zip(parts, self._seen_in(parts, self._unclear), by_text.values(), strict=True):
            text = part.context.text
            both = (*finds, *_listed(text, part.start, part.end, self._unclear))
            candidates = [name for find in both if (name := part.context.names.extract_name(find))]
            for name in self._people_and_places(part.context, candidates):
                if " " not in text[name.start : name.end]:
                    continue
                for one in same if name.type == "PERSON" else [one for one in same if one.is_file]:
                    found = _of_quoted(name, one.reading)
                    if not searched.protected.should_keep_joined_name(found, in_file_name=one.is_file):
                        names.append(found)
        return [one for one in names if not self._allows(searched, one)]

    def _names_in(self, searched: TextContext, parts: Sequence[_Part], language: str | None) -> list[Detection]:
        """Detect names by the model of this language, if there is one, and by rules for all languages."""
        seen = self._seen_in(parts, language) if language else [list[Detection]() for _ in parts]
        own, names = list[Detection](), list[Detection]()
        for part, finds in zip(parts, seen, strict=True):
            text = part.context.text
            both = (*finds, *_listed(text, part.start, part.end, language))
            candidates = [name for find in both if (name := part.context.names.extract_name(find))]
            around = [
                find for find in find_people_by_context(text, part.start, part.end) if self._counts(part.context, find)
            ]
            if part.quoted is None:
                own += candidates
                names += around
            else:
                quoted = (*around, *self._people_and_places(part.context, candidates))
                names += (_of_quoted(name, part.quoted) for name in quoted)
        names += self._people_and_places(searched, own)
        persons = [name for name in names if name.type == "PERSON"]
        chunks = ((part.start, part.end) for part in parts if part.quoted is None)
        again = (person for start, end in chunks for person in find_repeated_names(searched.text, persons, start, end))
        names += [name for find in again if (name := searched.names.extract_name(find))]
        called = {searched.text[one.start : one.end] for one in persons}
        names = [one._replace(type="PERSON") if searched.text[one.start : one.end] in called else one for one in names]
        return [name for name in names if self._counts(searched, name)]

    def _seen_in(self, parts: Sequence[_Part], language: str) -> list[list[Detection]]:
        """Return what the model takes for names in each part."""
        pieces = [_SEPARATOR.sub("\n", part.context.text[part.start : part.end]) for part in parts]
        answers = _analyse(self._name_engine(language), pieces)
        return [[_moved(hit, part.start) for hit in hits] for part, hits in zip(parts, answers, strict=True)]

    def _people_and_places(self, searched: TextContext, candidates: Sequence[Detection]) -> list[Detection]:
        persons = filter_person_names(searched.text, (name for name in candidates if name.type == "PERSON"))
        names = (
            *(expand_to_full_name(searched.text, name) for name in persons),
            *(name for name in candidates if name.type != "PERSON"),
        )
        return [name for name in names if self._counts(searched, name)]

    def _counts(self, searched: TextContext, find: Detection) -> bool:
        """Return whether a detection is to be replaced. That of a custom recogniser may be in a reference."""
        if searched.protected.should_keep(find, though_a_reference=find.type in self._rules.custom.types):
            return False
        return not self._allows(searched, find)

    def _allows(self, searched: TextContext, find: Detection) -> bool:
        return self._rules.custom.is_allowed(searched.text[find.start : find.end])

    def _formats_in(self, piece: str, *, secrets_only: bool) -> list[Detection]:
        found = [
            hit
            for recogniser in self._recognisers()
            if not secrets_only or SECRET in recogniser.supported_entities
            for hit in _found_by(recogniser, piece, recogniser.supported_entities)
        ]
        if not secrets_only and (apart := blank_number_joints(piece)) != piece:
            found += self._numbers_in(apart)
        return found

    def _numbers_in(self, piece: str) -> Iterator[Detection]:
        for recogniser in self._recognisers():
            if types := _NUMBERS.intersection(recogniser.supported_entities):
                yield from _found_by(recogniser, piece, list(types))

    def _recognisers(self) -> list[Recogniser]:
        self._formats = self._formats or build_format_recognizers(self._rules)
        return self._formats

    def _name_engine(self, language: str) -> BatchAnalyzerEngine:
        if language not in self._names:
            self._names[language] = BatchAnalyzerEngine(_names_by(self._rules.models[language]))
        return self._names[language]


_SECRETS = SecretRecognizer()


def _hits_in_escapes(text: str) -> Iterator[RecognizerMatch]:
    """Yield secrets whose names, quotes or symbols are escaped, as in JSON within JSON and in encoded URLs."""
    for stretch in iter_unescaped_spans(text):
        for hit in chain(find_whole_text_matches(stretch.text), _SECRETS.find_matches(stretch.text)):
            start, end = stretch.to_original_range(hit.start, hit.end)
            yield hit._replace(start=start, end=end)


def _names_by(spacy_model: str) -> AnalyzerEngine:
    try:
        return build_name_engine(spacy_model)
    except OSError:
        raise RedactionFailed(f"the spaCy model {spacy_model} is not installed") from None


def _analyse(engine: BatchAnalyzerEngine, pieces: list[str]) -> list[list[Detection]]:
    # Its keyword arguments are untyped.
    answers = engine.analyze_iterator(pieces, LANGUAGE, len(pieces))  # pyright: ignore[reportUnknownMemberType]
    return [[_found(hit) for hit in hits] for hits in answers]


def _found_by(recogniser: Recogniser, piece: str, types: list[str]) -> Iterator[Detection]:
    """Yield a recogniser's detections. Ours are called directly: Presidio creates an object and a log line for each."""
    if isinstance(recogniser, FormatRecognizer):
        for kind, start, end, score in recogniser.find_matches(piece):
            if kind in types:
                yield Detection(SHORT_TYPES.get(kind, kind), start, end, score)
    else:
        yield from (_found(hit) for hit in recogniser.analyze(piece, types) if hit.score > 0)


def _listed(text: str, start: int, end: int, language: str | None) -> Iterator[Detection]:
    """Yield what lists and patterns find in this span. They were made for English."""
    yield from find_signature_names(text, start, end)
    yield from find_stated_people(text, start, end)
    yield from find_listed_people(text, start, end, by_all_words=language is None)
    if language:
        yield from find_cities(text, start, end)
        yield from find_speaker_names(text, start, end)


def _found(hit: RecognizerResult) -> Detection:
    return Detection(SHORT_TYPES.get(hit.entity_type, hit.entity_type), hit.start, hit.end, hit.score)


def _of_quoted(find: Detection, quoted: UnescapedSpan) -> Detection:
    return _between(find, *quoted.to_original_range(find.start, find.end))


def _moved(find: Detection, offset: int) -> Detection:
    return _between(find, find.start + offset, find.end + offset)


def _between(find: Detection, start: int, end: int) -> Detection:
    return Detection(find.type, start, end, find.score)
