"""Detects national ids by country, with Presidio's recognisers restricted to labelled or unmistakable forms; and phone
numbers in formats that only phone numbers have: order numbers, dates, versions and line ranges stay.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import phonenumbers
from presidio_analyzer import Pattern, PatternRecognizer
from presidio_analyzer.predefined_recognizers import (
    AuMedicareRecognizer,
    AuTfnRecognizer,
    CaSinRecognizer,
    DeHealthInsuranceRecognizer,
    DeIdCardRecognizer,
    DePassportRecognizer,
    DeSocialSecurityRecognizer,
    DeTaxIdRecognizer,
    EsNieRecognizer,
    EsNifRecognizer,
    EsPassportRecognizer,
    FiPersonalIdentityCodeRecognizer,
    InAadhaarRecognizer,
    InPanRecognizer,
    ItFiscalCodeRecognizer,
    ItIdentityCardRecognizer,
    ItPassportRecognizer,
    KrRrnRecognizer,
    NgNinRecognizer,
    PlPeselRecognizer,
    SePersonnummerRecognizer,
    SgFinRecognizer,
    ThTninRecognizer,
    TrNationalIdRecognizer,
    UkDrivingLicenceRecognizer,
    UkNinoRecognizer,
    ZaIdNumberRecognizer,
)

from waystation.kernel.patterns import compile_bounded
from waystation.plugins.redaction.assigned_secrets import PHONE, to_lower_same_length
from waystation.plugins.redaction.formats import LABEL_REACH, FormatRecognizer, RecognizerMatch, compile_label_pattern
from waystation.plugins.redaction.identifiers import SocialSecurityRecognizer


class _Form(NamedTuple):
    recogniser: Callable[[], PatternRecognizer]
    unmistakable: bool = False
    """Whether its form or check digit leaves little else that it could be, so that it needs no label."""


_TEN_WITH_A_LETTER_AND_FOUR_DIGITS = compile_bounded(
    r"\b(?=[\w@#$%^?~-]{0,9}?[a-zA-Z])(?=[\w@#$%^?~-]{0,6}?[0-9]{4})[\w@#$%^?~-]{10}\b"
)


class _PanRecognizer(InPanRecognizer):
    """Presidio's recogniser with another weakest pattern: its own searches for the letter and the digits up to the end
    of the text, from each word.

    That is quadratic, and matches any word of ten letters that four digits follow somewhere.
    """

    def __init__(self) -> None:
        *clear, weakest = InPanRecognizer.PATTERNS
        own = Pattern(weakest.name, _TEN_WITH_A_LETTER_AND_FOUR_DIGITS.pattern, weakest.score)
        super().__init__(patterns=[*clear, own])


FORMS: Mapping[str, Sequence[_Form]] = MappingProxyType(
    {
        "au": (_Form(AuTfnRecognizer), _Form(AuMedicareRecognizer)),
        "ca": (_Form(CaSinRecognizer),),
        "de": (
            _Form(DeSocialSecurityRecognizer, unmistakable=True),
            _Form(DeTaxIdRecognizer),
            _Form(DeIdCardRecognizer),
            _Form(DePassportRecognizer),
            _Form(DeHealthInsuranceRecognizer),
        ),
        "es": (
            _Form(EsNifRecognizer, unmistakable=True),
            _Form(EsNieRecognizer, unmistakable=True),
            _Form(EsPassportRecognizer),
        ),
        "fi": (_Form(FiPersonalIdentityCodeRecognizer, unmistakable=True),),
        "in": (_Form(_PanRecognizer, unmistakable=True), _Form(InAadhaarRecognizer)),
        "it": (
            _Form(ItFiscalCodeRecognizer, unmistakable=True),
            _Form(ItIdentityCardRecognizer),
            _Form(ItPassportRecognizer),
        ),
        "kr": (_Form(KrRrnRecognizer),),
        "ng": (_Form(NgNinRecognizer),),
        "pl": (_Form(PlPeselRecognizer),),
        "se": (_Form(SePersonnummerRecognizer),),
        "sg": (_Form(SgFinRecognizer),),
        "th": (_Form(ThTninRecognizer),),
        "tr": (_Form(TrNationalIdRecognizer),),
        "uk": (_Form(UkNinoRecognizer, unmistakable=True), _Form(UkDrivingLicenceRecognizer, unmistakable=True)),
        "za": (_Form(ZaIdNumberRecognizer),),
    }
)
"""Left out: forms that phone, order or version numbers have too often (NHS, NPI, MBI), and ids not of persons."""

_MIN_SCORE = 0.5
"""Minimum score of an unmistakable form: Presidio's weaker patterns of the same id lack word boundaries or check
digits.
"""
_MAX_ID_CHARACTERS = 20
"""Characters, with a margin: Italy's fiscal code and a British driving licence have 16."""
_WHOLE = compile_bounded(r"[^\W_]|[-_.](?=\w)")
_GROUPS = compile_bounded(r"(?<![\w.-])[A-Z0-9]{1,11}(?:[ .\-/][A-Z0-9]{1,11}){1,8}(?!\w)")
_BETWEEN_GROUPS = compile_bounded(r"[ .\-/]")
_ANY_DIGIT = compile_bounded(r"\d")


def build_country_recognizers(countries: Sequence[str]) -> list[FormatRecognizer]:
    """Build the recognisers of these countries."""
    found: list[FormatRecognizer] = [SocialSecurityRecognizer()] if "us" in countries else []
    return found + [NationalIdRecognizer(form) for country in countries for form in FORMS.get(country, ())]


class NationalIdRecognizer(FormatRecognizer):
    """Finds one kind of national id. An id of only digits needs a label before it on its line."""

    TYPES = ()

    def __init__(self, form: _Form) -> None:
        self._recogniser = form.recogniser()
        self._unmistakable = form.unmistakable
        self._label = compile_label_pattern(self._recogniser.context)
        self._names = [word.lower() for word in self._recogniser.context]
        super().__init__(types=tuple(self._recogniser.supported_entities))

    def find_matches(self, text: str) -> Iterator[RecognizerMatch]:
        """Yield every id of this kind."""
        if not _ANY_DIGIT.search(text):
            return
        lowered = text.lower()
        may_be_labelled = any(name in lowered for name in self._names)
        if may_be_labelled:
            yield from self._in_groups(text)
        elif not self._unmistakable:
            return
        for found in self._recogniser.analyze(text, list(self._recogniser.supported_entities)):
            if not _is_whole(text, found.start, found.end):
                continue
            value = text[found.start : found.end]
            clear = self._unmistakable and found.score >= _MIN_SCORE and not value.isdigit() and value == value.upper()
            if clear or self._is_labelled(text, found.start):
                yield RecognizerMatch(found.entity_type, found.start, found.end, max(found.score, _MIN_SCORE))

    def _in_groups(self, text: str) -> Iterator[RecognizerMatch]:
        """Yield ids after their label, grouped by blanks, dots or dashes as in official documents."""
        for groups in _GROUPS.finditer(text):
            # The label may look like a group itself, and the text after the id like one more.
            inner = [groups.start() + between.start() for between in _BETWEEN_GROUPS.finditer(groups[0])]
            starts = (
                place for place in (groups.start(), *(place + 1 for place in inner)) if self._is_labelled(text, place)
            )
            start = next(starts, None)
            if start is not None:
                yield from self._whole_in(text, start, [groups.end(), *reversed(inner)])

    def _whole_in(self, text: str, start: int, ends: Sequence[int]) -> Iterator[RecognizerMatch]:
        for end in ends:
            value = _BETWEEN_GROUPS.sub("", text[start:end])
            if len(value) > _MAX_ID_CHARACTERS or not _ANY_DIGIT.search(value):
                continue
            found = self._recogniser.analyze(value, list(self._recogniser.supported_entities))
            if any(hit.start == 0 and hit.end == len(value) and hit.score > 0 for hit in found):
                yield RecognizerMatch(self._recogniser.supported_entities[0], start, end, _MIN_SCORE)
                return

    def _is_labelled(self, text: str, start: int) -> bool:
        return self._label.search(text, max(0, start - LABEL_REACH), start) is not None


def _is_whole(text: str, start: int, end: int) -> bool:
    """Return whether it is not part of a longer word, number or dotted name."""
    before = text[max(0, start - 1) : start]
    return not (before and (before.isalnum() or before in "-_./")) and not _WHOLE.match(text, end)


_REGIONS_OF_CALLS = (
    "US",
    "GB",
    "DE",
    "FR",
    "IL",
    "CN",
    "IN",
    "IT",
    "ES",
    "PL",
    "CH",
    "SE",
    "KR",
    "RU",
    "MX",
    "BR",
    "AT",
    "NL",
    "PT",
)
_REGIONS = ("US", "GB", "DE", "FR", "IN", "BR", "IL")
_MIN_DIGITS, _MAX_DIGITS = 7, 15

_GLUED_EXTENSION = (
    r"(?:[ \t]{0,2}[;,]?[ \t]{0,2}(?:[xX]|#|(?i:ext(?:ension|n)?|xtn|poste|durchwahl|dw|доб))"
    r"[ \t.:=#]{0,3}\d{1,7}(?!\d))"
)
_EXTENSION = compile_bounded(_GLUED_EXTENSION)
_AFTER_PAUSE = compile_bounded(r",{1,3}[ \t]?\d{1,7}#?(?![\w,]|[.]\d)")
"""Digits that a phone dials later: in prose only, since a comma also separates CSV cells."""
_BEFORE_CELL = compile_bounded(r"(?:\A|[\n,;\t|\"'])[ \t]?\Z")
_ENDS = rf"(?:(?={_GLUED_EXTENSION})|(?!\w|[.-]\d))"
_ENDS_NO_PATH = rf"(?:(?={_GLUED_EXTENSION})|(?!\w|[./-]\d))"
_ENDS_IN_PROSE = rf"(?:(?={_GLUED_EXTENSION})|(?!\w|[.,:/-]\d| \d))"
_INTERNATIONAL = compile_bounded(
    r"(?<![\w+])(?:\((?:\+|00)[1-9]\d{0,2}\)|(?:\+|00(?=[1-9]))\d{1,3})[ .\-/]?(?:\(\d{1,5}\)[ .\-/]?)?"
    rf"\d{{1,12}}(?:[ .\-/]\d{{2,10}}){{0,5}}{_ENDS}"
)
_BRACKETED = compile_bounded(rf"(?<![\w.])(?:1[ .-]?)?\((?:\d{{3}}|0\d{{2,5}})\)[ -]?\d{{3,4}}[ .-]?\d{{3,5}}{_ENDS}")
_NORTH_AMERICAN = compile_bounded(rf"(?<![\w.+/-])(?:1[ .-])?[02-9]\d{{2}}([.-])\d{{3}}\1\d{{4}}{_ENDS_NO_PATH}")
_BEHIND_A_WORD = compile_bounded(rf"(?<=[a-z]{{2}}[-_])[2-9]\d{{2}}-[2-9]\d{{2}}-\d{{4}}{_ENDS_NO_PATH}")
_CALLED = compile_bounded(
    r"(?:(?<!\w)(?:call|ring|dial|text|phone|whatsapp|reach|anruf(?:en)?|ruf(?:en)?|rufe|appelez|appelle|llam[ae]|llamar|chiam[ai]|chiamare|ligue|liga|ligar"
    r"|zadzwoń|dzwoń|dzwonić|ring|telefone|звони(?:те)?|позвони(?:те)?|набери(?:те)?)"
    r"(?:\s(?:me|us|him|her|them|my|number|at|on|to|under|unter|an|al|au|il|lo|na|pod|nr|по|номер(?:у)?|för|para|o|a|Sie|sie)){0,3}\s{0,2}:?\s{1,3}"
    r"|(?:打电话给?|致电|拨打|电话|전화|कॉल(?: करें)?)\s?:?\s?)(?P<number>\(?\d[\d ().\-/]{6,20}\d)"
    rf"(?:(?={_GLUED_EXTENSION})|(?!\w|[.,:-]\d))"
)
"""Words for calling a person, directly followed by a number without a country code."""
_SPACED = compile_bounded(rf"(?<![\w.,:+/-])(?<!\d )[2-9]\d{{2}} [2-9]\d{{2}} \d{{4}}{_ENDS_IN_PROSE}")
_TRUNK_ZERO = compile_bounded(rf"(?<![\w.,:+/-])(?<!\d )0\d{{1,4}}(?:[ /-]\d{{3,8}}){{1,3}}{_ENDS_IN_PROSE}")
_PAIRS = compile_bounded(
    r"(?<![\w.:+/-])(?<!\d )0[1-9](?:([ .])\d{2})(?:\1\d{2}){3}" rf"(?:(?={_GLUED_EXTENSION})|(?!\w|[.:/-]\d| \d))"
)
_LABELLED = compile_bounded(PHONE)
_AFTER_LABEL = compile_bounded(rf"[^\d\n+(]{{0,20}}(?P<number>\(?\d[\d ().\-/]{{4,20}}\d){_ENDS}")
_OTHER_LABEL = compile_bounded(
    r"\b(?:order|invoice|ticket|case|ref|reference|isbn|issn|sku|part|serial|lines?|pages?|rows?|columns?|bytes|items|records|offsets?|version|build|commit)"
    r"\b[\s:#._-]{0,3}(?:(?:no|number|id)\b[\s:#.]{0,3})?$"
    r"|\b(?:file|filing|docket|registration|accession|identification|patent|permit|contract|purchase|project|catalogue?|model|lot|batch|tracking)"
    r"\s(?:no|nos|numbers?|id)\b[\s:#.)]{0,3}$",
    re.IGNORECASE,
)
_DATE = compile_bounded(r"(?:19|20)\d{2}([-./]?)(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12]\d|3[01])(?!\d)")


class PhoneFormatRecognizer(FormatRecognizer):
    """Finds PHONE_NUMBER: with a country code, with brackets, in usual groups, or any digits after a clear label."""

    TYPES = ("PHONE_NUMBER",)

    def find_matches(self, text: str) -> Iterator[RecognizerMatch]:
        """Yield every phone number with its extension; the same characters may be matched more than once."""
        for hit in self._numbers(text):
            yield hit._replace(end=_end_of_extension(text, hit.start, hit.end))

    def _numbers(self, text: str) -> Iterator[RecognizerMatch]:
        for pattern, must_be_assigned in (
            (_INTERNATIONAL, False),
            (_BRACKETED, False),
            (_NORTH_AMERICAN, False),
            (_BEHIND_A_WORD, True),
            (_SPACED, True),
            (_TRUNK_ZERO, True),
            (_PAIRS, True),
        ):
            for match in pattern.finditer(text):
                if _plausible(text, match.start(), match.end(), must_be_assigned=must_be_assigned):
                    yield RecognizerMatch("PHONE_NUMBER", match.start(), match.end(), 0.75)
        for called in _CALLED.finditer(to_lower_same_length(text)):
            start, end = called.span("number")
            if _plausible(text, start, end, must_be_assigned=False) and _is_of(text[start:end], _REGIONS_OF_CALLS):
                yield RecognizerMatch("PHONE_NUMBER", start, end, 0.75)
        for label in _LABELLED.finditer(to_lower_same_length(text)):
            match = _AFTER_LABEL.match(text, label.end())
            if match and _plausible(text, *match.span("number"), must_be_assigned=False):
                yield RecognizerMatch("PHONE_NUMBER", *match.span("number"), 0.75)


def _end_of_extension(text: str, start: int, end: int) -> int:
    extension = _EXTENSION.match(text, end)
    if extension is None and not _BEFORE_CELL.search(text, max(0, start - 2), start):
        extension = _AFTER_PAUSE.match(text, end)
    return extension.end() if extension else end


def _plausible(text: str, start: int, end: int, *, must_be_assigned: bool) -> bool:
    number = text[start:end]
    digits = sum(character.isdigit() for character in number)
    if not _MIN_DIGITS <= digits <= _MAX_DIGITS or _DATE.match(number):
        return False
    if _OTHER_LABEL.search(text, max(0, start - 30), start):
        return False
    return not must_be_assigned or _is_of(number, _REGIONS)


def _is_of(number: str, regions: Sequence[str]) -> bool:
    return any(_assigned(number, region) for region in regions)


def _assigned(number: str, region: str) -> bool:
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(number, region))
    except phonenumbers.NumberParseException:
        return False
