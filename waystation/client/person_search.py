"""Search for one person in all data of the settings' tenant: what the value is recognised as, and where it occurs."""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass

from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from waystation.config.settings import Settings
from waystation.erasure.erasure import (
    WANTED_TYPE,
    ErasureMatch,
    ErasureQuery,
    MatchedHistory,
    RelatedValue,
    compute_fingerprints,
    find_related_values,
    make_erasure_workflow_id,
)
from waystation.erasure.report_files import count_report_matches
from waystation.kernel.erasure_locations import ErasureLocation
from waystation.kernel.errors import BadInput, Unreachable, WrongKey
from waystation.kernel.scopes import TenantScope
from waystation.kernel.value import Value
from waystation.privacy.policy import (
    NAME_TYPES,
    PLACEHOLDER_PATTERN,
    RedactionPolicy,
    TextDestination,
    get_placeholder_type,
)
from waystation.privacy.vault_repository import SqlVault
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import (
    build_client_data_converter,
    build_store_vault,
    build_wrong_key_error,
    get_placeholder_key,
    open_store,
)
from waystation.runtime.temporal.connect import connect_as_person, resolve_temporal_target
from waystation.runtime.temporal.erasure_client import find_histories
from waystation.security.placeholders import SECRET, build_placeholder
from waystation.tasks.task import make_session_workflow_id, tenant_hash

_MAX_TASKS = 1_000_000
MIN_CHARACTERS = 3
"""Letters and digits. A shorter value would match half of every text."""


class PersonLocations(Value):
    """Where a person occurs, without any of the text there."""

    known_as: tuple[str, ...]
    """SHA-256 of each placeholder of the value."""
    recognised: bool
    """Whether the type is known, from the redaction rules or because it was given."""
    types: tuple[str, ...]
    """Types whose placeholders for the value were searched for."""
    traces: tuple[ErasureMatch, ...]
    histories: tuple[MatchedHistory, ...]
    finding: str
    """Why workflow histories were not searched; empty if they were."""


@dataclass(frozen=True)
class PersonSearch:
    """A search for one value in this store, with this key."""

    settings: Settings
    store: SqlStore
    vault: SqlVault
    key: bytes
    query: ErasureQuery
    recognised: bool
    types: tuple[str, ...]

    @property
    def erasure_placeholder(self) -> str:
        """Placeholder under which the vault has the value while it is being erased."""
        return build_placeholder(self.key, tenant_hash(self.settings.tenant), WANTED_TYPE, self.query.value)

    @property
    def erasure_workflow_id(self) -> str:
        """Workflow id of an order to erase the value."""
        return make_erasure_workflow_id(tenant_hash(self.settings.tenant), self.erasure_placeholder)

    async def find_locations(self) -> PersonLocations:
        """Find where the value occurs.

        Memory itself is not searched: it has what the store's passages have. Raises WrongKey.
        """
        tenant = tenant_hash(self.settings.tenant)
        rows = await self.store.list_tasks(TenantScope(tenant=tenant), _MAX_TASKS)
        task_ids = {row.ref.task_id for row in rows}
        sessions = {make_session_workflow_id(row.request.tenant, row.request.session) for row in rows}
        in_files = count_report_matches(self.settings.reports_folder, task_ids, self.query)
        traces = [
            *await self.store.find_erasure_matches(tenant, self.query),
            *(
                ErasureMatch(place=ErasureLocation.REPORT_FILE, task_id=one, count=count)
                for one, count in in_files.items()
            ),
        ]
        if kept := len(await self.vault.load_originals(tenant, self.query.placeholders)):
            traces.append(ErasureMatch(place=ErasureLocation.VAULT, count=kept))
        histories, finding = await self._histories(task_ids | sessions)
        traces += [
            ErasureMatch(place=ErasureLocation.HISTORY, task_id=one.workflow_id, count=one.count) for one in histories
        ]
        return PersonLocations(
            known_as=compute_fingerprints(self.query.placeholders),
            recognised=self.recognised,
            types=self.types,
            traces=tuple(traces),
            histories=histories,
            finding=finding,
        )

    async def find_near_values(self) -> Sequence[RelatedValue]:
        """Find other values that may belong to the same person: on the same lines, found by rules and by placeholders,
        and similar values of the vault.

        Secrets are not names, and are not shown. Raises WrongKey.
        """
        # See _recognised.
        from waystation.runtime.redaction_setup import create_redactor  # noqa: PLC0415

        tenant = tenant_hash(self.settings.tenant)
        lines = await self.store.list_matching_lines(tenant, self.query)
        originals = await self.vault.load_all_originals(tenant)
        with closing(create_redactor(self.settings, self.key, RedactionPolicy.STRICT)) as redactor:
            redacted = await redactor.redact(lines, TextDestination.COMPRESSED, tenant)
        beside = Counter[tuple[str, str]]()
        for line, found in zip(lines, redacted, strict=True):
            values = {(span.type, line[span.start : span.end]) for span in found.spans}
            values |= {
                (get_placeholder_type(one), originals[one])
                for one in PLACEHOLDER_PATTERN.findall(line)
                if one in originals
            }
            beside.update(one for one in values if one[0] != SECRET)
        known = {
            text: kind
            for one, text in originals.items()
            if (kind := get_placeholder_type(one)) not in {WANTED_TYPE, SECRET}
        }
        return find_related_values(self.query, beside, known)

    async def _histories(self, own: set[str]) -> tuple[tuple[MatchedHistory, ...], str]:
        try:
            return await find_histories(await connect_to_temporal(self.settings), own, self.query.count_matches), ""
        except Unreachable as error:
            return (), f"workflow histories were not searched: {error}"
        except RPCError as error:
            unreachable = f"the Temporal server does not answer ({error.status.name})"
            return (), f"workflow histories were not searched: {unreachable}"


@asynccontextmanager
async def open_person_search(settings: Settings, value: str, kind: str | None) -> AsyncGenerator[PersonSearch]:
    """Open a search for this value. `kind` is the part of its placeholders before the digits, if the rules cannot
    recognise it.

    A name is searched for as PERSON and as LOCATION, and so is a value that no rule recognises: in a sentence it may be
    recognised as either.

    Raises:
        BadInput: The value is too short, the type is unknown, or the key is not the store's.
    """
    given = normalize_search_value(value)
    wanted = None if kind is None else _known(settings, kind)
    store = await open_store(settings)
    try:
        key = await get_placeholder_key(store, settings)
        recognised = {wanted} if wanted else await _recognised(settings, key, given)
        # These depend on the sentence: a language model often does not recognise a name alone, or as another type.
        types = recognised | NAME_TYPES if not wanted and recognised <= NAME_TYPES else recognised
        made = {build_placeholder(key, tenant_hash(settings.tenant), one, given) for one in types}
        vault = build_store_vault(store, settings)
        placeholders = made | await _kept(settings, vault, given)
        sought = ErasureQuery(given, tuple(sorted(placeholders)))
        yield PersonSearch(settings, store, vault, key, sought, bool(recognised), tuple(sorted(types)))
    finally:
        await store.aclose()


def normalize_search_value(value: str) -> str:
    """Return the value with single spaces. Raises BadInput if it is too short to identify a person."""
    given = " ".join(value.split())
    if sum(character.isalnum() for character in given) < MIN_CHARACTERS:
        raise BadInput(f"the value needs at least {MIN_CHARACTERS} letters or digits: give the whole name or number")
    return given


async def connect_to_temporal(settings: Settings) -> TemporalClient:
    """Connect to the server. Raises Unreachable."""
    target = resolve_temporal_target(settings)
    return await connect_as_person(target, build_client_data_converter(settings))


def _known(settings: Settings, kind: str) -> str:
    # See _recognised.
    from waystation.runtime.redaction_setup import list_placeholder_types  # noqa: PLC0415

    types = list_placeholder_types(settings)
    if kind.upper() not in types:
        raise BadInput(f"there is no type {kind!r}: choose one of {', '.join(types)}")
    return kind.upper()


async def _recognised(settings: Settings, key: bytes, value: str) -> set[str]:
    """Return the types that the rules find for the whole value."""
    # Presidio takes seconds and hundreds of megabytes; invalid input should not wait for it.
    from waystation.runtime.redaction_setup import create_redactor  # noqa: PLC0415

    with closing(create_redactor(settings, key, RedactionPolicy.STRICT)) as redactor:
        (found,) = await redactor.redact([value], TextDestination.COMPRESSED, tenant_hash(settings.tenant))
    return {span.type for span in found.spans if (span.start, span.end) == (0, len(value))}


async def _kept(settings: Settings, vault: SqlVault, value: str) -> set[str]:
    """Return placeholders whose originals contain the value: of other types, with titles, with more digits."""
    plain = ErasureQuery(value)
    try:
        originals = await vault.load_all_originals(tenant_hash(settings.tenant))
    except WrongKey:
        raise build_wrong_key_error(settings) from None
    return {
        one
        for one, original in originals.items()
        if plain.count_matches(original) and not one.startswith(f"<{WANTED_TYPE}_")
    }
