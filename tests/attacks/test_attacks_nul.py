"""NUL characters and halves of surrogate pairs on their way into a database: no text of anybody's breaks a query."""

from pathlib import Path

import pytest
from sqlalchemy import literal, select

from tests.attacks.test_attacks_web_pages import BEARER, NO_SERVER, open_site_client
from tests.support.scopes import SYSTEM_SCOPE, TASK_1_SCOPE
from waystation.config.settings import Settings
from waystation.kernel.scopes import SessionScope
from waystation.runtime.sql_store import SqlStore

ODD = ["a\x00b", "\x00", "a\ud83db", "\udfff"]


@pytest.mark.parametrize("text", ODD, ids=["nul", "nul alone", "first half", "second half"])
async def test_a_text_that_a_database_refuses_is_compared_and_written_without_what_it_refuses(
    text: str, store: SqlStore
) -> None:
    async with store.database.read() as connection:
        found = (await connection.execute(select(literal(text)))).scalar_one()
    assert found == text.replace("\x00", "\ufffd").replace("\ud83d", "\ufffd").replace("\udfff", "\ufffd")
    assert await store.find_task_ids(text, SYSTEM_SCOPE) == ()
    assert await store.list_tasks(SessionScope(tenant=text, session=text)) == ()
    blob = await store.put_text(text, TASK_1_SCOPE)
    kept = text if "\x00" in text else found  # UTF-8 has NUL
    assert await store.get_text(blob, TASK_1_SCOPE) == kept


async def test_an_address_with_a_nul_breaks_nothing(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    settings = Settings(home=tmp_path / "home", offline=True, store_url=store_url)
    async with open_site_client(settings) as asking:
        for path in (
            "/v1/tasks?session=a%00b",
            "/v1/tasks?text=a%00b",
            "/v1/tasks/a%00b",
            "/v1/spending?session=a%00b",
            "/v1/memory?query=a%00b",
            "/?session=a%00b",
            "/?text=%00",
        ):
            answer = await asking.get(path, headers=BEARER)
            assert answer.status_code in {200, 400, 404, 422, 503}, (path, answer.text)


async def test_a_task_whose_words_have_such_characters_is_taken_or_refused_and_breaks_nothing(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    settings = Settings(home=tmp_path / "home", offline=True, store_url=store_url)
    async with open_site_client(settings) as asking:
        for odd in (r"a\ud83d", r"a\u0000b"):
            for question, name, text, session in (
                (odd, "a.md", "x", "s"),
                ("q", odd, "x", "s"),
                ("q", "a.md", odd, "s"),
                ("q", "a.md", "x", odd),
            ):
                body = (
                    f'{{"question": "{question}", "session": "{session}", '
                    f'"documents": [{{"name": "{name}", "text": "{text}"}}]}}'
                )
                answer = await asking.post("/v1/tasks", headers={**BEARER, "Idempotency-Key": odd}, content=body)
                assert answer.status_code in {400, 422, 503}, (body, answer.text)
