"""Presidio's recognisers of formats, and its engine of names by spaCy without what NER does not need."""

import logging

import spacy
from presidio_analyzer import AnalyzerEngine, PatternRecognizer, RecognizerRegistry
from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine
from presidio_analyzer.predefined_recognizers import (
    CryptoRecognizer,
    MacAddressRecognizer,
    SpacyRecognizer,
)

from waystation.adapters.presidio.accounts import (
    CardRecognizer,
    EthereumAddressRecognizer,
    IbanInAnyCaseRecognizer,
    MistypedNumberRecognizer,
)
from waystation.adapters.presidio.formats import FormatRecognizer
from waystation.adapters.presidio.identifiers import (
    EmailAddressRecognizer,
    IpAddressRecognizer,
    LabelledIdRecognizer,
)
from waystation.adapters.presidio.national import recognisers_of
from waystation.adapters.presidio.own_recogniser import OwnRecognizer
from waystation.adapters.presidio.phones import PhoneFormatRecognizer
from waystation.adapters.presidio.rules import Rules
from waystation.adapters.presidio.secrets import SecretRecognizer

LANGUAGE = "en"
"""What Presidio is told of every text: which language it really is in, decides which engine gets it."""
Recogniser = PatternRecognizer | FormatRecognizer
_UNUSED_PIPES = ("tagger", "morphologizer", "parser", "senter", "attribute_ruler", "lemmatizer")
_NAME_LABELS = {"PERSON": "PERSON", "PER": "PERSON", "GPE": "LOCATION", "LOC": "LOCATION"}


def format_recognisers(rules: Rules) -> list[Recogniser]:
    """What finds secrets, direct identifiers, and what the rules add.

    They are asked one by one: the engine would look for words around each find, for every recogniser anew, and ours
    heed labels themselves.

    Presidio's recognisers of dates, URLs and UUIDs are left out because those are figures to keep; the one of British
    NHS numbers because it takes any phone number of ten digits.
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
        *recognisers_of(rules.countries),
        *(OwnRecognizer(kind) for kind in rules.own.kinds),
    ]


def name_engine(model: str) -> AnalyzerEngine:
    """Finds PERSON and LOCATION. Raises OSError if the model is not installed: nothing is ever downloaded."""
    logging.getLogger("presidio-analyzer").setLevel(logging.WARNING)  # it writes two lines for every text
    recognizer = SpacyRecognizer(supported_entities=["PERSON", "LOCATION"])
    registry = RecognizerRegistry(recognizers=[recognizer], supported_languages=[LANGUAGE])
    return AnalyzerEngine(registry=registry, nlp_engine=_NerOnlyEngine(model), supported_languages=[LANGUAGE])


class _NerOnlyEngine(SpacyNlpEngine):
    """Presidio's spaCy engine, loading only the parts that NER needs, and never from the network."""

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
