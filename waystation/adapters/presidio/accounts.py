"""Numbers of cards, bank accounts and wallets: by their checks, and behind their label also where a digit is wrong."""

import re
from collections.abc import Iterator
from functools import cache

from presidio_analyzer import Pattern, RecognizerResult
from presidio_analyzer.nlp_engine import NlpArtifacts
from presidio_analyzer.predefined_recognizers import CreditCardRecognizer, IbanRecognizer
from presidio_analyzer.predefined_recognizers.generic.iban_patterns import regex_per_country

from waystation.adapters.presidio.formats import FormatRecognizer, Hit
from waystation.adapters.presidio.labels import CARD, lower
from waystation.patterns import proven, transient

_CARD_ISSUERS = proven(
    r"4(?:\d{12}|\d{15}|\d{18})|(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}"
    r"|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}|35\d{14}|6(?:011|2\d\d|5\d\d|4[4-9]\d)\d{12}"
)
_LABELLED_CARD = proven(
    rf"(?:{CARD})\\?[\"']?\s{{0,2}}(?:(?:is|was|lautet|ist|est|es|è|é)\s|[:=#|])?[\s\"']{{0,3}}"
    r"(?P<number>\d(?:[ -]?\d){12,18})(?![\w]|[.-]\d)"
)
_POINT, _EITHER = proven(r"\d\.\Z"), proven(r"(?:\d\.|(?:(?<!\d)0|[ \t(]\d{1,9}),)\Z")
"""What stands before decimals. With a comma that is `0,…` or a figure in a sentence: else it parts two cells of CSV."""
_IBAN_LABEL = proven(r"\biban\b[^\n\d]{0,24}\Z", re.IGNORECASE)
_LABEL_REACH = 32
_WRITTEN = proven(
    r"(?<![A-Za-z0-9])(?:[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,3})?"
    r"|[a-z]{2}\d{2}(?:[ -]?[a-z0-9]{4}){2,7}(?:[ -]?[a-z0-9]{1,3})?)(?![A-Za-z0-9])"
)
_IN_FOURS = proven(r"\w{4}(?:[ -]\w{4}){2,7}(?:[ -]\w{1,3})?")
_LAST_GROUP_WITH_DIGIT = proven(r"\A(?>.*\d)[A-Za-z0-9]*+")
_ETHEREUM = proven(r"(?<!\w)0x(?!0{36})[0-9A-Fa-f]{40}(?!\w)")
_CAPITALS = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""Unlike `str.upper` it keeps the length of any text."""


class CardRecognizer(CreditCardRecognizer):
    """Presidio's, with Mastercard's newer numbers, and without numbers that no issuer gives out (microseconds of a
    clock) and decimals of a figure.
    """

    def __init__(self) -> None:
        newer = Pattern("Mastercard from 2", r"\b2[2-7]\d{2}[- ]?\d{4}[- ]?\d{4}[- ]?\d{4}\b", 0.3)
        super().__init__(patterns=[*self.PATTERNS, newer])

    def analyze(
        self,
        text: str,
        entities: list[str],
        nlp_artifacts: NlpArtifacts | None = None,
        regex_flags: int | None = None,
    ) -> list[RecognizerResult]:
        """The card numbers in the text."""
        results = super().analyze(text, entities, nlp_artifacts, regex_flags)
        return [result for result in results if _is_card(text, result.start, result.end)]


def _is_card(text: str, start: int, end: int) -> bool:
    number = text[start:end]
    decimals = _POINT if text[end : end + 1] == "," or not number.isdigit() else _EITHER
    before = max(0, start - 12), start
    return (
        not decimals.search(text, *before)
        and _CARD_ISSUERS.fullmatch("".join(filter(str.isdecimal, number))) is not None
    )


class IbanInAnyCaseRecognizer(IbanRecognizer):
    """Presidio's, which takes capitals alone."""

    def analyze(
        self,
        text: str,
        entities: list[str],
        nlp_artifacts: NlpArtifacts | None = None,
        regex_flags: int | None = None,
    ) -> list[RecognizerResult]:
        """The account numbers in the text whose check digits are right."""
        # Its defaults are None, and its annotations do not say so.
        return super().analyze(
            text.translate(_CAPITALS),
            entities,
            nlp_artifacts,  # pyright: ignore[reportArgumentType]
            regex_flags,  # pyright: ignore[reportArgumentType]
        )


class EthereumAddressRecognizer(FormatRecognizer):
    """Finds CRYPTO: addresses of Ethereum and what is built like it. The one of zeros is nobody's."""

    TYPES = ("CRYPTO",)

    def hits(self, text: str) -> Iterator[Hit]:
        """Every address in the text."""
        for match in _ETHEREUM.finditer(text):
            yield Hit("CRYPTO", match.start(), match.end(), 0.85)


class MistypedNumberRecognizer(FormatRecognizer):
    """Finds CREDIT_CARD and IBAN_CODE that fail their check: one wrong digit does not make a number public."""

    TYPES = ("CREDIT_CARD", "IBAN_CODE")

    def hits(self, text: str) -> Iterator[Hit]:
        """Numbers behind their label, and what is grouped as an IBAN of its country is."""
        for match in _LABELLED_CARD.finditer(lower(text)):
            yield Hit("CREDIT_CARD", *match.span("number"), 0.6)
        for match in _WRITTEN.finditer(text):
            end = _end_of_iban(text, match)
            if end is not None:
                yield Hit("IBAN_CODE", match.start(), end, 0.6)


@cache
def _form_in(country: str) -> re.Pattern[str] | None:
    form = regex_per_country.get(country)
    return transient(form.removeprefix("^").removesuffix("$")) if form else None


def _end_of_iban(text: str, written: re.Match[str]) -> int | None:
    """Where it ends as its country writes it, or behind its label as it stands; None where it may be anything."""
    labelled = _IBAN_LABEL.search(text, max(0, written.start() - _LABEL_REACH), written.start())
    value = written[0].translate(_CAPITALS).replace("-", " ")
    form = _form_in(value[:2])
    whole = form.match(value) if form else None
    if whole:
        length = len(whole[0].rstrip())
        return written.start() + length if labelled or _IN_FOURS.fullmatch(value[:length]) else None
    digits = _LAST_GROUP_WITH_DIGIT.match(value)
    return written.start() + digits.end() if labelled and digits else None
