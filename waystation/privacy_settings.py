"""Settings of privacy: how much is replaced, and what is looked for, and what if that fails."""

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from waystation.domain.privacy import Policy
from waystation.domain.redaction import AfterFailures
from waystation.written import WrittenNames


class PrivacySettings(BaseSettings):
    """Read together with all others: see `waystation.settings.Settings`. Workers of a store should agree on them."""

    privacy: Policy = Field(
        default=Policy.STANDARD,
        description="How much is replaced before text goes anywhere: standard, strict (names too before any model "
        "call) or secrets-only (docs/privacy.md).",
    )
    titles: Literal["redacted", "none"] = Field(
        default="redacted",
        description="What titles of tasks and steps show in Temporal's UI, lists and webhooks: words of question and "
        "plan, redacted, or none of them (docs/privacy.md).",
    )
    languages: WrittenNames = Field(
        default=("en",),
        min_length=1,
        description="Languages in which names are looked for, with commas between: en, or de=NAME with the name of a "
        "spaCy model. All but English need a model that you install. The first is for texts of no clear language.",
    )
    national_ids: WrittenNames = Field(
        default=("us", "uk", "de", "es", "it", "pl"),
        description="Countries whose national ids are replaced, with commas between: au, ca, de, es, fi, in, it, kr, "
        "ng, pl, se, sg, th, tr, uk, us, za.",
    )
    recognisers: Path | None = Field(
        default=None, description="YAML file with recognisers of your own and values to leave alone (docs/privacy.md)."
    )
    redaction_seconds: float = Field(
        default=60,
        gt=0,
        description="How long the redaction of one text may compute, plus a second for every 2,000 characters; then it "
        "has failed, and after a second time is put aside.",
    )
    redaction_processes: int = Field(
        default=1,
        ge=0,
        le=64,
        description="Child processes of a worker that search texts, some 300 MB each, and are killed where a text "
        "takes too long; with 0 the worker searches itself, and a text that hangs in it stops all.",
    )
    redaction_attempts: int = Field(
        default=6,
        ge=1,
        le=1_000,
        description="Attempts at work whose text cannot be redacted; until then it waits and is tried again. Six take "
        "half a minute.",
    )
    redaction_failure: AfterFailures = Field(
        default="placeholder",
        description="What then becomes of that text: placeholder (it is left out) or pause (a person is asked).",
    )
