"""The vault behind a redactor, on both databases: what it keeps, and two values that share a placeholder."""

import hashlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from tests.support.store_values import NOON
from waystation.agents.redaction import TextRedactor, VaultPlaceholderFactory, restore_text_from_vault
from waystation.kernel.errors import RedactionFailed, WrongKey
from waystation.privacy.keys import AesGcmCipher
from waystation.privacy.policy import VAULT_CACHE_LIFETIME, TextDestination, VaultEntry
from waystation.privacy.vault_repository import SqlVault
from waystation.runtime.sql_store import SqlStore
from waystation.testing.doubles import PlainRedactor

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
SAME = "<PERSON_000000000000>"
ADA, BOB, CLEO = "Ada Lovelace", "Bob Morane", "Cleo Odzala"


def few_bits(_tenant: str, _type: str, value: str) -> str:
    """A fingerprint whose first 64 bits are the same for everybody."""
    return "0" * 16 + hashlib.sha256(value.casefold().encode()).hexdigest()[16:]


@dataclass
class Hands:
    """A clock that a test moves."""

    now: datetime = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def vault(store: SqlStore) -> SqlVault:
    return store.build_vault(AesGcmCipher(KEY, "vault"))


def keeping(vault: SqlVault, values: Iterable[str] = (ADA, BOB, CLEO), clock: Hands | None = None) -> TextRedactor:
    return TextRedactor(
        PlainRedactor(dict.fromkeys(values, SAME)), VaultPlaceholderFactory(vault, few_bits, clock or Hands())
    )


async def redacted(redactor: TextRedactor, text: str, tenant: str = "t") -> str:
    (result,) = await redactor.redact([text], TextDestination.COMPRESSED, tenant)
    return result.text


def original(text: str, placeholder: str = SAME) -> VaultEntry:
    return VaultEntry(type="PERSON", placeholder=placeholder, fingerprint=few_bits("", "", text), text=text)


async def test_what_was_replaced_can_be_restored_in_its_tenant_only(vault: SqlVault) -> None:
    text = await redacted(keeping(vault), f"{ADA} wrote it, said {ADA}.")
    assert text == f"{SAME} wrote it, said {SAME}."
    back = await restore_text_from_vault(text, vault, "t")
    assert (back.text, back.replaced, back.unknown) == (f"{ADA} wrote it, said {ADA}.", 2, 0)
    elsewhere = await restore_text_from_vault(text, vault, "another")
    assert (elsewhere.text, elsewhere.replaced, elsewhere.unknown) == (text, 0, 2)


async def test_values_of_one_placeholder_are_told_apart_by_more_digits_and_stay_so(vault: SqlVault) -> None:
    bob, cleo = f"<PERSON_{'0' * 16}>", f"<PERSON_{few_bits('', '', CLEO)[:20]}>"
    text = f"{ADA} met {BOB} and {CLEO}; {ADA} left."
    assert await redacted(keeping(vault), text) == f"{SAME} met {bob} and {cleo}; {SAME} left."
    fresh = keeping(vault)
    assert [await redacted(fresh, name) for name in (CLEO, BOB, ADA)] == [cleo, bob, SAME]
    assert await redacted(fresh, BOB, "another tenant") == SAME
    back = await restore_text_from_vault(f"{cleo}, {bob} and {SAME}", vault, "t")
    assert (back.text, back.unknown) == (f"{CLEO}, {BOB} and {ADA}", 0)


async def test_of_one_value_in_two_spellings_the_first_is_kept(vault: SqlVault) -> None:
    redactor = keeping(vault, (ADA, ADA.upper()))
    assert await redacted(redactor, ADA) == await redacted(redactor, ADA.upper()) == SAME
    assert await vault.load_originals("t", [SAME]) == {SAME: ADA}


async def test_the_vault_takes_more_originals_than_a_statement_has_parameters(vault: SqlVault) -> None:
    many = [original(f"person {number}", f"<PERSON_{number:012x}>") for number in range(2_100)]
    assert await vault.store_originals("t", many) == frozenset()
    assert await vault.store_originals("t", [*many, original("someone else", many[0].placeholder)]) == {
        few_bits("", "", "someone else")
    }
    kept = await vault.load_originals("t", [one.placeholder for one in many])
    assert kept == {one.placeholder: one.text for one in many}


async def test_another_key_opens_nothing_but_keeps_its_own(store: SqlStore, vault: SqlVault) -> None:
    other = store.build_vault(AesGcmCipher(OTHER_KEY, "vault"))
    await vault.store_originals("t", [original(ADA)])
    with pytest.raises(WrongKey):
        await other.load_originals("t", [SAME])
    theirs = original(BOB, "<PERSON_111111111111>")
    assert await other.store_originals("t", [theirs]) == frozenset()
    assert await other.load_originals("t", [theirs.placeholder]) == {theirs.placeholder: BOB}


@pytest.mark.parametrize("moved", ["tenant", "placeholder"])
async def test_an_original_that_was_moved_to_another_row_does_not_open(
    store: SqlStore, vault: SqlVault, moved: str
) -> None:
    await vault.store_originals("t", [original(ADA)])
    there = {"tenant": "t", "placeholder": SAME} | {moved: "elsewhere"}
    async with store.database.write() as connection:
        await connection.exec_driver_sql(f"UPDATE vault SET {moved} = 'elsewhere'")
    with pytest.raises(WrongKey):
        await vault.load_originals(there["tenant"], [there["placeholder"]])


@pytest.fixture
async def closed_vault(store: SqlStore, vault: SqlVault) -> AsyncIterator[SqlVault]:
    async with store.database.write() as connection:
        await connection.exec_driver_sql("ALTER TABLE vault RENAME TO vault_away")
    yield vault
    async with store.database.write() as connection:
        await connection.exec_driver_sql("ALTER TABLE vault_away RENAME TO vault")


async def test_nothing_is_redacted_where_the_vault_cannot_be_written(closed_vault: SqlVault) -> None:
    redactor = keeping(closed_vault)
    assert await redacted(redactor, "nothing private") == "nothing private"
    with pytest.raises(RedactionFailed, match="nothing is sent, because the originals") as no:
        await redacted(redactor, f"{ADA} wrote it.")
    assert ADA not in str(no.value)


async def test_a_value_that_comes_again_costs_no_look_until_it_may_have_been_forgotten(
    store: SqlStore, vault: SqlVault
) -> None:
    hands = Hands()
    redactor = keeping(vault, clock=hands)
    await redacted(redactor, ADA)
    async with store.database.write() as connection:
        await connection.exec_driver_sql("DELETE FROM vault")
    hands.now += VAULT_CACHE_LIFETIME - timedelta(seconds=1)
    await redacted(redactor, ADA)
    assert await vault.load_originals("t", [SAME]) == {}
    hands.now += timedelta(seconds=1)
    await redacted(redactor, ADA)
    assert await vault.load_originals("t", [SAME]) == {SAME: ADA}


async def test_what_is_dropped_is_gone_for_its_tenant_alone(vault: SqlVault) -> None:
    one = VaultEntry(type="PERSON", placeholder="<PERSON_aaaaaaaaaaaa>", fingerprint="f", text="Ada")
    other = one.replace(placeholder="<PERSON_bbbbbbbbbbbb>", text="Bob")
    await vault.store_originals("pilots", [one, other])
    await vault.store_originals("others", [one])
    assert await vault.load_all_originals("pilots") == {one.placeholder: "Ada", other.placeholder: "Bob"}
    assert await vault.delete_originals("pilots", [one.placeholder, "<PERSON_cccccccccccc>"]) == 1
    assert await vault.load_all_originals("pilots") == {other.placeholder: "Bob"}
    assert await vault.load_all_originals("others") == {one.placeholder: "Ada"}
