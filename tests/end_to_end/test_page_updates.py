"""Pages in a real browser that change, lose their server, or do not take a form: what a person sees, and what stays."""

import asyncio
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Dialog, Locator, Page, Route, expect

from tests.attacks.test_attacks_web_pages import store_running_task
from tests.end_to_end.axe_checks import find_faults_in_all_layouts
from tests.end_to_end.browser import launch_browser, needs_chromium, open_pages
from tests.end_to_end.harbour_documents import QUESTION, write_harbour_documents
from tests.end_to_end.pages_server import NOON, make_budget_request, make_plan_request, run_pages_server
from tests.end_to_end.test_serve import start_server_process
from tests.plugins.web.test_partial_reply_stream import open_running_task
from tests.support.document_files import make_pdf_file
from tests.support.finished_tasks import make_task_row, store_finished_task
from tests.support.free_ports import find_free_port
from waystation.agents.partial_replies import PartialReply
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Amount
from waystation.kernel.clock import utc_now
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import TaskPhase, TaskRequest
from waystation.tasks.view import as_stored

pytestmark = [
    needs_chromium,
    pytest.mark.timeout(240),
]


async def store_cited_task(settings: Settings, names: list[str], words: str = "One") -> str:
    """Store a finished task whose report cites each of its documents, and return its id."""
    settings.home.mkdir(exist_ok=True)
    store = await SqlStore.open(settings.database_url, utc_now)
    asked = TaskRequest(question="Which?", session="default", request_id=f"{len(names)}-{len(words)}")
    row = make_task_row(asked, settings, await store.get_store_id())
    await store.register_task(row, tuple(SourceDocument(name=name, text="# A\n") for name in names))
    report = await store.put_text(
        "# Which?\n\n" + "\n".join(f"- {words} [{name}:1-1]." for name in names), row.ref.scope
    )
    await store.save_task_progress(row.ref.task_id, as_stored(row, TaskPhase.DONE).replace(report=report))
    await store.aclose()
    return row.ref.task_id


def fault_at(field: Locator) -> Locator:
    """The message that a field says is about it."""
    expect(field).to_have_attribute("aria-invalid", "true")
    return field.page.locator(f'[id="{field.get_attribute("aria-describedby")}"]')


def test_a_new_task_keeps_what_was_typed_and_chosen_until_it_is_taken(settings: Settings, tmp_path: Path) -> None:
    survey = write_harbour_documents(tmp_path / "survey")
    (survey / "scan.xyz").write_bytes(bytes(range(256)))
    with open_pages(settings) as (pages, page):
        page.get_by_label("Question").fill(QUESTION)
        page.get_by_label("Choose documents").set_input_files(sorted(survey.iterdir()))
        page.get_by_label("Budget", exact=True).fill("lots")
        page.get_by_text("More options").click()
        page.get_by_label("Show me the plan first").check()
        expect(page.locator(".drop .sum")).to_have_text("2 ready, 1 unreadable")
        page.get_by_role("button", name="Start research").click()
        budget = page.get_by_label("Budget", exact=True)
        expect(fault_at(budget)).to_contain_text("A budget is tokens like 600k")
        expect(budget).to_be_focused()
        expect(page.locator(".drop li").first).to_contain_text(re.compile("scan.xyz.*unreadable.*binary, not text"))
        assert find_faults_in_all_layouts(page) == {}

        pages.client.away = True
        budget.fill("9k")
        page.get_by_role("button", name="Start research").click()
        expect(page.get_by_role("alert")).to_contain_text("No Temporal server answers")
        expect(page.get_by_label("Question")).to_have_value(QUESTION)

        pages.client.away = False
        page.get_by_role("button", name="Start research").click()
        page.wait_for_url("**/tasks/task-*")
        assert pages.client.taken is not None
        assert (pages.client.taken.question, pages.client.taken.review_plan) == (QUESTION, True)
        assert sorted(one.name for one in pages.client.given) == ["nordvik.md", "sandby.md"]
        expect(page.get_by_text("scan.xyz: binary, not text")).to_be_visible()


def test_files_are_checked_before_anything_starts_and_unusable_ones_are_named_and_left_out(
    settings: Settings, tmp_path: Path
) -> None:
    survey = write_harbour_documents(tmp_path / "survey")
    (survey / "north").mkdir()
    (survey / "north" / "scan.pdf").write_bytes(make_pdf_file("scan"))
    (survey / "north" / "locked.pdf").write_bytes(make_pdf_file("Text.", encrypted=True))
    (survey / "large.txt").write_bytes(b"word " * 6_500_000)
    (survey / ".hidden").write_bytes(b"secret")
    (survey / "north" / "nordvik.md").write_bytes(b"# Another Nordvik\n")
    with open_pages(settings) as (pages, page):
        page.get_by_label("Question").fill(QUESTION)
        page.get_by_label("Choose a folder").set_input_files(survey)
        total = page.locator(".drop .sum")
        expect(total).to_have_text("3 ready, 1 scanned, 1 locked, 1 too large")
        expect(page.locator(".drop .tells")).to_have_text(
            re.compile(r"Reading all files once takes about [\d,]+ tokens")
        )
        assert find_faults_in_all_layouts(page) == {}
        page.get_by_role("button", name="Remove survey/sandby.md").click()
        expect(total).to_have_text("2 ready, 1 scanned, 1 locked, 1 too large")
        page.get_by_role("button", name="Start research").click()
        page.wait_for_url("**/tasks/task-*")
        assert sorted(one.name for one in pages.client.given) == ["nordvik.md", "north/nordvik.md"]
        assert pages.client.taken is not None
        left_out = {one.name: one.reason for one in pages.client.taken.skipped_items}
        assert left_out.keys() == {"survey/north/scan.pdf", "survey/north/locked.pdf", "survey/large.txt"}
        assert "32.5 MB" in left_out["survey/large.txt"]
        expect(page.get_by_text("survey/north/locked.pdf: protected by a password")).to_be_visible()


def write_notes(folder: Path, count: int, words: int) -> list[Path]:
    """Write text files of some size."""
    files = [folder / f"note-{number}.txt" for number in range(count)]
    for file in files:
        file.write_bytes(b"word " * words)
    return files


def test_each_file_shows_its_state_as_soon_as_it_is_read(settings: Settings, tmp_path: Path) -> None:
    with open_pages(settings) as (_, page):
        held: list[Route] = []
        page.route("**/v1/documents/check", lambda route: held.append(route))  # noqa: PLW0108
        with page.expect_request("**/v1/documents/check"):
            page.get_by_label("Choose documents").set_input_files(write_notes(tmp_path, 9, 10))
        total = page.locator(".drop .sum")
        expect(total).to_have_text("9 reading")
        for shown in ("4 ready, 5 reading", "8 ready, 1 reading", "9 ready"):
            while not held:
                page.wait_for_timeout(50)
            held.pop(0).continue_()
            expect(total).to_have_text(shown)


def test_a_task_starts_when_all_files_have_been_read_and_waiting_for_them_can_be_stopped(
    settings: Settings, tmp_path: Path
) -> None:
    with open_pages(settings) as (pages, page):
        held: list[Route] = []
        page.route("**/v1/documents/check", lambda route: held.append(route))  # noqa: PLW0108
        page.get_by_label("Question").fill(QUESTION)
        page.get_by_label("Choose documents").set_input_files(write_notes(tmp_path, 9, 10))
        expect(page.locator(".drop .sum")).to_have_text("9 reading")
        button = page.locator("#new-task button.go")
        button.click()
        expect(button).to_have_text("Read 0 of 9 files …")
        held.pop(0).continue_()
        expect(button).to_have_text("Read 4 of 9 files …")
        expect(button).to_be_disabled()
        page.get_by_role("button", name="Stop").click()
        expect(button).to_have_text("Start research")
        expect(button).to_be_focused()
        expect(page.get_by_role("button", name="Stop")).to_have_count(0)
        assert pages.client.taken is None
        button.click()
        expect(button).to_have_text("Read 4 of 9 files …")
        for _ in range(2):
            while not held:
                page.wait_for_timeout(50)
            held.pop(0).continue_()
        page.wait_for_url("**/tasks/task-*")
        assert len(pages.client.given) == 9


def test_a_wrong_amount_is_named_before_any_file_is_sent(settings: Settings, tmp_path: Path) -> None:
    with open_pages(settings) as (pages, page):
        sent: list[str] = []
        page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
        page.get_by_label("Question").fill(QUESTION)
        page.get_by_label("Choose documents").set_input_files(write_notes(tmp_path, 2, 10))
        expect(page.locator(".drop .sum")).to_have_text("2 ready")
        sent.clear()
        budget = page.get_by_label("Budget", exact=True)
        budget.fill("lots")
        page.get_by_role("button", name="Start research").click()
        expect(fault_at(budget)).to_contain_text("A budget is tokens like 600k")
        expect(page.locator("#new-task")).not_to_contain_text("Write it as 600k")
        assert sent == [f"{pages.address}/tasks/check"]
        expect(page.get_by_role("button", name="Start research")).to_be_enabled()
        expect(page.locator(".drop .sum")).to_have_text("2 ready")


def test_the_button_counts_the_files_that_are_sent_and_two_clicks_make_one_task(
    settings: Settings, tmp_path: Path
) -> None:
    with open_pages(settings) as (pages, page):
        page.get_by_label("Question").fill(QUESTION)
        page.get_by_label("Choose documents").set_input_files(write_notes(tmp_path, 8, 20_000))
        expect(page.locator(".drop .sum")).to_have_text("8 ready")
        slow = page.context.new_cdp_session(page)
        slow.send(  # pyright: ignore[reportUnknownMemberType] - its types are partly missing
            "Network.emulateNetworkConditions",
            {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 200_000},
        )
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/tasks") else None)
        page.get_by_role("button", name="Start research").dblclick()
        button = page.locator("#new-task button.go")
        expect(button).to_have_text(re.compile(r"^Sending [1-7] of 8 files …$"))
        expect(button).to_be_disabled()
        expect(page.get_by_role("button", name="Remove").first).to_be_disabled()
        page.wait_for_url("**/tasks/task-*")
        assert len(asked) == 1
        assert len(pages.client.given) == 8


def list_drafts(page: Page) -> list[str]:
    """Return what the tab has stored of forms."""
    drafts: list[str] = page.evaluate("Object.entries(sessionStorage).map((pair) => pair.join(': '))")
    return drafts


def test_what_is_typed_for_a_new_task_survives_a_reload_until_the_task_is_taken(settings: Settings) -> None:
    with open_pages(settings) as (pages, page):
        page.get_by_label("Question").fill(QUESTION)
        page.get_by_text("More options").click()
        page.get_by_label("Length of the report").select_option("short")
        page.get_by_label("Show me the plan first").check()
        page.reload()
        expect(page.get_by_label("Question")).to_have_value(QUESTION)
        expect(page.get_by_label("Length of the report")).to_have_value("short")
        expect(page.get_by_label("Show me the plan first")).to_be_checked()
        expect(page.get_by_label("Show me the plan first")).to_be_visible()
        mark = page.locator("#new-task [name=mark]").input_value()
        assert list_drafts(page)
        assert mark not in "".join(list_drafts(page))

        asked: list[str] = []

        def accept(dialog: Dialog) -> None:
            asked.append(dialog.type)
            dialog.accept()

        page.on("dialog", accept)
        page.get_by_label("Choose documents").set_input_files(
            {"name": "a.md", "mimeType": "text/plain", "buffer": b"# A"}
        )
        page.reload()
        assert asked == ["beforeunload"]
        expect(page.get_by_label("Question")).to_have_value(QUESTION)
        page.get_by_label("Choose documents").set_input_files(
            {"name": "a.md", "mimeType": "text/plain", "buffer": b"# A"}
        )
        page.get_by_role("button", name="Start research").click()
        page.wait_for_url("**/tasks/task-*")
        assert (asked, list_drafts(page)) == (["beforeunload"], [])
        page.goto(pages.address)
        expect(page.get_by_label("Question")).to_have_value("")


def test_an_edited_plan_survives_a_reload_with_its_steps(settings: Settings) -> None:
    task = asyncio.run(store_running_task(settings))
    with open_pages(settings) as (pages, page):
        pages.client.requests = (make_plan_request(),)
        page.goto(f"{pages.address}/tasks/{task}/plan")
        steps = page.locator("fieldset.step")
        page.get_by_role("button", name="Remove research-2").click()
        expect(steps).to_have_count(3)
        steps.nth(0).get_by_label("Goal").fill("Read about tides.")
        steps.nth(1).get_by_label("Share of the budget").fill("25%")
        page.reload()
        expect(steps).to_have_count(3)
        expect(steps.nth(0).get_by_label("Goal")).to_have_value("Read about tides.")
        expect(steps.nth(1).get_by_label("Share of the budget")).to_have_value("25%")
        page.get_by_role("button", name="Start with this plan").click()
        page.wait_for_url(f"**/tasks/{task}")
        assert pages.client.reviewed is not None
        assert len(pages.client.reviewed.steps) == 3
        assert list_drafts(page) == []


def test_answers_and_schedules_survive_a_reload(settings: Settings) -> None:
    task = asyncio.run(store_running_task(settings))
    with open_pages(settings) as (pages, page):
        pages.client.requests = (make_budget_request(1),)
        page.goto(f"{pages.address}/tasks/{task}")
        page.get_by_label("Another amount").fill("40k")
        page.get_by_label("Note").first.fill("go on")
        page.reload()
        expect(page.get_by_label("Another amount")).to_have_value("40k")
        expect(page.get_by_label("as requested")).not_to_be_checked()
        expect(page.get_by_label("Note").first).to_have_value("go on")
        with page.expect_navigation():
            page.get_by_role("button", name="Approve").click()
        assert list_drafts(page) == []

        page.goto(f"{pages.address}/schedules")
        page.get_by_label("Question").fill("What is new?")
        page.get_by_label("Every").select_option("day")
        page.reload()
        expect(page.get_by_label("Question")).to_have_value("What is new?")
        expect(page.get_by_label("Every")).to_have_value("day")


def test_files_that_are_dropped_keep_the_paths_of_their_folders(settings: Settings) -> None:
    with open_pages(settings) as (_, page):
        dropped = page.evaluate_handle(
            """() => {
              const transfer = new DataTransfer();
              transfer.items.add(new File(["# A"], "a.md", { type: "text/plain" }));
              return transfer;
            }"""
        )
        page.dispatch_event(".drop", "drop", {"dataTransfer": dropped})
        expect(page.locator(".drop .sum")).to_have_text("1 ready")
        expect(page.locator(".drop li .name")).to_have_text("a.md")


def test_files_that_are_too_many_for_a_form_are_told_before_they_are_sent(settings: Settings, tmp_path: Path) -> None:
    parts = [tmp_path / f"{number}.txt" for number in range(2)]
    for part in parts:
        part.write_bytes(b"word " * 3_500_000)
    with open_pages(settings) as (pages, page):
        page.get_by_label("Question").fill(QUESTION)
        page.get_by_label("Choose documents").set_input_files(parts)
        page.get_by_role("button", name="Start research").click()
        said = page.get_by_label("Choose documents").evaluate("(field) => field.validationMessage")
        assert "These files have 35.0 MB, but a form takes at most 31.8 MB" in said
        assert (pages.client.taken, page.get_by_label("Question").input_value()) == (None, QUESTION)


def test_an_amount_that_is_refused_leaves_the_answer_as_it_was_typed_beside_the_others(settings: Settings) -> None:
    task = asyncio.run(store_running_task(settings))
    with open_pages(settings) as (pages, page):
        pages.client.requests = (make_budget_request(1), make_budget_request(2))
        page.goto(f"{pages.address}/tasks/{task}")
        first, second = page.locator("article.request").all()
        second.get_by_label("Note").fill("for the other")
        first.get_by_label("Note").fill("go on")
        for amount, said in (("900 k tokens", "An amount is"), ("900k", "over its ceiling of 650,000 tokens")):
            first.get_by_label("Another amount").fill(amount)
            first.get_by_role("button", name="Approve").click()
            expect(fault_at(first.get_by_label("Another amount"))).to_contain_text(said)
        assert find_faults_in_all_layouts(page) == {}
        values = [one.get_by_label("Note").input_value() for one in (first, second)]
        assert values == ["go on", "for the other"]
        first.get_by_label("Another amount").fill("40k")
        with page.expect_navigation():
            first.get_by_role("button", name="Approve").click()
        expect(page.locator("article.request")).to_have_count(1)


def test_a_suggested_amount_and_a_typed_one_are_never_chosen_together(settings: Settings) -> None:
    task = asyncio.run(store_running_task(settings))
    with open_pages(settings) as (pages, page):
        pages.client.requests = (make_budget_request(1),)
        page.goto(f"{pages.address}/tasks/{task}")
        suggested, typed = page.get_by_label("as requested"), page.get_by_label("Another amount")
        expect(suggested).to_be_checked()
        typed.fill("900k")
        expect(suggested).not_to_be_checked()
        page.get_by_role("button", name="Approve").click()
        fault_at(typed)
        expect(suggested).not_to_be_checked()
        suggested.check()
        expect(typed).to_have_value("")
        typed.fill("40k")
        typed.fill("")
        expect(suggested).to_be_checked()


def test_the_button_that_revokes_a_link_stays_on_one_line(settings: Settings) -> None:
    task = asyncio.run(store_finished_task(settings))
    with open_pages(settings) as (pages, page):
        made = page.request.post(
            f"{pages.address}/v1/tasks/{task}/shares", data={"days": 7}, headers={"origin": pages.address}
        )
        assert made.status == 201, made.text()
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(f"{pages.address}/tasks/{task}/shares")
        page.get_by_role("button", name="Revoke").evaluate("(button) => getSelection().selectAllChildren(button)")
        assert page.evaluate("() => getSelection().getRangeAt(0).getClientRects().length") == 1


def test_what_was_typed_waits_for_a_server_that_is_gone(settings: Settings) -> None:
    port = find_free_port()
    with launch_browser() as started:
        page = started.new_page()
        with run_pages_server(settings, port) as pages:
            page.goto(pages.sign_in_url)
            page.get_by_label("Question").fill(QUESTION)
        page.get_by_label("Choose documents").set_input_files(
            {"name": "a.md", "mimeType": "text/plain", "buffer": b"# A"}
        )
        page.get_by_role("button", name="Start research").click()
        expect(page.get_by_role("alert")).to_contain_text("Your text is still here")
        with run_pages_server(settings, port) as pages:
            page.get_by_role("button", name="Start research").click()
            page.wait_for_url("**/tasks/task-*")
            assert pages.client.taken is not None
            assert pages.client.taken.question == QUESTION


def test_a_page_whose_server_is_killed_says_so_and_goes_on_by_itself_once_one_answers(settings: Settings) -> None:
    task, port = asyncio.run(store_running_task(settings)), find_free_port()
    with launch_browser() as started:
        page = started.new_context().new_page()
        with start_server_process(settings.home, port) as (server, token):
            page.goto(f"http://127.0.0.1:{port}/?token={token}")
            page.goto(f"http://127.0.0.1:{port}/tasks/{task}")
            expect(page.get_by_role("status")).to_have_text("")
            server.kill()
            server.communicate()
        expect(page.locator("#lost")).to_contain_text("The server does not answer")
        expect(page.locator("#lost")).to_be_in_viewport()
        assert find_faults_in_all_layouts(page) == {}
        with start_server_process(settings.home, port) as (server, token):
            try:
                expect(page.locator("#lost")).to_contain_text("You are signed out")
                other = page.context.new_page()
                other.goto(f"http://127.0.0.1:{port}/?token={token}")
                expect(page.locator("#lost")).to_have_count(0)
            finally:
                server.send_signal(signal.SIGINT)
                server.communicate(timeout=60)


def test_a_page_whose_server_is_silent_says_so_though_the_connection_stays_open(settings: Settings) -> None:
    task, port = asyncio.run(store_running_task(settings)), find_free_port()
    with launch_browser() as started, start_server_process(settings.home, port) as (server, token):
        try:
            page = started.new_page()
            page.goto(f"http://127.0.0.1:{port}/?token={token}")
            page.goto(f"http://127.0.0.1:{port}/tasks/{task}")
            page.wait_for_timeout(16_000)
            expect(page.locator("#lost")).to_have_count(0, timeout=1)
            server.send_signal(signal.SIGSTOP)
            expect(page.locator("#lost")).to_contain_text("The server does not answer")
            server.send_signal(signal.SIGCONT)
            expect(page.locator("#lost")).to_have_count(0)
        finally:
            server.send_signal(signal.SIGCONT)
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=60)


def test_a_page_in_which_somebody_writes_says_that_there_is_something_new_and_keeps_what_is_typed(
    settings: Settings,
) -> None:
    task = asyncio.run(store_running_task(settings))
    with open_pages(settings) as (pages, page):
        pages.client.requests = (make_budget_request(1), make_budget_request(2))
        page.goto(f"{pages.address}/tasks/{task}")
        page.get_by_label("Message to its agents").fill("Mind the silt")
        note = page.locator("article.request").nth(1).get_by_label("Note")
        note.fill("Not before noon")
        page.get_by_text("Goal of each step").click()

        pages.rename_task(task, "Which harbours are closed?")
        expect(page.locator("#news")).to_contain_text("This task has changed")
        expect(page.locator("#news")).to_be_in_viewport()
        expect(page.get_by_role("heading", level=1)).to_have_text("Which?")
        assert find_faults_in_all_layouts(page) == {}
        page.get_by_role("button", name="Show it").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Which harbours are closed?")
        expect(page.locator("#news")).to_have_count(0)
        expect(page.get_by_label("Message to its agents")).to_have_value("Mind the silt")
        expect(note).to_have_value("Not before noon")
        expect(page.locator("details[open] > summary")).to_have_text("Goal of each step")

        # Somebody else answers the request for which the note was meant.
        pages.client.requests = (make_budget_request(1),)
        pages.rename_task(task, "Which harbours are closed now?")
        page.get_by_role("button", name="Show it").click()
        expect(page.locator("article.request")).to_have_count(1)
        expect(page.locator("#homeless")).to_contain_text("Note: Not before noon")
        expect(page.get_by_label("Message to its agents")).to_have_value("Mind the silt")

        # Without anything typed it follows again by itself.
        page.get_by_label("Message to its agents").fill("")
        page.get_by_role("heading", level=1).click()
        pages.rename_task(task, "Which harbours were closed?")
        expect(page.get_by_role("heading", level=1)).to_have_text("Which harbours were closed?")
        expect(page.locator("#news")).to_have_count(0)


def test_the_second_of_two_people_reads_who_answered_how_much_and_when_and_the_form_is_gone(settings: Settings) -> None:
    task = asyncio.run(store_running_task(settings))
    with open_pages(settings) as (pages, page):
        pages.client.requests = (make_budget_request(1),)
        for place in (f"/tasks/{task}", "/inbox"):
            pages.client.requests = (make_budget_request(1),)
            page.goto(f"{pages.address}{place}")
            page.get_by_label("Another amount").fill("30k")
            page.locator("article.request").get_by_label("Note").fill("go on")
            pages.client.requests = (
                make_budget_request(1).replace(
                    decision="approved", by="Bob", granted=Amount(tokens=20_000), answered_at=NOON
                ),
            )
            page.get_by_role("button", name="Approve").click()
            said = page.locator("#over")
            expect(said).to_contain_text(re.compile(r"Bob.* granted writing 20,000 tokens, .*2026"))
            expect(said).to_contain_text("You had typed Amount: 30k; Note: go on.")
            expect(page.get_by_role("button", name="Approve")).to_have_count(0)
            assert find_faults_in_all_layouts(page) == {}
            expect(said).to_be_visible()
            page.get_by_role("button", name="Close").click()
            expect(said).to_have_count(0)


def test_an_amount_that_is_typed_is_a_choice_of_its_own_and_one_answer_is_shown(settings: Settings) -> None:
    task = asyncio.run(store_running_task(settings))
    with open_pages(settings) as (pages, page):
        pages.client.requests = (make_budget_request(1).replace(needed=Amount(tokens=242)),)
        page.goto(f"{pages.address}/tasks/{task}")
        chosen = page.locator("fieldset.amounts .choose:has(:checked)")
        expect(chosen).to_have_text("5,000 tokens, as requested")
        page.get_by_label("Another amount").fill("30k")
        expect(chosen).to_have_count(1)
        expect(chosen).to_contain_text("Another amount")
        assert find_faults_in_all_layouts(page) == {}
        page.get_by_label("Another amount").fill("")
        expect(chosen).to_have_text("5,000 tokens, as requested")
        page.get_by_label("the amount that you type").check()
        page.get_by_role("button", name="Approve").click()
        expect(fault_at(page.get_by_label("Another amount"))).to_have_text("Write an amount, like 60k or $0.50.")
        page.get_by_label("242 tokens, the minimum").check()
        page.get_by_role("button", name="Approve").click()
        expect(page.locator("article.request")).to_have_count(0)
        assert pages.client.granted == Amount(tokens=242)


def test_after_the_server_was_gone_only_what_changed_is_news_and_the_form_says_that_it_answers_again(
    settings: Settings,
) -> None:
    task, port = asyncio.run(store_running_task(settings)), find_free_port()
    with launch_browser() as started:
        page = started.new_page()
        with run_pages_server(settings, port) as pages:
            page.goto(pages.sign_in_url)
            page.goto(f"{pages.address}/tasks/{task}")
            page.get_by_label("Message to its agents").fill("Mind the silt")
            page.locator("#message").get_by_label("Your name").fill("Ada")
        expect(page.locator("#lost")).to_contain_text("The server does not answer")
        page.get_by_role("button", name="Send").click()
        unanswered = page.locator("#message > [role=alert]")
        expect(unanswered).to_contain_text("may not have received this")
        with run_pages_server(settings, port) as pages:
            expect(page.locator("#lost")).to_have_count(0)
            expect(unanswered).to_contain_text("The server answers again")
            expect(unanswered).not_to_have_class("fault")
            page.wait_for_timeout(2_000)
            expect(page.locator("#news")).to_have_count(0)
            assert find_faults_in_all_layouts(page) == {}
            pages.rename_task(task, "Which harbours are closed?")
            expect(page.locator("#news")).to_contain_text("This task has changed")


def test_the_page_of_a_finished_task_folds_its_documents_and_has_its_buttons_on_one_line(settings: Settings) -> None:
    names = [f"{number}.md" for number in range(12)]
    tasks = [asyncio.run(store_cited_task(settings, names[:count])) for count in (3, 12)]
    with open_pages(settings) as (pages, page):
        for task, is_open in zip(tasks, (True, False), strict=True):
            page.goto(f"{pages.address}/tasks/{task}")
            page.set_viewport_size({"width": 1280, "height": 900})
            expect(page.get_by_role("heading", name="Sources", exact=True)).to_have_count(1)
            expect(page.get_by_role("heading", name="Documents", exact=True)).to_have_count(1)
            cited = page.locator("#documents details", has_text="cited 1 time")
            expect(cited).to_have_js_property("open", is_open)
            tops: list[float] = page.locator(".toolbar > *").evaluate_all("(all) => all.map((one) => one.offsetTop)")
            assert len(set(tops)) == 1
            expect(page.locator(".toolbar .go")).to_have_text("Read next to its sources")
            assert find_faults_in_all_layouts(page) == {}


def test_what_placeholders_are_is_said_where_a_report_has_some(settings: Settings) -> None:
    plain, replaced = (
        asyncio.run(store_cited_task(settings, ["a.md"], words)) for words in ("One", "Ask <EMAIL_2c7b858b59c2>")
    )
    with open_pages(settings) as (pages, page):
        for path in (f"/tasks/{replaced}", f"/tasks/{replaced}/report"):
            page.goto(f"{pages.address}{path}")
            expect(page.get_by_text("Agents see placeholders such as <EMAIL_2c7b858b59c2>")).to_be_visible()
        page.goto(f"{pages.address}/tasks/{plain}")
        expect(page.get_by_text("Agents see placeholders")).to_have_count(0)


def test_a_form_that_came_back_is_not_renewed_away(settings: Settings) -> None:
    task = asyncio.run(store_running_task(settings))
    with open_pages(settings) as (pages, page):
        pages.client.requests = (make_budget_request(1),)
        page.goto(f"{pages.address}/tasks/{task}")
        page.get_by_label("Another amount").fill("900k")
        page.get_by_role("button", name="Approve").click()
        fault_at(page.get_by_label("Another amount"))
        page.get_by_role("heading", level=1).click()
        pages.rename_task(task, "Which harbours are closed?")
        page.get_by_role("button", name="Show it").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Which harbours are closed?")
        expect(page.get_by_label("Another amount")).to_have_value("900k")
        expect(page.get_by_label("as requested")).not_to_be_checked()


def test_the_inbox_renews_itself_and_the_header_and_the_title_say_what_waits(settings: Settings) -> None:
    task = asyncio.run(store_running_task(settings))
    with open_pages(settings) as (pages, page):
        page.get_by_label("Question").fill(QUESTION)
        expect(page.locator("#badge")).to_be_hidden()
        pages.client.requests = (make_budget_request(1),)
        pages.rename_task(task, "Which harbours are closed?")
        expect(page.locator("#badge")).to_have_text("1")
        expect(page).to_have_title("(1) Waystation")
        expect(page.get_by_role("link", name="Which harbours are closed?").first).to_be_visible()
        expect(page.get_by_label("Question")).to_have_value(QUESTION)

        page.get_by_role("link", name="Inbox").click()
        expect(page.locator("article.request")).to_have_count(1)
        page.locator("article.request").get_by_label("Note").fill("go on")
        pages.client.requests = (make_budget_request(1), make_budget_request(2))
        pages.rename_task(task, "Which harbours are closed now?")
        expect(page.locator("#news")).to_contain_text("There is something new on this page")
        page.get_by_role("button", name="Show it").click()
        expect(page.locator("article.request")).to_have_count(2)
        expect(page.locator("article.request").first.get_by_label("Note")).to_have_value("go on")
        expect(page).to_have_title("(2) Inbox · Waystation")
        pages.client.requests = ()
        page.locator("article.request").first.get_by_label("Note").fill("")
        page.get_by_role("heading", level=1).click()
        pages.rename_task(task, "Which harbours were closed?")
        expect(page.get_by_text("Nothing waits for an answer.")).to_be_visible()
        expect(page).to_have_title("Inbox · Waystation")


HIDDEN = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_page_that_nobody_looks_at_leaves_its_connection_to_others_and_catches_up(settings: Settings) -> None:
    task = asyncio.run(store_running_task(settings))
    with open_pages(settings) as (pages, page):
        context = page.context.browser
        assert context is not None
        tabs = context.new_context()
        front = tabs.new_page()
        front.goto(pages.sign_in_url)
        for _ in range(7):
            front.goto(f"{pages.address}/tasks/{task}")
            front.evaluate(HIDDEN, arg=True)
            front = tabs.new_page()
        # A browser has six connections to one server: with all of them taken this would load for ever.
        front.goto(f"{pages.address}/tasks/{task}")
        first = tabs.pages[0]
        pages.rename_task(task, "Which harbours are closed?")
        expect(front.get_by_role("heading", level=1)).to_have_text("Which harbours are closed?")
        assert first.get_by_role("heading", level=1).inner_text() == "Which?"
        first.evaluate(HIDDEN, arg=False)
        expect(first.get_by_role("heading", level=1)).to_have_text("Which harbours are closed?")


def test_a_report_is_had_as_pdf_and_as_word_from_its_page(settings: Settings, tmp_path: Path) -> None:
    task = asyncio.run(store_finished_task(settings))
    with open_pages(settings) as (pages, page):
        page.goto(f"{pages.address}/tasks/{task}")
        page.get_by_text("Download").click()
        for name, ending, begins in (
            ("PDF", "pdf", b"%PDF-"),
            ("Word", "docx", b"PK"),
            ("Markdown", "md", b"# Report"),
        ):
            with page.expect_download() as kept:
                page.get_by_role("link", name=name, exact=True).click()
            assert kept.value.suggested_filename == f"{task}.{ending}"
            kept.value.save_as(tmp_path / ending)
            assert (tmp_path / ending).read_bytes().startswith(begins)


def test_a_plan_is_edited_and_sent_and_the_second_person_keeps_what_they_wrote(settings: Settings) -> None:
    task = asyncio.run(store_running_task(settings))
    with open_pages(settings) as (pages, page):
        pages.client.requests = (make_plan_request(),)
        browser = page.context.browser
        assert browser is not None
        other = browser.new_page()
        other.goto(pages.sign_in_url)
        for one in (page, other):
            one.goto(f"{pages.address}/tasks/{task}")
            one.get_by_role("link", name="Read or edit the plan").click()
        steps = page.locator("fieldset.step")
        expect(steps).to_have_count(4)
        steps.nth(0).get_by_label("Goal").fill("Read about tides.")
        steps.nth(0).get_by_label("Title").press("Enter")
        expect(page.locator("#plan")).not_to_have_attribute("aria-busy", "true")
        expect(steps.nth(0).get_by_label("Goal")).to_have_value("Read about tides.")
        page.get_by_role("button", name="Add a step").click()
        expect(steps).to_have_count(5)
        expect(steps.nth(3).get_by_label("Goal")).to_be_focused()
        page.get_by_role("button", name="Start with this plan").click()
        expect(fault_at(steps.nth(3).get_by_label("Goal"))).to_have_text("Step 'research-3' has no goal.")
        assert find_faults_in_all_layouts(page) == {}
        page.get_by_role("button", name="Remove research-3").click()
        expect(steps).to_have_count(4)
        expect(steps.nth(0).get_by_label("Goal")).to_have_value("Read about tides.")
        page.get_by_role("button", name="Start with this plan").click()
        page.wait_for_url(f"**/tasks/{task}")
        assert pages.client.reviewed is not None
        assert pages.client.reviewed.get_step("research-1").goal == "Read about tides."

        last = other.locator("fieldset.step").nth(3)
        last.get_by_label("Goal").fill("Write about silt.")
        other.get_by_role("button", name="Start with this plan").click()
        expect(other.get_by_role("alert")).to_contain_text("This plan no longer waits for approval")
        expect(last.get_by_label("Goal")).to_have_value("Write about silt.")


def test_a_finished_task_is_scheduled_from_its_page_and_a_refused_form_keeps_what_was_typed(
    settings: Settings, tmp_path: Path
) -> None:
    task = asyncio.run(store_finished_task(settings))
    survey = write_harbour_documents(tmp_path / "survey")
    with open_pages(settings) as (pages, page):
        page.goto(f"{pages.address}/tasks/{task}")
        page.get_by_role("link", name="Run again every").click()
        form = page.locator("#new-schedule")
        expect(form.get_by_text("Each run uses the documents of the session’s newest task, now a.md.")).to_be_visible()
        form.get_by_text("More options").click()
        page.get_by_label("Files or folders").fill("survey")
        page.get_by_label("Every").select_option("day")
        page.get_by_label("At", exact=True).fill("06:30")
        page.get_by_role("button", name="Add the schedule").click()
        paths = page.get_by_label("Files or folders")
        expect(fault_at(paths)).to_contain_text("Give an absolute path")
        expect(page.get_by_label("Every")).to_have_value("day")
        expect(form.get_by_role("link", name="this task")).to_be_visible()
        assert find_faults_in_all_layouts(page) == {}
        paths.fill(str(survey))

        held: list[Route] = []
        page.route(
            "**/schedules",
            lambda route: held.append(route) if route.request.method == "POST" else route.fallback(),
        )
        page.get_by_role("button", name="Add the schedule").click()
        expect(form.get_by_role("status")).to_have_text("Adding the schedule: its documents are read first.")
        expect(page.get_by_role("button", name="Add the schedule")).to_be_disabled()
        expect(form.locator(".fault, [aria-invalid]")).to_have_count(0)
        assert find_faults_in_all_layouts(page) == {}
        (sent,) = held
        sent.continue_()
        expect(page.get_by_text("This schedule was added.")).to_be_visible()
        assert pages.client.stub_schedules is not None
        (timing,) = pages.client.stub_schedules.timings.values()
        assert timing.cron == "30 6 * * *"


def test_a_schedule_shows_a_run_that_ends_and_who_paused_it_without_a_reload(settings: Settings) -> None:
    task = asyncio.run(store_finished_task(settings))
    with open_pages(settings) as (pages, page):
        page.evaluate("localStorage.setItem('name', 'Ada')")
        page.goto(f"{pages.address}/schedules?task={task}")
        page.get_by_role("button", name="Add the schedule").click()
        expect(page.get_by_text("This schedule was added.")).to_be_visible()
        stub = pages.client.stub_schedules
        assert stub is not None
        (schedule_id,) = stub.kept
        stub.kept[schedule_id] = stub.kept[schedule_id].replace(last_run=NOON, last="under way", running=True)
        page.reload()
        card = page.locator("article.card")
        expect(card).to_contain_text("under way")
        card.get_by_text("Remove", exact=True).click()
        stub.kept[schedule_id] = stub.kept[schedule_id].replace(last=f"done, {task}", running=False)
        ran = store_finished_task(settings, request_id=f"{schedule_id}@2026-11-30T07:00:00Z")
        with ThreadPoolExecutor() as threads:
            threads.submit(asyncio.run, ran).result()
        expect(card.get_by_role("link", name="its task")).to_have_attribute("href", f"/tasks/{task}")
        expect(card.get_by_role("button", name=re.compile("Yes, remove it"))).to_be_visible()
        expect(card).to_contain_text("every week, on Monday, at 07:00")
        assert find_faults_in_all_layouts(page) == {}
        card.get_by_role("button", name=re.compile("Pause")).click()
        expect(card).to_contain_text("paused by Ada")


def test_a_session_is_forgotten_after_its_name_was_typed(settings: Settings) -> None:
    asyncio.run(store_finished_task(settings))
    with open_pages(settings) as (pages, page):
        page.get_by_role("link", name="Sessions").click()
        page.locator("main table a, main li a").first.click()
        page.get_by_text("Forget this session").click()
        name = page.get_by_label("to confirm")
        name.fill("something else")
        page.get_by_role("button", name="Forget it").click()
        fault_at(name)
        expect(name).to_be_focused()
        assert re.search(r"/session\?name=[^/]+$", page.url), "an address that can be opened again"
        assert find_faults_in_all_layouts(page) == {}
        assert pages.client.forgotten is None
        name.fill(page.locator("#forget input[name=name]").input_value())
        page.evaluate("showWaiting(1)")
        expect(page.locator("#badge")).to_have_text("1")
        page.get_by_role("button", name="Forget it").click()
        expect(page.get_by_role("status").filter(has_text="Forgotten: 1 task, 2 passages")).to_be_visible()
        expect(page.locator("#badge")).to_be_hidden()


def test_spending_by_session_leads_to_the_session(settings: Settings) -> None:
    asyncio.run(store_running_task(settings))
    with open_pages(settings) as (pages, page):
        page.goto(f"{pages.address}/spending?since=2026-11-01&until=2026-11-30")
        page.locator("select[name=by]").select_option("session")
        page.get_by_role("button", name="Show").click()
        assert find_faults_in_all_layouts(page) == {}
        page.get_by_role("link", name="default").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Which?")


def store_reply(settings: Settings, reply: PartialReply | None) -> str:
    """Store what the agent of a running task is writing, or that it writes nothing; return the task's id.

    In a thread, because Playwright has an event loop in this one.
    """

    async def store() -> str:
        async with open_running_task(settings) as task:
            if reply is not None:
                async with asyncio.timeout(60):
                    while not await task.is_watched():
                        await asyncio.sleep(0.1)
                assert await task.store.save_partial_reply(task.fence, task.ref.task_id, reply)
            return task.ref.task_id

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, store()).result()


def test_what_an_agent_thinks_and_writes_is_shown_as_text_and_is_gone_with_its_reply(settings: Settings) -> None:
    task_id = store_reply(settings, None)
    with open_pages(settings) as (pages, page):
        with page.expect_request(re.compile(f"replies={task_id}")):
            page.goto(f"{pages.address}/tasks/{task_id}")
        place = page.locator("#replies")
        expect(place).to_be_hidden()
        store_reply(settings, PartialReply(agent="research-1", kind="thinking", text="<b>Which</b> depth?"))
        expect(place.locator(".thinking")).to_contain_text("research-1 is thinking …")
        expect(place.locator(".thinking .words")).to_have_text("<b>Which</b> depth?")
        store_reply(settings, PartialReply(agent="research-1", kind="text", text="It is 4.1 m.", calls_tool=True))
        expect(place.locator(".text")).to_contain_text("research-1 is preparing a tool call …")
        store_reply(settings, None)
        expect(place).to_be_hidden()
