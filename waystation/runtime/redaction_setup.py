"""Builds the redactor and the embedder that the settings select, for workers and commands."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, closing
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from waystation.agents.redaction import TextRedactor, VaultPlaceholderFactory
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.memory.embedders.http import EmbeddingVendor, HttpEmbedder, resolve_embedding_endpoint
from waystation.memory.embedders.local import E5Embedder, FastEmbedder, NoEmbedder, create_default_embedder
from waystation.memory.ports import Embedder
from waystation.plugins.api import RedactorContext
from waystation.privacy.key_file import KEY_BYTES, compute_key_check
from waystation.privacy.keys import AesGcmCipher
from waystation.privacy.policy import NAME_TYPES, RedactionConfig, RedactionPolicy
from waystation.privacy.ports import Redactor, Vault
from waystation.privacy.redactor_chain import RedactorChain
from waystation.runtime.plugins import build_plugin_registry
from waystation.security.placeholders import compute_fingerprint


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
STORED_FORMAT_VERSION = 2
"""Format of stored redactions, incremented when more of them is needed: stored ones of an older format are ignored."""


def create_redactor(
    settings: Settings, key: bytes, policy: RedactionPolicy | None = None, *, processes: int = 0
) -> RedactorChain:
    """The redactors that are enabled, as one that is to be closed. Workers have child processes search; a command does
    it itself. `policy` beats the setting. Raises BadInput.
    """
    context = RedactorContext(settings=settings, policy=policy or settings.privacy, key=key, processes=processes)
    return build_plugin_registry(settings).create_redactor(context)


def list_placeholder_types(settings: Settings) -> tuple[str, ...]:
    """What placeholders call values. Raises BadInput."""
    # No placeholder is made.
    with closing(create_redactor(settings, bytes(KEY_BYTES))) as redactor:
        return tuple(sorted(redactor.placeholder_types | NAME_TYPES))


def describe_redaction(settings: Settings) -> str:
    """What is replaced under these settings. Raises BadInput."""
    with closing(create_redactor(settings, bytes(KEY_BYTES))) as redactor:
        return redactor.description


def build_redaction_config(redactor: RedactorChain, key: bytes) -> RedactionConfig:
    """By what a redactor redacts: another version wherever it could find or replace anything else."""
    told = {"placeholders": compute_key_check(key), "redactors": redactor.version, "kept": STORED_FORMAT_VERSION}
    digest = sha256(json.dumps(told).encode()).hexdigest()[:VERSION_DIGITS]
    return RedactionConfig(policy=redactor.policy, version=digest)


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
