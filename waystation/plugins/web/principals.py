"""Principals: a person with the printed token, a program with an API key, or a person with a token of an OpenID
provider; and the policy of assistants.

API keys are stored as digests, in a file that only this user can read; each has 256 random bits, so that a digest
reveals nothing. The file is read again whenever it has changed: a revoked key is refused from that moment on.

An assistant acts for a person who may not have been asked: what it may do was decided beforehand.
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
"""Maximum difference between the clocks of provider and server."""
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a key pair only: neither `none`, nor one whose key would be the published one."""
KEYS_TIMEOUT = 10
"""Timeout of fetching the provider's keys, in seconds."""
KEYS_MAX_AGE, RETRY_AFTER_FAILURE = timedelta(minutes=5), timedelta(seconds=10)
"""Maximum age of the keys, and the time without another attempt after a failed one."""


TOKEN_BYTES = 32


def generate_token() -> str:
    """Generate the token of one server run: its holder may do what the server's user may."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def build_local_sign_in_url(port: int, token: str) -> str:
    """Build the address at which a person of this machine signs in."""
    return f"http://127.0.0.1:{port}/?token={token}"


KeyRole = Literal[ClientPermission, "assistant"]
"""Purpose of a key: a client permission, or to let an assistant use its own address, and nothing else."""


class Principal(Value):
    """An authenticated caller."""

    name: str
    """Empty for the printed token, whose holder only claims a name."""
    tenant: str
    role: KeyRole = "approve"
    proof: str = ""
    """How the name was authenticated, in words for the audit."""

    def has_permission(self, wanted: ClientPermission) -> bool:
        """Return whether the role includes this permission."""
        return self.role != "assistant" and CLIENT_PERMISSIONS.index(wanted) <= CLIENT_PERMISSIONS.index(self.role)

    def resolve_signature(self, claimed: str) -> str | VerifiedName:
        """Return who signs: the authenticated name with its proof; for the printed token, which proves none, the
        claimed name.
        """
        return VerifiedName(name=self.name, proof=self.proof) if self.proof else claimed


UNKNOWN_PRINCIPAL = Principal(name="", tenant="", role="read")
"""Principal before authentication."""


class ApiKey(Value):
    """One key, without its secret."""

    id: str
    name: str
    tenant: str
    role: KeyRole
    digest: str
    made_at: datetime
    revoked_at: datetime | None = None

    @property
    def principal(self) -> Principal:
        """The holder of the key."""
        return Principal(name=self.name, tenant=self.tenant, role=self.role, proof=f"API key {self.id}")


_KEYS_ADAPTER = TypeAdapter(tuple[ApiKey, ...])


class ApiKeyStore:
    """The API keys of one home folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[tuple[int, int], tuple[ApiKey, ...]] = ((0, 0), ())

    def list_keys(self) -> tuple[ApiKey, ...]:
        """Return the keys, oldest first. Raises BadInput if the file is unreadable."""
        try:
            found = self.path.stat()
            stamp = (found.st_mtime_ns, found.st_ino)
            if stamp != self._read[0]:
                self._read = (stamp, _KEYS_ADAPTER.validate_json(self.path.read_bytes()))
        except FileNotFoundError:
            return ()
        except (OSError, ValidationError) as error:
            raise BadInput(
                f"{self.path} is not a readable file of API keys: restore it from a copy, or remove it"
            ) from error
        return self._read[1]

    @property
    def has_valid_key(self) -> bool:
        """Whether any key is valid."""
        return any(key.revoked_at is None for key in self.list_keys())

    def create_key(self, name: str, tenant: str, role: KeyRole, now: datetime) -> tuple[ApiKey, str]:
        """Create a key. Returns it with its secret, which is stored nowhere."""
        opened, key_id = secrets.token_urlsafe(SECRET_BYTES), secrets.token_hex(ID_BYTES)
        key = ApiKey(id=key_id, name=name, tenant=tenant, role=role, digest=_digest(opened), made_at=now)
        with self._alone():
            self._keep((*self.list_keys(), key))
        return key, f"{KEY_PREFIX}_{key_id}_{opened}"

    def revoke(self, key_id: str, now: datetime) -> ApiKey:
        """Revoke a key from now on. Raises BadInput for an unknown one."""
        with self._alone():
            kept = self.list_keys()
            found = next((key for key in kept if key.id == key_id), None)
            if found is None:
                raise BadInput(f"there is no API key {key_id!r}: `waystation keys list` lists all keys")
            revoked = found if found.revoked_at else found.replace(revoked_at=now)
            self._keep(tuple(revoked if key.id == key_id else key for key in kept))
        return revoked

    def find_principal(self, given: str) -> Principal | None:
        """Return the holder of this key; None if it is unknown or revoked."""
        _, _, rest = given.partition("_")
        key_id, _, opened = rest.partition("_")
        key = self.find_valid_key(key_id)
        right = hmac.compare_digest(_digest(opened), key.digest if key else "")
        return key.principal if key is not None and right else None

    def find_valid_key(self, key_id: str) -> ApiKey | None:
        """Return the key with this id, while it is valid."""
        return next((key for key in self.list_keys() if key.id == key_id and key.revoked_at is None), None)

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Serialise changes: of two at once the later would undo the earlier."""
        with open_private_file(create_private_folder(self.path.parent) / f"{self.path.name}.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _keep(self, keys: tuple[ApiKey, ...]) -> None:
        write_private_file(self.path, _KEYS_ADAPTER.dump_json(keys, indent=1))


def _digest(opened: str) -> str:
    return sha256(opened.encode(errors="replace")).hexdigest()


class OpenIdConfig(Value):
    """Requirements on tokens of an OpenID provider."""

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
    """Verifies tokens by the keys that their provider publishes, at most `KEYS_MAX_AGE` old: after that time a
    withdrawn key is refused.

    Anyone may send any token: none causes a request soon after one that failed, and all wait in one thread.
    """

    def __init__(self, config: OpenIdConfig) -> None:
        self._wanted, self._keys = config, _published(config.jwks)
        self._thread = ThreadPoolExecutor(1, "tokens")

    async def find_principal(self, token: str) -> Principal | None:
        """Return the person that the token names.

        None if it is expired, forged, for another audience, unsigned, incomplete, or names an address that the provider
        has not verified, or if the provider's keys are unavailable.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._holder, token)

    def _holder(self, token: str) -> Principal | None:
        # Takes as long to load as a small command, and only a server with a provider needs it.
        import jwt  # noqa: PLC0415

        wanted = self._wanted
        try:
            # Before its key is looked up: a token that is not signed by a key pair causes no request.
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
            # Some providers let people enter any address: it could be an approver's.
            if wanted.name_claim == "email" and claims.get("email_verified", True) not in (True, "true"):
                return None
            said = _Claims.model_validate({field: claims.get(claim) for field, claim in named.items()})
        except (jwt.PyJWTError, ValidationError):
            return None
        return Principal(name=said.name, tenant=said.tenant, role=said.role, proof=f"token of {wanted.issuer}")


def _published(address: str) -> "PyJWKClient":
    """Return the provider's keys, which are fetched when the known ones are too old, or a token names an
    unknown one.
    """
    import jwt  # noqa: PLC0415 - see above

    class Published(jwt.PyJWKClient):
        failed = float("-inf")

        def fetch_data(self) -> Any:
            """See base class, which would fetch for every token if the provider does not answer. Raises PyJWTError."""
            if monotonic() < self.failed + RETRY_AFTER_FAILURE.total_seconds():
                raise jwt.PyJWKClientError(
                    "the OpenID provider's keys could not be fetched a moment ago, and are not requested again yet"
                )
            try:
                return super().fetch_data()
            except (jwt.PyJWTError, OSError, ValueError) as error:
                self.failed = monotonic()
                raise jwt.PyJWKClientError("the OpenID provider's keys could not be fetched") from error

    return Published(address, lifespan=KEYS_MAX_AGE.total_seconds(), timeout=KEYS_TIMEOUT)


class Authenticator:
    """Authenticates everyone except the holder of the printed token."""

    def __init__(self, keys: ApiKeyStore, openid: OpenIdTokenVerifier | None = None) -> None:
        self.keys = keys
        self._openid = openid

    async def find_principal(self, given: str) -> Principal | None:
        """Return the holder of this bearer token. Raises BadInput if the file of keys is unreadable."""
        if given.startswith(f"{KEY_PREFIX}_"):
            return self.keys.find_principal(given)
        return None if self._openid is None else await self._openid.find_principal(given)

    @property
    def has_identities(self) -> bool:
        """Whether anyone can be authenticated."""
        return self._openid is not None or self.keys.has_valid_key


# --------------------------------------------------------------------------------------------------------- assistants

TASKS_OF_A_BUDGET = 5
"""Default budget of an assistant, in budgets of one task."""
Answers = Literal["person", "client", "nobody"]
"""Who approves requests of an assistant's tasks."""


class AssistantPolicy(Value):
    """What one assistant may do."""

    name: str
    tenant: str
    budget: Limit
    """Total budget of all of its tasks."""
    roots: tuple[Path, ...] = ()
    """Folders from which its documents are read. Absolute, without links."""
    answers: Answers = "person"
    servers: tuple[str, ...] = ()
    """Tool servers of the workers that its tasks may name, besides the default ones."""
    skills: tuple[Path, ...] = ()
    """Folders of skills that its tasks may name."""
    home: Path
    """Nothing in this folder is read."""

    @classmethod
    def from_settings(cls, settings: Settings, roots: Sequence[Path] = ()) -> Self:
        """Build the policy from the settings, with further roots. Raises BadInput for an invalid root."""
        real = [Path(os.path.realpath(root.expanduser())) for root in (*settings.mcp_roots, *roots)]
        for root in real:
            if not root.is_dir():
                raise BadInput(f"{root} is not a folder: WAYSTATION_MCP_ROOTS and --root take only existing folders")
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
        """Session of all of its tasks."""
        return f"mcp-{self.name}"

    @property
    def signature(self) -> str:
        """Name under which its answers and messages are stored."""
        return f"{self.name} (MCP)"

    def resolve_servers(self, wanted: Sequence[str] | None) -> tuple[str, ...]:
        """Return the servers of a task; the default ones if none are named, whatever others name in its session.

        Raises BadInput for one that it may not name.
        """
        if beyond := [name for name in wanted or () if name not in {DEFAULT_SERVERS, *self.servers}]:
            raise BadInput(
                f"the assistant {self.name} may not use the tool server {beyond[0]!r}; allowed: "
                f"{', '.join((DEFAULT_SERVERS, *self.servers))}; WAYSTATION_MCP_SERVERS can allow more"
            )
        return (DEFAULT_SERVERS,) if wanted is None else tuple(dict.fromkeys(wanted))

    def resolve_readable_path(self, written: str) -> Path:
        """Return the file or folder, without links; a relative path is below a root.

        Raises BadInput, with the same message for what does not exist and for what is elsewhere.
        """
        if not self.roots:
            raise BadInput(
                "assistants may not read any folder: start the server with `--root FOLDER`, set "
                "WAYSTATION_MCP_ROOTS, or give the document as text"
            )
        for root in self.roots:
            found = find_path_below(root, written)
            if found is not None and not found.is_relative_to(self.home):
                return found
        listed = ", ".join(map(str, self.roots))
        raise BadInput(
            f"{sanitize_line(written)!r} is not a file or folder that assistants may read: give the document as "
            f"text, or a path below {listed}"
        )


def find_path_below(root: Path, written: str) -> Path | None:
    """Return the path if it is below the root; None if it is elsewhere, missing, or hidden."""
    if "\0" in written:
        return None
    found = Path(os.path.realpath(root / written))
    try:
        if not found.is_relative_to(root) or not found.exists():
            return None
    except OSError:  # the name is too long
        return None
    return None if is_hidden_below(root, found) else found
