"""What is counted and refused of a session before a task is submitted to it."""

import pytest

from tests.support.finished_tasks import as_stored, make_task_row, store_finished_task
from waystation.client.submission import load_session_documents, prepare_task_row
from waystation.config.settings import Settings
from waystation.config.validation import estimate_first_turn_tokens
from waystation.context.tokens import estimate_text
from waystation.documents.documents import SourceDocument
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.earlier_tasks import WINDOW_SHARE, EarlierTaskReader
from waystation.tasks.task import TaskPhase, TaskRequest


def follow_up(session: str = "default") -> TaskRequest:
    """In a window that has room for what is asked, and next to none for more."""
    asked = TaskRequest(question="And?", request_id="r2", session=session)
    return asked.replace(window=(estimate_first_turn_tokens(asked) + 20) * 100 // 75 + 1)


async def ended_in(settings: Settings) -> SqlStore:
    """The store of a session with one task that has ended."""
    await store_finished_task(settings)
    return await SqlStore.open(settings.database_url, utc_now)


async def test_a_window_without_room_for_the_earlier_tasks_of_its_session_is_refused(without_server: Settings) -> None:
    store = await ended_in(without_server)
    with pytest.raises(BadInput, match="your question and earlier tasks already take about "):
        await prepare_task_row(without_server, store, follow_up())
    assert (
        await prepare_task_row(without_server, store, follow_up("another"))
    ).config.default.window == follow_up().window
    await store.aclose()


async def test_the_window_that_the_refusal_names_has_room(without_server: Settings) -> None:
    store = await ended_in(without_server)
    with pytest.raises(BadInput) as refusal:
        await prepare_task_row(without_server, store, follow_up())
    least = int(str(refusal.value).rpartition("--window ")[2].replace(",", ""))
    row = await prepare_task_row(without_server, store, follow_up().replace(window=least))
    earlier = EarlierTaskReader(store)
    told = await earlier.render_listing(row, least)
    assert told
    assert estimate_first_turn_tokens(row.request) + estimate_text(told) < row.config.default.trigger
    assert estimate_text(told) <= min(
        least // WINDOW_SHARE, await earlier.estimate_max_tokens(row.ref, row.submitted_at)
    )
    await store.aclose()


async def test_the_same_request_again_is_measured_by_what_there_was_when_it_was_submitted_first(
    without_server: Settings,
) -> None:
    without_server.home.mkdir()
    store = await SqlStore.open(without_server.database_url, utc_now)
    first = await prepare_task_row(without_server, store, follow_up())
    await store.register_task(first, ())
    await store_finished_task(without_server)
    assert (await prepare_task_row(without_server, store, follow_up())).config == first.config
    await store.aclose()


async def test_newer_open_tasks_hide_neither_the_same_request_nor_ended_tasks(without_server: Settings) -> None:
    """Each submission reads one task and ten ended ones, however many the session has."""
    store = await ended_in(without_server)
    again = TaskRequest(question="And?", session="default", request_id="again")
    first = await prepare_task_row(without_server, store, again)
    await store.register_task(first, ())
    for number in range(51):
        newer = TaskRequest(question="And?", session="default", request_id=f"newer {number}", servers=("none",))
        await store.register_task(make_task_row(newer, without_server, first.ref.store_id), ())
    await store_finished_task(without_server, "later")
    repeated = await prepare_task_row(without_server, store, again)
    assert (repeated.config, repeated.request) == (first.config, first.request)
    new = await prepare_task_row(
        without_server, store, TaskRequest(question="And?", session="default", request_id="new")
    )
    listed = await EarlierTaskReader(store).render_listing(new, 200_000)
    assert listed is not None
    assert listed.count("\n- task-") == 2
    await store.aclose()


async def test_ended_tasks_without_a_report_do_not_shorten_the_listing(without_server: Settings) -> None:
    store = await ended_in(without_server)
    for number in range(12):
        row = make_task_row(
            TaskRequest(question="And?", session="default", request_id=f"{number}"),
            without_server,
            await store.get_store_id(),
        )
        await store.register_task(row, ())
        await store.save_task_progress(row.ref.task_id, as_stored(row, TaskPhase.CANCELLED))
    new = await prepare_task_row(
        without_server, store, TaskRequest(question="And?", session="default", request_id="new")
    )
    listed = await EarlierTaskReader(store).render_listing(new, 200_000)
    assert listed is not None
    assert listed.count("\n- task-") == 1
    await store.aclose()


@pytest.mark.parametrize("name", ["two\nlines", "bell\x07", "\u2028"])
async def test_a_session_that_no_list_can_show_is_refused(name: str, without_server: Settings) -> None:
    without_server.home.mkdir()
    store = await SqlStore.open(without_server.database_url, utc_now)
    with pytest.raises(BadInput, match="the name of a session must be one line without control characters, and "):
        await prepare_task_row(without_server, store, follow_up(name))
    await store.aclose()


async def test_documents_of_a_session_keep_the_day_that_their_files_stated(without_server: Settings) -> None:
    store = await ended_in(without_server)
    given = SourceDocument(name="scan.pdf", text="Ships left.", source="ab" * 32, date="2024-05-31")
    row = make_task_row(follow_up("harbour"), without_server, await store.get_store_id())
    await store.register_task(row, (given,))
    assert await load_session_documents(store, without_server.tenant, "harbour") == (given,)
    await store.aclose()
