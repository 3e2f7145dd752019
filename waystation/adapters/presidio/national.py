"""National ids by country: Presidio's recognisers, held to a label or to a form that nothing else has."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

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

from waystation.adapters.presidio.formats import LABEL_REACH, FormatRecognizer, Hit, label_before
from waystation.adapters.presidio.identifiers import SocialSecurityRecognizer
from waystation.patterns import proven


class _Form(NamedTuple):
    recogniser: Callable[[], PatternRecognizer]
    unmistakable: bool = False
    """Its form or its check digit leaves little else that it could be, so that it needs no label."""


_TEN_WITH_A_LETTER_AND_FOUR_DIGITS = proven(
    r"\b(?=[\w@#$%^?~-]{0,9}?[a-zA-Z])(?=[\w@#$%^?~-]{0,6}?[0-9]{4})[\w@#$%^?~-]{10}\b"
)


class _PanRecognizer(InPanRecognizer):
    """Presidio's, whose weakest pattern looks for the letter and the digits up to the end of the text, from each word.

    So that is quadratic, and takes any word of ten letters for an id that four digits follow somewhere.
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
"""Left out: forms that a phone, order or version number has too often (NHS, NPI, MBI), and what is no person's id."""

_LEAST_SCORE = 0.5
"""Of an unmistakable form: Presidio's weaker patterns of the same id lack word boundaries or check digits."""
_WHOLE = proven(r"[^\W_]|[-_.](?=\w)")
_GROUPS = proven(r"(?<![\w.-])[A-Z0-9]{1,11}(?:[ .\-/][A-Z0-9]{1,11}){1,8}(?!\w)")
_BETWEEN_GROUPS = proven(r"[ .\-/]")
_ANY_DIGIT = proven(r"\d")


def recognisers_of(countries: Sequence[str]) -> list[FormatRecognizer]:
    """The recognisers of these countries."""
    found: list[FormatRecognizer] = [SocialSecurityRecognizer()] if "us" in countries else []
    return found + [IdRecognizer(form) for country in countries for form in FORMS.get(country, ())]


class IdRecognizer(FormatRecognizer):
    """One kind of national id. What is all digits needs a label before it on its line."""

    TYPES = ()

    def __init__(self, form: _Form) -> None:
        self._recogniser = form.recogniser()
        self._unmistakable = form.unmistakable
        self._label = label_before(self._recogniser.context)
        self._names = [word.lower() for word in self._recogniser.context]
        super().__init__(types=tuple(self._recogniser.supported_entities))

    def hits(self, text: str) -> Iterator[Hit]:
        """Every id of this kind in the text."""
        if not _ANY_DIGIT.search(text):
            return
        yield from self._in_groups(text)
        for found in self._recogniser.analyze(text, list(self._recogniser.supported_entities)):
            if not _is_whole(text, found.start, found.end):
                continue
            value = text[found.start : found.end]
            clear = (
                self._unmistakable and found.score >= _LEAST_SCORE and not value.isdigit() and value == value.upper()
            )
            if clear or self._is_labelled(text, found.start):
                yield Hit(found.entity_type, found.start, found.end, max(found.score, _LEAST_SCORE))

    def _in_groups(self, text: str) -> Iterator[Hit]:
        """Ids behind their label, parted by blanks, dots or dashes as officials write them."""
        lowered = text.lower()
        if not any(name in lowered for name in self._names):
            return
        for groups in _GROUPS.finditer(text):
            # The label may look like a group itself, and what follows the id like one more.
            inner = [groups.start() + between.start() for between in _BETWEEN_GROUPS.finditer(groups[0])]
            starts = (
                place for place in (groups.start(), *(place + 1 for place in inner)) if self._is_labelled(text, place)
            )
            start = next(starts, None)
            if start is not None:
                yield from self._whole_in(text, start, [groups.end(), *reversed(inner)])

    def _whole_in(self, text: str, start: int, ends: Sequence[int]) -> Iterator[Hit]:
        for end in ends:
            value = _BETWEEN_GROUPS.sub("", text[start:end])
            found = self._recogniser.analyze(value, list(self._recogniser.supported_entities))
            if any(hit.start == 0 and hit.end == len(value) and hit.score > 0 for hit in found):
                yield Hit(self._recogniser.supported_entities[0], start, end, _LEAST_SCORE)
                return

    def _is_labelled(self, text: str, start: int) -> bool:
        return self._label.search(text, max(0, start - LABEL_REACH), start) is not None


def _is_whole(text: str, start: int, end: int) -> bool:
    """Not a part of a longer word, number or dotted name."""
    before = text[max(0, start - 1) : start]
    return not (before and (before.isalnum() or before in "-_./")) and not _WHOLE.match(text, end)
