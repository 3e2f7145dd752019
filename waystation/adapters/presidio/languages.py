"""Which language a stretch of text is in, as far as that can be told."""

from functools import cache
from typing import cast

from py3langid.langid import MODEL_FILE, LanguageIdentifier

LEAST_CONFIDENCE = 0.5
"""Of code, logs and figures the identifier is never surer than 0.3; of two sentences of prose it is nearly certain."""


@cache
def _identifier() -> LanguageIdentifier:
    # Without types, like the call below.
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)  # pyright: ignore[reportUnknownMemberType]


def language_of(text: str) -> str | None:
    """ISO 639-1 code; None where it is not clear, as in code, tables and a few words.

    Codes of three letters are no language (`zxx`), or one without a model, like Nigerian Pidgin for short English.
    """
    language, confidence = cast("tuple[str, float]", _identifier().classify(text))  # pyright: ignore[reportUnknownMemberType]
    return language if confidence >= LEAST_CONFIDENCE and len(language) == 2 else None
