"""Who asks: whoever has the printed token, a program by its API key, or a person by a token of an OpenID provider.

API keys are kept as digests, in a file of this user's alone; each is 256 random bits, so that a digest gives nothing
away. It is read anew whenever it has changed: a key that is revoked opens nothing from that moment on.

Assistants ask for a person who may not have been asked: what they may was said beforehand.
"""

import asyncio
import fcntl
import hmac
import os
import secrets
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError

from waystation.config.settings import Settings
from waystation.documents.document_loading import is_hidden_below
from waystation.kernel.amount import Limit
from waystation.kernel.client_permissions import CLIENT_PERMISSIONS, ClientPermission
from waystation.kernel.errors import BadInput
from waystation.kernel.files import create_private_folder, open_private_file, write_private_file
from waystation.kernel.value import Value
from waystation.security.untrusted import DEFAULT_SERVERS, sanitize_line
from waystation.tasks.approvals import VerifiedName

if TYPE_CHECKING:
    from jwt import PyJWKClient

SECRET_BYTES, ID_BYTES = 32, 4
KEY_PREFIX = "wsk"
SKEW = timedelta(seconds=60)
"""So far may the clocks of provider and server be apart."""
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a key pair alone: neither `none`, nor one whose key would be the published one."""
KEYS_TIMEOUT = 10
"""Seconds for the provider's keys."""
KEYS_KEPT, AFTER_A_FAILURE = timedelta(minutes=5), timedelta(seconds=10)
"""So old they may be, and so long nobody asks for them again where they could not be had."""


TOKEN_BYTES = 32


def generate_token() -> str:
    """Of one run of a server: who has it may do there what its person may."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def build_local_sign_in_url(port: int, token: str) -> str:
    """Where a person of this machine signs in."""
    return f"http://127.0.0.1:{port}/?token={token}"


KeyRole = Literal[ClientPermission, "assistant"]
"""What a key is for: something that a person may, or to let an assistant ask at its own address, and nowhere else."""


class Principal(Value):
    """Who asks, once that was proved."""

    name: str
    """Empty for whoever has the printed token: that one says a name, and it is a claim."""
    tenant: str
    role: KeyRole = "approve"
    proof: str = ""
    """By what the name is known, in words for the audit."""

    def has_permission(self, wanted: ClientPermission) -> bool:
        """Whether the role reaches so far."""
        return self.role != "assistant" and CLIENT_PERMISSIONS.index(wanted) <= CLIENT_PERMISSIONS.index(self.role)

    def resolve_signature(self, claimed: str) -> str | VerifiedName:
        """The name under which something is answered: the proved one, whatever was claimed."""
        return VerifiedName(name=self.name, proof=self.proof) if self.proof else claimed


UNKNOWN_PRINCIPAL = Principal(name="", tenant="", role="read")
"""Before anybody is known."""


class ApiKey(Value):
    """One key, without what opens."""

    id: str
    name: str
    tenant: str
    role: KeyRole
    digest: str
    made_at: datetime
    revoked_at: datetime | None = None

    @property
    def principal(self) -> Principal:
        """Who has it."""
        return Principal(name=self.name, tenant=self.tenant, role=self.role, proof=f"API key {self.id}")


_KEPT = TypeAdapter(tuple[ApiKey, ...])


class ApiKeyStore:
    """The keys of one home folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[tuple[int, int], tuple[ApiKey, ...]] = ((0, 0), ())

    def list_keys(self) -> tuple[ApiKey, ...]:
        """Oldest first. Raises BadInput where the file cannot be read as such."""
        try:
            found = self.path.stat()
            stamp = (found.st_mtime_ns, found.st_ino)
            if stamp != self._read[0]:
                self._read = (stamp, _KEPT.validate_json(self.path.read_bytes()))
        except FileNotFoundError:
            return ()
        except (OSError, ValidationError) as error:
            raise BadInput(f"{self.path} cannot be read as API keys: put back a copy, or remove it") from error
        return self._read[1]

    @property
    def has_valid_key(self) -> bool:
        """Whether one of them opens."""
        return any(key.revoked_at is None for key in self.list_keys())

    def create_key(self, name: str, tenant: str, role: KeyRole, now: datetime) -> tuple[ApiKey, str]:
        """A new key, and what opens by it, which is kept nowhere."""
        opened, key_id = secrets.token_urlsafe(SECRET_BYTES), secrets.token_hex(ID_BYTES)
        key = ApiKey(id=key_id, name=name, tenant=tenant, role=role, digest=_digest(opened), made_at=now)
        with self._alone():
            self._keep((*self.list_keys(), key))
        return key, f"{KEY_PREFIX}_{key_id}_{opened}"

    def revoke(self, key_id: str, now: datetime) -> ApiKey:
        """From now on it opens nothing. Raises BadInput for one that is not there."""
        with self._alone():
            kept = self.list_keys()
            found = next((key for key in kept if key.id == key_id), None)
            if found is None:
                raise BadInput(f"there is no API key {key_id!r}: `waystation keys list` shows them")
            revoked = found if found.revoked_at else found.replace(revoked_at=now)
            self._keep(tuple(revoked if key.id == key_id else key for key in kept))
        return revoked

    def find_principal(self, given: str) -> Principal | None:
        """Who has this key; None where nobody has it any more, or ever had."""
        _, _, rest = given.partition("_")
        key_id, _, opened = rest.partition("_")
        key = self.find_valid_key(key_id)
        right = hmac.compare_digest(_digest(opened), key.digest if key else "")
        return key.principal if key is not None and right else None

    def find_valid_key(self, key_id: str) -> ApiKey | None:
        """The key with this id, while it opens."""
        return next((key for key in self.list_keys() if key.id == key_id and key.revoked_at is None), None)

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Two who change it at once do so one after the other: the later would undo what the earlier has done."""
        with open_private_file(create_private_folder(self.path.parent) / f"{self.path.name}.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _keep(self, keys: tuple[ApiKey, ...]) -> None:
        write_private_file(self.path, _KEPT.dump_json(keys, indent=1))


def _digest(opened: str) -> str:
    return sha256(opened.encode(errors="replace")).hexdigest()


class OpenIdConfig(Value):
    """What is asked of tokens of an OpenID provider."""

    issuer: str
    audience: str
    jwks: str
    """Address of the provider's public keys."""
    tenant_claim: str = "tenant"
    name_claim: str = "email"
    role_claim: str = "role"


class _Claims(Value):
    tenant: str = Field(min_length=1, max_length=200)
    name: str = Field(min_length=1, max_length=200)
    role: ClientPermission


class OpenIdTokenVerifier:
    """Checks tokens by the keys that their provider publishes, as they were within `KEYS_KEPT`: one that was taken back
    opens nothing then.

    Anybody may send any token: none leads to a request soon after one that failed, and all wait in one thread.
    """

    def __init__(self, wanted: OpenIdConfig) -> None:
        self._wanted, self._keys = wanted, _published(wanted.jwks)
        self._thread = ThreadPoolExecutor(1, "tokens")

    async def find_principal(self, token: str) -> Principal | None:
        """Whom it names; None where it is expired, forged, for others, unsigned, says too little, names by an address
        that the provider has not verified, or nobody gives the provider's keys.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._holder, token)

    def _holder(self, token: str) -> Principal | None:
        # Takes as long to load as a small command takes, and only who has a provider needs it.
        import jwt  # noqa: PLC0415

        wanted = self._wanted
        try:
            # Before its key is looked for: what is not signed by a key pair leads to no request.
            if jwt.get_unverified_header(token).get("alg") not in ALGORITHMS:
                return None
            claims: Mapping[str, object] = jwt.decode(
                token,
                self._keys.get_signing_key_from_jwt(token),
                algorithms=ALGORITHMS,
                audience=wanted.audience,
                issuer=wanted.issuer,
                leeway=SKEW,
                options={"require": ["exp", "iat", "aud", "iss"]},
            )
            named = {"tenant": wanted.tenant_claim, "name": wanted.name_claim, "role": wanted.role_claim}
            # Some providers let people write down any address: it would be that of an approver.
            if wanted.name_claim == "email" and claims.get("email_verified", True) not in (True, "true"):
                return None
            said = _Claims.model_validate({field: claims.get(claim) for field, claim in named.items()})
        except (jwt.PyJWTError, ValidationError):
            return None
        return Principal(name=said.name, tenant=said.tenant, role=said.role, proof=f"token of {wanted.issuer}")


def _published(address: str) -> "PyJWKClient":
    """The provider's keys, asked for when the known ones are too old, or one is named that is not among them."""
    import jwt  # noqa: PLC0415 - see above

    class Published(jwt.PyJWKClient):
        failed = float("-inf")

        def fetch_data(self) -> Any:
            """See base class, which would ask for every token where nobody answers. Raises PyJWTError."""
            if monotonic() < self.failed + AFTER_A_FAILURE.total_seconds():
                raise jwt.PyJWKClientError("the provider's keys could not be had a moment ago")
            try:
                return super().fetch_data()
            except (jwt.PyJWTError, OSError, ValueError) as error:
                self.failed = monotonic()
                raise jwt.PyJWKClientError("the provider's keys could not be had") from error

    return Published(address, lifespan=KEYS_KEPT.total_seconds(), timeout=KEYS_TIMEOUT)


class Authenticator:
    """Everybody whom this server knows beside whoever has its printed token."""

    def __init__(self, keys: ApiKeyStore, openid: OpenIdTokenVerifier | None = None) -> None:
        self.keys = keys
        self._openid = openid

    async def find_principal(self, given: str) -> Principal | None:
        """Who has this bearer token. Raises BadInput where the file of keys cannot be read."""
        if given.startswith(f"{KEY_PREFIX}_"):
            return self.keys.find_principal(given)
        return None if self._openid is None else await self._openid.find_principal(given)

    @property
    def has_identities(self) -> bool:
        """Whether there is anybody."""
        return self._openid is not None or self.keys.has_valid_key


# --------------------------------------------------------------------------------------------------------- assistants

TASKS_OF_A_BUDGET = 5
"""What an assistant may spend where nobody said it, in budgets of one task."""
Answers = Literal["person", "client", "nobody"]
"""Who approves what the tasks of an assistant ask for."""


class AssistantPolicy(Value):
    """What one assistant may."""

    name: str
    tenant: str
    budget: Limit
    """What all of its tasks may spend together."""
    roots: tuple[Path, ...] = ()
    """Below these its documents are read. Absolute, without links."""
    answers: Answers = "person"
    servers: tuple[str, ...] = ()
    """Tool servers of the workers that its tasks may name, beside the usual ones."""
    skills: tuple[Path, ...] = ()
    """Folders of skills that its tasks may name."""
    home: Path
    """Nothing below it is read."""

    @classmethod
    def from_settings(cls, settings: Settings, roots: Sequence[Path] = ()) -> Self:
        """As the settings say; roots that are given beside them count, too. Raises BadInput for one that is none."""
        real = [Path(os.path.realpath(root.expanduser())) for root in (*settings.mcp_roots, *roots)]
        for root in real:
            if not root.is_dir():
                raise BadInput(f"{root} is no folder: give one below which documents may be read, or none")
        return cls(
            name=settings.mcp_client,
            tenant=settings.tenant,
            budget=settings.mcp_budget or settings.budget.compute_percent(100 * TASKS_OF_A_BUDGET),
            roots=tuple(dict.fromkeys(real)),
            answers=settings.mcp_answers,
            servers=settings.mcp_servers,
            skills=tuple(folder.expanduser() for folder in settings.mcp_skills),
            home=Path(os.path.realpath(settings.home)),
        )

    @property
    def session_name(self) -> str:
        """Of all of its tasks."""
        return f"mcp-{self.name}"

    @property
    def signature(self) -> str:
        """By whom its answers and words are said to be."""
        return f"{self.name} (MCP)"

    def resolve_servers(self, wanted: Sequence[str] | None) -> tuple[str, ...]:
        """Those of a task; the usual ones where none are named, whatever others name in its session. Raises BadInput
        for what it may not name.
        """
        if beyond := [name for name in wanted or () if name not in {DEFAULT_SERVERS, *self.servers}]:
            raise BadInput(
                f"{self.name} may not name the tool server {beyond[0]!r}: it may name "
                f"{', '.join((DEFAULT_SERVERS, *self.servers))} (WAYSTATION_MCP_SERVERS)"
            )
        return (DEFAULT_SERVERS,) if wanted is None else tuple(dict.fromkeys(wanted))

    def resolve_readable_path(self, written: str) -> Path:
        """The file or folder that is meant, without links; a relative path is one below a root. Raises BadInput, with
        the same words for what is not there and for what lies elsewhere.
        """
        if not self.roots:
            raise BadInput(
                "no folder was named below which assistants may read: start it with `--root FOLDER`, set "
                "WAYSTATION_MCP_ROOTS, or give the document as text"
            )
        for root in self.roots:
            found = _below(root, written)
            if found is not None and not found.is_relative_to(self.home):
                return found
        listed = ", ".join(map(str, self.roots))
        raise BadInput(
            f"{sanitize_line(written)!r} is nothing that may be read below {listed}: give a path there, or the text "
            "itself"
        )


def _below(root: Path, written: str) -> Path | None:
    """None for what is elsewhere, is not there, or is hidden."""
    if "\0" in written:
        return None
    found = Path(os.path.realpath(root / written))
    try:
        if not found.is_relative_to(root) or not found.exists():
            return None
    except OSError:  # too long a name
        return None
    return None if is_hidden_below(root, found) else found
