"""The compared detectors: ours, and unmodified Presidio."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple, Protocol

import tldextract
from presidio_analyzer import AnalyzerEngine
from presidio_analyzer.nlp_engine import NlpEngineProvider

from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.plugins.redaction.rules import ENGLISH_MODEL
from waystation.privacy.policy import TextDestination

KEY = b"k" * 32


class Find(NamedTuple):
    type: str
    start: int
    end: int


class Finder(Protocol):
    """Finds what is private in each of some texts."""

    name: str

    def find(self, texts: Sequence[str]) -> list[list[Find]]: ...


class WaystationFinder:
    """This project's redactor, without what it remembers from text to text: a new one each time."""

    def __init__(self, destination: TextDestination) -> None:
        self.name = f"ours, before {'memory' if destination is TextDestination.COMPRESSED else 'a model'}"
        self._place = destination

    def find(self, texts: Sequence[str]) -> list[list[Find]]:
        return asyncio.run(self._find(texts))

    async def _find(self, texts: Sequence[str]) -> list[list[Find]]:
        with closing(PresidioRedactor(KEY)) as redactor:
            results = await redactor.redact(texts, self._place, "t")
        return [[Find(span.type, span.start, span.end) for span in result.spans] for result in results]


THEIR_TYPES = {
    "EMAIL_ADDRESS": "EMAIL",
    "PHONE_NUMBER": "PHONE",
    "CREDIT_CARD": "CARD",
    "IBAN_CODE": "IBAN",
    "US_SSN": "SSN",
    "US_PASSPORT": "PASSPORT",
    "IP_ADDRESS": "IP",
    "MAC_ADDRESS": "MAC",
    "US_DRIVER_LICENSE": "LICENCE",
    "US_BANK_NUMBER": "ACCOUNT",
    "CRYPTO": "WALLET",
}


class DefaultPresidioFinder:
    """Presidio's default recognisers and pipeline, with the same spaCy model, and what it counts as found."""

    name = "unmodified Presidio"

    def __init__(self, *, patterns_only: bool = False) -> None:
        logging.getLogger("presidio-analyzer").setLevel(logging.ERROR)
        # Its recogniser of addresses would fetch this list from the network.
        tldextract.tldextract.TLD_EXTRACTOR = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)
        model = {"lang_code": "en", "model_name": ENGLISH_MODEL}
        engine = NlpEngineProvider(nlp_configuration={"nlp_engine_name": "spacy", "models": [model]}).create_engine()
        self._analyzer = AnalyzerEngine(nlp_engine=engine)
        names = {"PERSON", "LOCATION", "NRP", "ORGANIZATION", "DATE_TIME"}
        types = [type_ for type_ in self._analyzer.get_supported_entities() if type_ not in names]
        self._types = types if patterns_only else None

    def find(self, texts: Sequence[str]) -> list[list[Find]]:
        answers = (self._analyzer.analyze(text, "en", entities=self._types) for text in texts)
        return [
            [Find(THEIR_TYPES.get(hit.entity_type, hit.entity_type), hit.start, hit.end) for hit in hits]
            for hits in answers
        ]
