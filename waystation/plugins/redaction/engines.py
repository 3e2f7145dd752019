"""Presidio's format recognisers and its name engine on spaCy, loaded with only what NER needs; recognisers of custom
rules; chunking of long texts, and language detection.
"""

import logging
from collections.abc import Iterator, Sequence
from functools import cache
from re import escape
from typing import cast

import spacy
from presidio_analyzer import AnalyzerEngine, PatternRecognizer, RecognizerRegistry
from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine
from presidio_analyzer.predefined_recognizers import (
    CryptoRecognizer,
    MacAddressRecognizer,
    SpacyRecognizer,
)
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from waystation.kernel.errors import TextRedactionError
from waystation.kernel.patterns import compile_bounded
from waystation.plugins.redaction import rules
from waystation.plugins.redaction.formats import LABEL_REACH, FormatRecognizer, RecognizerMatch, compile_label_pattern
from waystation.plugins.redaction.identifiers import (
    CardRecognizer,
    EmailAddressRecognizer,
    EthereumAddressRecognizer,
    IbanInAnyCaseRecognizer,
    IpAddressRecognizer,
    LabelledIdRecognizer,
    MistypedNumberRecognizer,
)
from waystation.plugins.redaction.national import PhoneFormatRecognizer, build_country_recognizers
from waystation.plugins.redaction.rules import CLEAR_SCORE, CustomPatternMatcher, CustomRecognizerSpec, DetectionConfig
from waystation.plugins.redaction.secrets import SecretRecognizer


class CustomRecognizer(FormatRecognizer):
    """Finds what one recogniser of the rules file describes."""

    TYPES = ()

    def __init__(self, kind: CustomRecognizerSpec) -> None:
        super().__init__(types=(kind.supported_entity,))
        self._kind = kind
        self._label = compile_label_pattern(kind.context) if kind.context else None
        listed = [(_any_of(kind.deny_list), kind.deny_list_score)] if kind.deny_list else []
        written = [(pattern.regex, pattern.score) for pattern in kind.patterns]
        self._patterns = [(CustomPatternMatcher(pattern), score) for pattern, score in (*written, *listed)]

    def find_matches(self, text: str) -> Iterator[RecognizerMatch]:
        """Yield every match. Raises TextRedactionError for a pattern that takes too long."""
        for pattern, score in self._patterns:
            for start, end in self._spans(pattern, text):
                if score >= CLEAR_SCORE or self._is_labelled(text, start):
                    yield RecognizerMatch(self._kind.supported_entity, start, end, max(score, CLEAR_SCORE))

    def _spans(self, pattern: CustomPatternMatcher, text: str) -> list[tuple[int, int]]:
        try:
            return pattern.find_spans(text)
        except TimeoutError:
            raise TextRedactionError(
                f"your own recogniser {self._kind.name!r} took more than {rules.SECONDS_PER_CHUNK:g} s for one "
                "piece of text: simplify its pattern, in particular nested repetitions"
            ) from None

    def _is_labelled(self, text: str, start: int) -> bool:
        return self._label is not None and self._label.search(text, max(0, start - LABEL_REACH), start) is not None


def _any_of(words: Sequence[str]) -> str:
    alternatives = "|".join(escape(word) for word in sorted(words, key=len, reverse=True))
    return rf"(?<!\w)(?:{alternatives})(?!\w)"


LANGUAGE = "en"
"""Language that Presidio is given for every text; the real one determines which engine reads it."""
Recogniser = PatternRecognizer | FormatRecognizer
_UNUSED_PIPES = ("tagger", "morphologizer", "parser", "senter", "attribute_ruler", "lemmatizer")
_NAME_LABELS = {"PERSON": "PERSON", "PER": "PERSON", "GPE": "LOCATION", "LOC": "LOCATION"}


def build_format_recognizers(rules: DetectionConfig) -> list[Recogniser]:
    """Build the recognisers of secrets, direct identifiers and custom rules.

    They are called one by one: the engine would search for words around each match, for every recogniser again, and
    ours check labels themselves.

    Presidio's recognisers of dates, URLs and UUIDs are left out because those are figures to keep; the one of British
    NHS numbers because it matches any phone number of ten digits.
    """
    return [
        SecretRecognizer(),
        EmailAddressRecognizer(),
        PhoneFormatRecognizer(),
        LabelledIdRecognizer(),
        CardRecognizer(),
        IbanInAnyCaseRecognizer(),
        MistypedNumberRecognizer(),
        CryptoRecognizer(),
        EthereumAddressRecognizer(),
        IpAddressRecognizer(),
        MacAddressRecognizer(),
        *build_country_recognizers(rules.countries),
        *(CustomRecognizer(kind) for kind in rules.custom.recognizers),
    ]


def build_name_engine(model: str) -> AnalyzerEngine:
    """Build the engine that finds PERSON and LOCATION.

    Raises OSError if the model is not installed: nothing is downloaded.
    """
    logging.getLogger("presidio-analyzer").setLevel(logging.WARNING)  # it logs two lines for every text
    recognizer = SpacyRecognizer(supported_entities=["PERSON", "LOCATION"])
    registry = RecognizerRegistry(recognizers=[recognizer], supported_languages=[LANGUAGE])
    return AnalyzerEngine(registry=registry, nlp_engine=_NerOnlyEngine(model), supported_languages=[LANGUAGE])


class _NerOnlyEngine(SpacyNlpEngine):
    """Presidio's spaCy engine, which loads only the parts that NER needs, and never from the network."""

    def __init__(self, model: str) -> None:
        pipe = spacy.load(model, exclude=_UNUSED_PIPES)
        labels = pipe.pipe_labels["ner"]
        super().__init__(
            models=[{"lang_code": LANGUAGE, "model_name": model}],
            ner_model_configuration=NerModelConfiguration(
                model_to_presidio_entity_mapping=_NAME_LABELS,
                labels_to_ignore=[label for label in labels if label not in _NAME_LABELS],
            ),
        )
        self.nlp = {LANGUAGE: pipe}


MIN_CONFIDENCE = 0.5
"""On code, logs and figures the identifier's confidence is at most 0.3; on two sentences of prose it is near 1."""


@cache
def _identifier() -> LanguageIdentifier:
    # Untyped, like the call below.
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)  # pyright: ignore[reportUnknownMemberType]


def detect_language(text: str) -> str | None:
    """Return the ISO 639-1 code; None if it is unclear, as in code, tables and a few words.

    Three-letter codes are no language (`zxx`), or one without a model, such as Nigerian Pidgin for short English.
    """
    language, confidence = cast("tuple[str, float]", _identifier().classify(text))  # pyright: ignore[reportUnknownMemberType]
    return language if confidence >= MIN_CONFIDENCE and len(language) == 2 else None


Chunk = tuple[int, int]
CHUNK_CHARACTERS = 2_000
_OVERLAP = 200
_SENTENCE_END = compile_bounded(r"(?<=[.!?])\s")
_SPACE = compile_bounded(r"\s")


def iter_chunk_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each chunk, covering the text in order.

    A chunk ends at its last line end. Without one it ends at a sentence, a space or anywhere, and the next begins up to
    200 characters earlier, so that what the cut separates is complete in one of them.
    """
    start = 0
    while start < len(text):
        limit = start + CHUNK_CHARACTERS
        if limit >= len(text):
            yield start, len(text)
            return
        end = text.rfind("\n", start + 1, limit) + 1
        if end:
            yield start, end
            start = end
            continue
        end = _soft_end(text, start, limit)
        yield start, end
        start = _soft_start(text, end)


def _soft_end(text: str, start: int, limit: int) -> int:
    half = start + CHUNK_CHARACTERS // 2
    for boundary in (_SENTENCE_END, _SPACE):
        ends = [match.end() for match in boundary.finditer(text, half, limit)]
        if ends:
            return ends[-1]
    return limit


def _soft_start(text: str, end: int) -> int:
    space = _SPACE.search(text, end - _OVERLAP, end)
    return space.end() if space and space.end() < end else end - _OVERLAP
