"""After `waystation store reseal`, an attacker with a previous key and write access to the database forges no row."""

import asyncio
import signal
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.store.test_store_encryption import assert_every_column_readable, write_every_encrypted_column
from tests.support.scopes import SYSTEM_SCOPE, TASK_1_SCOPE
from tests.support.stored_task import StoredTask
from waystation.config.settings import Settings
from waystation.documents.text_repository import content_hash
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput, RetiredKey, StoreError
from waystation.kernel.temporal_names import TOOL_SECRETS
from waystation.privacy.key_file import compute_key_check
from waystation.privacy.keys import AesGcmCipher
from waystation.privacy.policy import VaultEntry
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import (
    build_store_vault,
    load_oldest_key,
    load_tool_secrets,
    open_store,
    reencrypt_store,
)
from waystation.store.encryption import EncryptionConfig
from waystation.store.engine import Database
from waystation.store.schema import texts

ROOT = Path(__file__).parents[2]
LEAKED, NEW, NEWER = "11" * 32, "22" * 32, "33" * 32
ADA = VaultEntry(type="PERSON", placeholder="<PERSON_000000000000>", fingerprint="f" * 64, text="Ada")
BOB = VaultEntry(type="PERSON", placeholder="<PERSON_111111111111>", fingerprint="e" * 64, text="Bob")
TOKEN = VaultEntry(type="SECRET", placeholder="WIKI_TOKEN", fingerprint="d" * 64, text="hush")


@pytest.fixture
def before(tmp_path: Path, store_url: str) -> Settings:
    """The settings with the key that leaks."""
    return Settings.model_validate({"home": tmp_path / "home", "store_url": store_url, "key": LEAKED})


def replaced(settings: Settings, *keys: str) -> Settings:
    """The settings with these keys, the newest first."""
    first, *previous = keys
    given = settings.model_dump(include={"home", "store_url"})
    return Settings.model_validate({**given, "key": first, "previous_keys": ",".join(previous) or None})


async def fill(settings: Settings) -> StoredTask:
    """Write a row of each kind that is encrypted or bound with a key."""
    async with aclosing(await open_store(settings)) as store:
        assert await store.claim_key(compute_key_check(load_oldest_key(settings)))
        vault = build_store_vault(store, settings)
        await vault.store_originals("t", [ADA], "spring")
        await vault.store_originals(TOOL_SECRETS, [TOKEN])
        return await write_every_encrypted_column(store, "first")


async def assert_everything_readable(settings: Settings, stored: StoredTask) -> None:
    async with aclosing(await open_store(settings)) as store:
        await assert_every_column_readable(store, stored, "first")
        vault = build_store_vault(store, settings)
        assert await vault.load_originals("t", [ADA.placeholder], "spring") == {ADA.placeholder: "Ada"}
        assert await load_tool_secrets(settings, store, ["WIKI_TOKEN"]) == {"WIKI_TOKEN": "hush"}


async def execute(settings: Settings, *statements: str) -> None:
    async with aclosing(Database(settings.database_url)) as database, database.write() as connection:
        for statement in statements:
            await connection.exec_driver_sql(statement)


async def forge(settings: Settings, stored: StoredTask) -> None:
    """Write as a process that has the leaked key, and takes notice of nothing."""
    key = bytes.fromhex(LEAKED)
    at_rest = EncryptionConfig(AesGcmCipher(key, "rest"), encrypts=True)
    async with aclosing(await SqlStore.open(settings.database_url, utc_now, at_rest=at_rest)) as store:
        await execute(settings, "UPDATE tasks SET title = ''")
        await store.save_task_title(stored.row.ref.task_id, "Pay the attacker")
        await store.put_text("Pay the attacker", TASK_1_SCOPE)
        vault = store.build_vault(AesGcmCipher(key, "vault"))
        await vault.replace_original("t", BOB)
        await vault.store_originals("t", [BOB], "autumn")


async def test_until_the_store_is_resealed_a_previous_key_is_accepted(before: Settings) -> None:
    stored = await fill(before)
    after = replaced(before, NEW, LEAKED)
    await assert_everything_readable(after, stored)
    await forge(before, stored)
    async with aclosing(await open_store(after)) as store:
        assert await store.get_text(content_hash("Pay the attacker"), SYSTEM_SCOPE) == "Pay the attacker"
        assert await build_store_vault(store, after).load_originals("t", [BOB.placeholder]) == {BOB.placeholder: "Bob"}


async def test_reseal_rewrites_everything_so_that_the_present_key_reads_it_alone(before: Settings) -> None:
    stored = await fill(before)
    report = await reencrypt_store(replaced(before, NEW, LEAKED))
    assert report.texts > 10
    assert report.owner_proofs > 2
    assert report.vault.model_dump() == {"originals": 1, "secrets": 1, "session_proofs": 1, "unreadable": 0}
    alone = replaced(before, NEW).replace(placeholder_key=before.key)
    await assert_everything_readable(alone, stored)
    assert await reencrypt_store(alone) == report


async def test_a_row_that_was_written_with_a_retired_key_is_refused(before: Settings) -> None:
    stored = await fill(before)
    after = replaced(before, NEW, LEAKED)
    await reencrypt_store(after)
    await forge(before, stored)
    async with aclosing(await open_store(after)) as store:
        with pytest.raises(RetiredKey, match=r"tasks\.title"):
            await store.get_task(stored.row.ref.task_id, SYSTEM_SCOPE)
        with pytest.raises(RetiredKey, match=r"text_owners\.proof .* with `waystation store reseal --accept-refused`"):
            await store.get_text(content_hash("Pay the attacker"), TASK_1_SCOPE)
        with pytest.raises(RetiredKey, match=r"texts\.content"):
            async with store.database.read() as connection:
                (await connection.execute(texts.select())).all()
        vault = build_store_vault(store, after)
        with pytest.raises(RetiredKey, match=r"vault\.original"):
            await vault.load_originals("t", [BOB.placeholder])
        with pytest.raises(RetiredKey):
            await vault.load_all_originals("t")
        assert await vault.load_originals("t", [BOB.placeholder], "autumn") == {}


async def test_a_later_reseal_does_not_accept_what_a_retired_key_has_written(before: Settings) -> None:
    stored = await fill(before)
    await reencrypt_store(replaced(before, NEW, LEAKED))
    await forge(before, stored)
    later = replaced(before, NEWER, NEW, LEAKED)
    with pytest.raises(RetiredKey):
        await reencrypt_store(later)
    await reencrypt_store(later, accepts_refused=True)
    async with aclosing(await open_store(later)) as store:
        assert await store.get_text(content_hash("Pay the attacker"), SYSTEM_SCOPE) == "Pay the attacker"


async def test_a_later_reseal_does_not_accept_plain_rows(before: Settings) -> None:
    await fill(before)
    await execute(before, "UPDATE tasks SET title = 'Pay the attacker'")
    with pytest.raises(StoreError, match=r"tasks\.title is not encrypted.*`waystation store reseal --accept-refused`"):
        await reencrypt_store(before)
    assert (await reencrypt_store(before, accepts_refused=True)).texts > 10


@pytest.mark.parametrize("told", ["NULL", f"'{compute_key_check(bytes.fromhex(LEAKED))}'"], ids=["no key", "the old"])
@pytest.mark.parametrize("id_", ["store_id", "'another'"], ids=["the id stays", "another id"])
async def test_a_database_cannot_make_a_machine_accept_a_retired_key_again(
    before: Settings, told: str, id_: str
) -> None:
    await fill(before)
    after = replaced(before, NEW, LEAKED)
    await reencrypt_store(after)
    await execute(before, f"UPDATE identity SET row_key_check = {told}, store_id = {id_}")
    for act in (open_store, reencrypt_store):
        with pytest.raises(StoreError, match=r"no longer says so.*`waystation store reseal --accept-refused`"):
            await act(after)
    await reencrypt_store(after, accepts_refused=True)
    await (await open_store(after)).aclose()


async def test_another_machine_takes_notice_when_it_opens_the_store(before: Settings, tmp_path: Path) -> None:
    await fill(before)
    after = replaced(before, NEW, LEAKED)
    await reencrypt_store(after)
    other = after.replace(home=tmp_path / "other", store_url=after.database_url)
    await (await open_store(other)).aclose()
    await execute(before, "UPDATE identity SET row_key_check = NULL")
    with pytest.raises(StoreError, match="no longer says so"):
        await open_store(other)


async def test_a_machine_with_the_old_key_alone_does_not_start(before: Settings) -> None:
    await fill(before)
    await reencrypt_store(replaced(before, NEW, LEAKED))
    for act in (open_store, reencrypt_store):
        with pytest.raises(BadInput, match="rewritten with a newer key than the one in WAYSTATION_KEY"):
            await act(before)


async def test_a_still_newer_key_is_used_before_the_next_reseal(before: Settings) -> None:
    stored = await fill(before)
    await reencrypt_store(replaced(before, NEW, LEAKED))
    later = replaced(before, NEWER, NEW, LEAKED)
    await assert_everything_readable(later, stored)
    async with aclosing(await open_store(later)) as store:
        blob = await store.put_text("Written with the newer key.", TASK_1_SCOPE)
    await forge(before, stored)
    async with aclosing(await open_store(later)) as store:
        assert await store.get_text(blob, SYSTEM_SCOPE) == "Written with the newer key."
        with pytest.raises(RetiredKey):
            await store.get_text(content_hash("Pay the attacker"), SYSTEM_SCOPE)


async def test_the_database_names_no_file(before: Settings, tmp_path: Path) -> None:
    await fill(before)
    await execute(before, "UPDATE identity SET row_key_check = '/../../evil', sealed_since = NULL")
    plain = replaced(before, LEAKED).replace(encrypt_at_rest=False, home=tmp_path / "plain", store_url=before.store_url)
    await (await open_store(plain)).aclose()
    assert not [*tmp_path.rglob("*evil*")]


async def test_values_of_a_lost_key_stay_as_they_are(before: Settings) -> None:
    await fill(before)
    async with aclosing(await open_store(before)) as store:
        await store.build_vault(AesGcmCipher(bytes.fromhex(NEWER), "vault")).store_originals("t", [BOB], "spring")
    report = await reencrypt_store(replaced(before, NEW, LEAKED))
    assert (report.vault.originals, report.vault.session_proofs, report.vault.unreadable) == (1, 1, 1)
    found = replaced(before, NEW, NEWER, LEAKED)
    assert (await reencrypt_store(found, accepts_refused=True)).vault.originals == 2


KILLED = """
import asyncio, os, signal, sys
from waystation.config.settings import Settings
from waystation.privacy.keys import AesGcmCipher
from waystation.runtime.store_setup import reencrypt_store

encrypt, left = AesGcmCipher.encrypt, {"rest": 0, "vault": 0}

def dying(self, plain, context):
    left[self._purpose.decode()] += 1
    if left[sys.argv[1]] == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return encrypt(self, plain, context)

AesGcmCipher.encrypt = dying
asyncio.run(reencrypt_store(Settings()))
"""


@pytest.mark.parametrize(("purpose", "after"), [("rest", 1), ("vault", 1), ("vault", 3)])
async def test_reseal_that_is_killed_has_retired_nothing_and_can_be_repeated(
    before: Settings, purpose: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = await fill(before)
    now = replaced(before, NEW, LEAKED)
    monkeypatch.setenv("WAYSTATION_HOME", str(now.home))
    monkeypatch.setenv("WAYSTATION_STORE_URL", now.database_url)
    monkeypatch.setenv("WAYSTATION_KEY", NEW)
    monkeypatch.setenv("WAYSTATION_PREVIOUS_KEYS", LEAKED)
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, purpose, str(after), cwd=ROOT)
    assert await child.wait() == -signal.SIGKILL
    await assert_everything_readable(before, stored)  # with the old key alone: nothing was rewritten
    report = await reencrypt_store(now)
    assert (report.vault.originals, report.vault.secrets, report.vault.session_proofs) == (1, 1, 1)
    await assert_everything_readable(replaced(before, NEW).replace(placeholder_key=before.key), stored)
