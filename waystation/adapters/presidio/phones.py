"""Phone numbers in a format that only phone numbers have: order numbers, dates, versions and line ranges stay."""

import re
from collections.abc import Iterator, Sequence

import phonenumbers

from waystation.adapters.presidio.formats import FormatRecognizer, Hit
from waystation.adapters.presidio.labels import PHONE, lower
from waystation.patterns import proven

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
_FEWEST_DIGITS, _MOST_DIGITS = 7, 15

_INTERNATIONAL = proven(
    r"(?<![\w+])(?:\((?:\+|00)[1-9]\d{0,2}\)|(?:\+|00(?=[1-9]))\d{1,3})[ .\-/]?(?:\(\d{1,5}\)[ .\-/]?)?"
    r"\d{1,12}(?:[ .\-/]\d{2,10}){0,5}(?![\w]|[.-]\d)"
)
_BRACKETED = proven(r"(?<![\w.])(?:1[ .-]?)?\((?:\d{3}|0\d{2,5})\)[ -]?\d{3,4}[ .-]?\d{3,5}(?![\w]|[.-]\d)")
_NORTH_AMERICAN = proven(r"(?<![\w.+/-])(?:1[ .-])?[02-9]\d{2}([.-])\d{3}\1\d{4}(?![\w]|[./-]\d)")
_BEHIND_A_WORD = proven(r"(?<=[a-z]{2}[-_])[2-9]\d{2}-[2-9]\d{2}-\d{4}(?![\w]|[./-]\d)")
_CALLED = proven(
    r"(?:(?<!\w)(?:call|ring|dial|text|phone|whatsapp|reach|anruf(?:en)?|ruf(?:en)?|rufe|appelez|appelle|llam[ae]|llamar|chiam[ai]|chiamare|ligue|liga|ligar"
    r"|zadzwoń|dzwoń|dzwonić|ring|telefone|звони(?:те)?|позвони(?:те)?|набери(?:те)?)"
    r"(?:\s(?:me|us|him|her|them|my|number|at|on|to|under|unter|an|al|au|il|lo|na|pod|nr|по|номер(?:у)?|för|para|o|a|Sie|sie)){0,3}\s{0,2}:?\s{1,3}"
    r"|(?:打电话给?|致电|拨打|电话|전화|कॉल(?: करें)?)\s?:?\s?)(?P<number>\(?\d[\d ().\-/]{6,20}\d)(?![\w]|[.,:-]\d)"
)
"""Words for calling somebody, and a number without a country code right behind."""
_SPACED = proven(r"(?<![\w.,:+/-])(?<!\d )[2-9]\d{2} [2-9]\d{2} \d{4}(?![\w]|[.,:/-]\d| \d)")
_TRUNK_ZERO = proven(r"(?<![\w.,:+/-])(?<!\d )0\d{1,4}(?:[ /-]\d{3,8}){1,3}(?![\w]|[.,:/-]\d| \d)")
_PAIRS = proven(r"(?<![\w.:+/-])(?<!\d )0[1-9](?:([ .])\d{2})(?:\1\d{2}){3}(?![\w]|[.:/-]\d| \d)")
_LABELLED = proven(PHONE)
_AFTER_LABEL = proven(r"[^\d\n+(]{0,20}(?P<number>\(?\d[\d ().\-/]{4,20}\d)(?![\w]|[.-]\d)")
_OTHER_LABEL = proven(
    r"\b(?:order|invoice|ticket|case|ref|reference|isbn|issn|sku|part|serial|lines?|pages?|rows?|columns?|bytes|items|records|offsets?|version|build|commit)"
    r"\b[\s:#._-]{0,3}(?:(?:no|number|id)\b[\s:#.]{0,3})?$",
    re.IGNORECASE,
)
_DATE = proven(r"(?:19|20)\d{2}([-./]?)(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12]\d|3[01])(?!\d)")


class PhoneFormatRecognizer(FormatRecognizer):
    """Finds PHONE_NUMBER: with a country code, with brackets, in usual groups, or any digits after a telling label."""

    TYPES = ("PHONE_NUMBER",)

    def hits(self, text: str) -> Iterator[Hit]:
        """Every phone number in the text; the same characters may be found more than once."""
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
                    yield Hit("PHONE_NUMBER", match.start(), match.end(), 0.75)
        for called in _CALLED.finditer(lower(text)):
            start, end = called.span("number")
            if _plausible(text, start, end, must_be_assigned=False) and _is_of(text[start:end], _REGIONS_OF_CALLS):
                yield Hit("PHONE_NUMBER", start, end, 0.75)
        for label in _LABELLED.finditer(lower(text)):
            match = _AFTER_LABEL.match(text, label.end())
            if match and _plausible(text, *match.span("number"), must_be_assigned=False):
                yield Hit("PHONE_NUMBER", *match.span("number"), 0.75)


def _plausible(text: str, start: int, end: int, *, must_be_assigned: bool) -> bool:
    number = text[start:end]
    digits = sum(character.isdigit() for character in number)
    if not _FEWEST_DIGITS <= digits <= _MOST_DIGITS or _DATE.match(number):
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
