"""Redaction as the settings want it, for workers and commands alike."""

from dataclasses import replace

from waystation.adapters.presidio.found import NAME_TYPES
from waystation.adapters.presidio.own import NO_RULES, read_own_rules
from waystation.adapters.presidio.placeholders import SHORT_TYPES
from waystation.adapters.presidio.redactor import PresidioRedactor
from waystation.adapters.presidio.rules import COUNTRIES, Rules, checked_countries, models_for
from waystation.domain.privacy import Policy
from waystation.settings import Settings


def rules_of(settings: Settings, policy: Policy | None = None) -> Rules:
    """What is looked for. `policy` beats the setting. Raises BadInput."""
    return Rules(
        policy=policy or settings.privacy,
        models=models_for(settings.languages),
        countries=checked_countries(settings.national_ids),
        own=read_own_rules(settings.recognisers.expanduser()) if settings.recognisers else NO_RULES,
    )


def types_of(settings: Settings) -> tuple[str, ...]:
    """What placeholders call values, of every country and of rules of your own. Raises BadInput."""
    # Presidio and spaCy come with this import.
    from waystation.adapters.presidio.engines import format_recognisers  # noqa: PLC0415

    rules = replace(rules_of(settings), countries=sorted(COUNTRIES))
    found = {found for recogniser in format_recognisers(rules) for found in recogniser.supported_entities}
    return tuple(sorted({SHORT_TYPES.get(one, one) for one in found} | NAME_TYPES))


def redactor_of(
    settings: Settings, key: bytes, policy: Policy | None = None, *, processes: int = 0
) -> PresidioRedactor:
    """The redactor, to be closed. Workers have child processes search; a command does it itself. Raises BadInput."""
    rules = rules_of(settings, policy)
    return PresidioRedactor(key, rules, seconds=settings.redaction_seconds, processes=processes)
