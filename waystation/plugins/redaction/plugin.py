"""The factory of the plug-in `redaction`: Presidio's recognisers and ours, as the settings want them."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from json import dumps

from waystation.config.settings import Settings
from waystation.kernel.text import format_count
from waystation.plugins.api import RedactorContext
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.plugins.redaction.rules import (
    COUNTRIES,
    NO_RULES,
    DetectionConfig,
    load_custom_rules,
    resolve_spacy_models,
    validate_countries,
)
from waystation.privacy.policy import NAME_TYPES, RedactionPolicy
from waystation.security.placeholders import SHORT_TYPES


def build_detection_rules(settings: Settings, policy: RedactionPolicy) -> DetectionConfig:
    """What is looked for under a policy. Raises BadInput."""
    return DetectionConfig(
        policy=policy,
        models=resolve_spacy_models(settings.languages),
        countries=validate_countries(settings.national_ids),
        custom=load_custom_rules(settings.recognisers.expanduser()) if settings.recognisers else NO_RULES,
    )


class ConfiguredPresidioRedactor(PresidioRedactor):
    """Implements the port `ConfiguredRedactor`."""

    def __init__(self, context: RedactorContext) -> None:
        """Loads no engine. Raises BadInput for settings that cannot be used."""
        self._settings = context.settings
        self._detections = build_detection_rules(context.settings, context.policy)
        super().__init__(
            context.key, self._detections, seconds=context.settings.redaction_seconds, processes=context.processes
        )

    @cached_property
    def version(self) -> str:
        """Of rules, models and libraries. Our own recognisers count by their source, so that no change of them can be
        forgotten here.
        """
        rules, settings = self._detections, self._settings
        told = {
            "models": [(language, model, version(model)) for language, model in rules.models.items()],
            "countries": sorted(rules.countries),
            "own": settings.recognisers.expanduser().read_text(encoding="utf-8") if settings.recognisers else "",
            "libraries": [version(name) for name in ("presidio-analyzer", "spacy")],
            "recognisers": list(_digests()),
        }
        return sha256(dumps(told).encode()).hexdigest()

    @property
    def placeholder_types(self) -> frozenset[str]:
        """What placeholders call values, of every country and of rules of your own. Loads Presidio and spaCy."""
        from waystation.plugins.redaction.engines import build_format_recognizers  # noqa: PLC0415

        rules = replace(self._detections, countries=sorted(COUNTRIES))
        found = {found for recogniser in build_format_recognizers(rules) for found in recogniser.supported_entities}
        return frozenset({SHORT_TYPES.get(one, one) for one in found} | NAME_TYPES)

    @property
    def description(self) -> str:
        """For people."""
        rules = self._detections
        models = ", ".join(f"{one} by {model}" for one, model in rules.models.items())
        count = len(rules.custom.recognizers)
        own = f"; {format_count(count, 'additional recogniser')}" if count else ""
        return (
            f"policy {rules.policy}; names recognised in {models}, in other languages by lists of names; national ids "
            f"of {', '.join(rules.countries)}{own}"
        )


def _digests() -> Iterator[str]:
    """Of our recognisers, their lists of words, and what makes a placeholder, in the order of their names."""
    ours = sorted(files("waystation.plugins.redaction").iterdir(), key=lambda one: one.name)
    shared = [files("waystation.security") / name for name in ("normalization.py", "placeholders.py")]
    for file in (*ours, *shared):
        if file.name.endswith((".py", ".txt")):
            yield sha256(file.read_bytes()).hexdigest()


def create_redactor(context: RedactorContext) -> ConfiguredPresidioRedactor:
    """The factory. Raises BadInput."""
    return ConfiguredPresidioRedactor(context)
