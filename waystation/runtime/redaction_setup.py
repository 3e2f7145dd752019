"""Builds the redactor and the embedder that the settings select, for workers and commands."""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from waystation.agents.redaction import TextRedactor, VaultPlaceholderFactory
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.memory.embedders.http import EmbeddingVendor, HttpEmbedder, resolve_embedding_endpoint
from waystation.memory.embedders.local import E5Embedder, FastEmbedder, NoEmbedder, create_default_embedder
from waystation.memory.ports import Embedder
from waystation.plugins.redaction.keys import compute_key_check
from waystation.plugins.redaction.placeholders import SHORT_TYPES, compute_fingerprint
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.plugins.redaction.rules import (
    COUNTRIES,
    NO_RULES,
    DetectionConfig,
    load_custom_rules,
    resolve_spacy_models,
    validate_countries,
)
from waystation.privacy.keys import AesGcmCipher
from waystation.privacy.policy import NAME_TYPES, RedactionConfig, RedactionPolicy
from waystation.privacy.ports import Redactor, Vault


@asynccontextmanager
async def open_embedder(settings: Settings) -> AsyncGenerator[Embedder]:
    """Open the embedder; closed at the end. Nothing is loaded or called before the first text. Raises BadInput."""
    match settings.embedder:
        case "static":
            yield create_default_embedder()
        case "none":
            yield NoEmbedder()
        case "e5":
            yield E5Embedder.create()
        case "fastembed":
            folder = settings.embedder_folder
            yield FastEmbedder.create(settings.embedder_model, folder.expanduser() if folder else None)
        case "voyage" | "openai" as vendor:
            async with aclosing(_over_http(settings, vendor)) as embedder:
                yield embedder


def _over_http(settings: Settings, vendor: EmbeddingVendor) -> HttpEmbedder:
    own_key = settings.voyage_api_key if vendor == "voyage" else None
    return HttpEmbedder(
        resolve_embedding_endpoint(
            vendor,
            settings.embedder_url,
            settings.embedder_model,
            settings.embedder_dimension,
            settings.embedder_key or own_key,
        )
    )


VERSION_DIGITS = 16
"""Hexadecimal digits (64 bits) that distinguish versions of the rules."""
KEPT_FORM = 2
"""Format of stored redactions, incremented when more of them is needed: stored ones of an older format are ignored."""


def build_detection_rules(settings: Settings, policy: RedactionPolicy | None = None) -> DetectionConfig:
    """Build the detection rules. `policy` overrides the setting. Raises BadInput."""
    return DetectionConfig(
        policy=policy or settings.privacy,
        models=resolve_spacy_models(settings.languages),
        countries=validate_countries(settings.national_ids),
        own=load_custom_rules(settings.recognisers.expanduser()) if settings.recognisers else NO_RULES,
    )


def list_placeholder_types(settings: Settings) -> tuple[str, ...]:
    """List the types that placeholders name, of all countries and of custom rules. Raises BadInput."""
    # This import loads Presidio and spaCy.
    from waystation.plugins.redaction.engines import build_format_recognizers  # noqa: PLC0415

    rules = replace(build_detection_rules(settings), countries=sorted(COUNTRIES))
    found = {found for recogniser in build_format_recognizers(rules) for found in recogniser.supported_entities}
    return tuple(sorted({SHORT_TYPES.get(one, one) for one in found} | NAME_TYPES))


def create_redactor(
    settings: Settings, key: bytes, policy: RedactionPolicy | None = None, *, processes: int = 0
) -> PresidioRedactor:
    """Create the redactor, which the caller closes.

    Workers detect in child processes; a command does it itself. Raises BadInput.
    """
    rules = build_detection_rules(settings, policy)
    return PresidioRedactor(key, rules, seconds=settings.redaction_seconds, processes=processes)


class EvaluationVault(NamedTuple):
    """A vault that only an evaluation of memory uses."""

    vault: Vault
    key: bytes

    def wrap_redactor(self, redactor: Redactor, session: str = "") -> TextRedactor:
        """Wrap the redactor so that it stores here what it replaces in this session's texts, as workers do."""
        return TextRedactor(
            redactor,
            VaultPlaceholderFactory(self.vault, partial(compute_fingerprint, self.key), utc_now, lambda: session),
        )


@asynccontextmanager
async def open_evaluation_vault(file: Path, key: bytes) -> AsyncGenerator[EvaluationVault]:
    """Open a vault in a database of its own. Raises StoreError."""
    # SQLAlchemy takes a while to load.
    from waystation.runtime.sql_store import SqlStore  # noqa: PLC0415

    async with aclosing(await SqlStore.open(f"sqlite+aiosqlite:///{file}", utc_now)) as store:
        yield EvaluationVault(store.build_vault(AesGcmCipher(key, "vault")), key)


def build_redaction_config(settings: Settings, key: bytes) -> RedactionConfig:
    """Build the configuration of a redactor: its version changes whenever it could find or replace anything else.

    Our own recognisers count by their source, so that no change of them can be missed. Raises BadInput.
    """
    rules = build_detection_rules(settings)
    told = {
        "placeholders": compute_key_check(key),
        "models": [(language, model, version(model)) for language, model in rules.models.items()],
        "countries": sorted(rules.countries),
        "own": settings.recognisers.expanduser().read_text(encoding="utf-8") if settings.recognisers else "",
        "libraries": [version(name) for name in ("presidio-analyzer", "spacy")],
        "recognisers": list(_recognisers()),
        "kept": KEPT_FORM,
    }
    digest = sha256(json.dumps(told).encode()).hexdigest()[:VERSION_DIGITS]
    return RedactionConfig(policy=rules.policy, version=digest)


def _recognisers() -> Iterator[str]:
    """Yield digests of the sources of our recognisers and of their word lists, in the order of their names."""
    folder = files("waystation.plugins.redaction")
    for file in sorted(folder.iterdir(), key=lambda one: one.name):
        if file.name.endswith((".py", ".txt")):
            yield sha256(file.read_bytes()).hexdigest()
