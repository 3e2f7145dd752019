"""Faults that a person meets on a page, in a real browser: what is said, where, and that nothing typed is lost."""

import asyncio
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.attacks.test_attacks_web_pages import store_running_task
from tests.end_to_end.axe_checks import find_faults_in_all_layouts
from tests.end_to_end.browser import launch_browser, needs_chromium, open_pages
from tests.end_to_end.harbour_documents import QUESTION
from tests.end_to_end.pages_server import NOON, make_budget_request, make_plan_request, run_pages_server
from tests.support.document_files import make_pdf_file
from tests.support.finished_tasks import make_task_row
from tests.support.free_ports import find_free_port
from waystation.agents.action_approvals import ActionQuestion
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Amount
from waystation.kernel.clock import utc_now
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import TaskPhase, TaskRequest
from waystation.tasks.view import RejectedMessageView, as_stored

pytestmark = [
    needs_chromium,
    pytest.mark.timeout(240),
]


def test_without_one_usable_document_nothing_starts_and_each_file_says_why(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "locked.pdf").write_bytes(make_pdf_file("Text.", encrypted=True))
    (tmp_path / "empty.md").write_bytes(b"")
    with open_pages(settings) as (pages, page):
        page.get_by_label("Question").fill(QUESTION)
        page.get_by_label("Choose documents").set_input_files([tmp_path / "locked.pdf", tmp_path / "empty.md"])
        expect(page.locator(".drop li")).to_have_count(2)
        expect(page.locator(".drop .sum")).not_to_contain_text("reading")
        page.get_by_role("button", name="Start research").click()
        expect(page.get_by_text("Give the documents to work on")).to_be_visible()
        documents = page.get_by_label("Choose documents")
        expect(documents).to_have_attribute("aria-invalid", "true")
        assert page.locator(".drop li").all_inner_texts() == [
            "locked.pdf\nlocked\nRemove\nprotected by a password; save the file without one",
            "empty.md\nunreadable\nRemove\nempty",
        ]
        assert (pages.client.taken, page.get_by_label("Question").input_value()) == (None, QUESTION)


def test_a_file_that_was_deleted_after_it_was_chosen_is_named_and_can_be_chosen_again(
    settings: Settings, tmp_path: Path
) -> None:
    chosen = tmp_path / "notes.md"
    chosen.write_bytes(b"# Notes\n\nThe bar is crossed at high water.\n")
    with open_pages(settings) as (pages, page):
        page.get_by_label("Question").fill(QUESTION)
        page.get_by_label("Choose documents").set_input_files(chosen)
        expect(page.locator(".drop .sum")).to_have_text("1 ready")
        chosen.unlink()
        page.get_by_role("button", name="Start research").click()
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("Not sent: files were changed, moved or deleted after they were chosen")
        expect(page.locator(".drop li")).to_contain_text("notes.md")
        expect(page.locator(".drop .sum")).to_have_text("1 unreadable")
        assert pages.client.taken is None

        chosen.write_bytes(b"# Notes\n\nThe bar is crossed at low water.\n")
        page.get_by_label("Choose documents").set_input_files(chosen)
        expect(page.locator(".drop .sum")).to_have_text("1 ready")
        page.get_by_role("button", name="Start research").click()
        page.wait_for_url("**/tasks/task-*")
        (given,) = pages.client.given
        assert "low water" in given.text


def test_what_was_typed_waits_for_someone_who_was_signed_out(settings: Settings) -> None:
    task = asyncio.run(store_running_task(settings))
    with run_pages_server(settings, find_free_port()) as pages, launch_browser() as started:
        page = started.new_context().new_page()
        pages.client.requests = (make_budget_request(1),)
        page.goto(pages.sign_in_url)
        page.goto(f"{pages.address}/tasks/{task}")
        page.get_by_label("Another amount").fill("40k")
        page.get_by_label("Note").fill("for the harbours")
        page.context.clear_cookies()
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("alert")).to_contain_text("You are signed out: sign in in another tab")
        assert page.get_by_label("Note").input_value() == "for the harbours"
        assert len(pages.client.requests) == 1

        page.context.new_page().goto(pages.sign_in_url)
        with page.expect_navigation():
            page.get_by_role("button", name="Approve").click()
        assert pages.client.requests == ()


def test_an_amount_that_was_corrected_is_still_chosen_after_a_reload(settings: Settings) -> None:
    task = asyncio.run(store_running_task(settings))
    with run_pages_server(settings, find_free_port()) as pages, launch_browser() as started:
        page = started.new_page()
        pages.client.requests = (make_budget_request(1),)
        page.goto(pages.sign_in_url)
        page.goto(f"{pages.address}/tasks/{task}")
        amount = page.get_by_label("Another amount")
        amount.fill("abc")
        page.get_by_role("button", name="Approve").click()
        expect(amount).to_have_attribute("aria-invalid", "true")
        amount.fill("40k")
        page.reload()
        expect(amount).to_have_value("40k")
        expect(page.get_by_label("the amount that you type")).to_be_checked()


def test_parts_of_a_file_that_cannot_be_used_are_named_under_it(settings: Settings) -> None:
    html = b"<html><body><p>The bar.</p><p style='display:none'>Two hidden words.</p></body></html>"
    with open_pages(settings) as (_, page):
        page.get_by_label("Choose documents").set_input_files(
            {"name": "bar.html", "mimeType": "text/html", "buffer": html}
        )
        expect(page.locator(".drop .sum")).to_have_text("1 ready")
        expect(page.locator(".drop li .why")).to_have_text(
            "hidden text: 1 passage (3 words) that readers of the document do not see"
        )


def test_a_request_never_takes_the_place_of_another_under_the_hand_of_a_person(settings: Settings) -> None:
    task = asyncio.run(store_running_task(settings))
    with open_pages(settings) as (pages, page):
        for place in (f"/tasks/{task}", "/inbox"):
            pages.client.requests = (make_budget_request(1),)
            pages.client.granted = None
            page.goto(f"{pages.address}{place}")
            withdrawn = make_budget_request(1).replace(decision="withdrawn", answered_at=NOON)
            pages.client.requests = (withdrawn, make_budget_request(2))
            pages.rename_task(task, f"Which harbours are closed, by {place}?")
            expect(page.locator("#news")).to_be_visible()
            expect(page.locator("article.request")).to_have_count(1)
            page.get_by_role("button", name="Approve").click()
            expect(page.locator("#over")).to_contain_text("Your answer had no effect")
            expect(page.locator("article.request h3")).to_have_text("writing asks for 10,000 tokens more")
            assert pages.client.granted is None
            assert [one.decision for one in pages.client.requests] == ["withdrawn", "pending"]


RECORD_FIRST_STATE = """() => {
  const record = () => {
    const button = document.querySelector("article.request button.go");
    if (button) window.first ??= button.disabled;
  };
  new MutationObserver(record).observe(document.querySelector("#live"), { childList: true, subtree: true });
}"""


def test_a_press_as_a_request_appears_does_not_answer_it(settings: Settings) -> None:
    task = asyncio.run(store_running_task(settings))
    with open_pages(settings) as (pages, page):
        page.goto(f"{pages.address}/tasks/{task}")
        page.evaluate(RECORD_FIRST_STATE)
        pages.client.requests = (make_budget_request(1),)
        pages.rename_task(task, "Which harbours are closed?")
        expect(page.locator("article.request")).to_be_visible()
        assert page.evaluate("window.first") is True
        with page.expect_navigation():
            page.get_by_role("button", name="Approve").click()
        assert pages.client.requests == ()


def test_a_task_whose_start_is_unknown_is_linked_and_starts_only_once(settings: Settings) -> None:
    with run_pages_server(settings, find_free_port()) as pages, launch_browser() as started:
        page = started.new_page()
        page.goto(pages.sign_in_url)
        page.get_by_label("Question").fill(QUESTION)
        page.get_by_label("Choose documents").set_input_files(
            {"name": "a.md", "mimeType": "text/plain", "buffer": b"# A"}
        )
        expect(page.locator(".drop .sum")).to_have_text("1 ready")
        pages.client.late = True
        page.get_by_role("button", name="Start research").click()
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("the task may have started. You can press Start research again")
        expect(alert).not_to_contain_text("waystation status")
        expect(page.locator("#new-task details.more")).to_have_js_property("open", value=False)
        address = alert.get_by_role("link", name="Open the task").get_attribute("href")
        assert find_faults_in_all_layouts(page) == {}
        pages.client.late = False
        page.get_by_role("button", name="Start research").click()
        page.wait_for_url("**/tasks/task-*")
        assert page.url == f"{pages.address}{address}"


def test_a_session_that_cannot_be_forgotten_yet_links_the_task_that_waits(settings: Settings) -> None:
    task = asyncio.run(store_running_task(settings))
    with open_pages(settings) as (pages, page):
        page.goto(f"{pages.address}/session?name=default")
        page.get_by_text("Forget this session").click()
        for requests, words in (((make_budget_request(1),), "waits for you"), ((), "is running: wait")):
            pages.client.requests = requests
            page.get_by_label("to confirm").fill("default")
            page.get_by_role("button", name="Forget it").click()
            alert = page.get_by_role("alert")
            expect(alert).to_contain_text(f"The task “Which?” {words}")
            expect(alert.get_by_role("link", name="Open the task")).to_have_attribute("href", f"/tasks/{task}")
        assert pages.client.forgotten is None


def test_an_answer_without_effect_and_the_use_of_a_grant_are_said_in_a_persons_words(settings: Settings) -> None:
    task = asyncio.run(store_running_task(settings))
    with open_pages(settings) as (pages, page):
        approved = make_budget_request(1).replace(decision="approved", by="Bob", answered_at=NOON)
        action = ActionQuestion(call_id="c1", tool="register__search", text="{}", digest="0" * 64)
        call = make_budget_request(1).replace(request_id="writing-12", requested=Amount(), action=action)
        pages.client.requests = (approved, make_budget_request(2), call)
        pages.client.rejected = tuple(
            RejectedMessageView(
                signal=signal, reason=f"the request {request} was already approved", at=NOON, request_id=""
            )
            for signal, request in (("approve_budget", "writing-1"), ("deny_budget", "writing-12"))
        )
        page.goto(f"{pages.address}/tasks/{task}")
        notes = page.locator("#activity li")
        expect(notes.filter(has_text="An approval had no effect")).to_contain_text(
            "the request of writing for 5,000 tokens was already approved"
        )
        expect(notes.filter(has_text="A denial had no effect")).to_contain_text(
            "the request of writing to call register__search was already approved"
        )
        said = "What writing does not need, other agents of the task may use."
        cards = page.locator("article.request")
        expect(cards.filter(has_text="asks for")).to_contain_text(said)
        expect(cards.filter(has_text="asks to call")).not_to_contain_text(said)


def test_a_plan_is_edited_again_from_the_plan_as_made(settings: Settings) -> None:
    task = asyncio.run(store_running_task(settings))
    with open_pages(settings) as (pages, page):
        pages.client.requests = (make_plan_request(),)
        page.goto(f"{pages.address}/tasks/{task}/plan")
        steps = page.locator("fieldset.step")
        goals = [one.input_value() for one in steps.get_by_label("Goal").all()]
        steps.nth(0).get_by_label("Goal").fill("Read about tides.")
        page.get_by_label("Note").fill("mind the silt")
        page.get_by_role("button", name="Remove research-2").click()
        expect(steps).to_have_count(len(goals) - 1)
        page.get_by_text("Start again from the plan as made").click()
        page.get_by_role("button", name="Yes, drop my changes").click()
        expect(steps).to_have_count(len(goals))
        assert [one.input_value() for one in steps.get_by_label("Goal").all()] == goals
        expect(page.get_by_label("Note")).to_have_value("mind the silt")
        assert find_faults_in_all_layouts(page) == {}
        page.reload()
        expect(steps.nth(0).get_by_label("Goal")).to_have_value(goals[0])


async def store_long_report(settings: Settings) -> str:
    """Store a finished task whose report is longer than a screen and cites another line in each paragraph."""
    settings.home.mkdir(exist_ok=True)
    text = "\n".join(f"Harbour {number} is closed by silt." for number in range(1, 41))
    paragraphs = [f"Harbour {number} is closed by silt [a.md:{number}-{number}]." for number in range(1, 41)]
    store = await SqlStore.open(settings.database_url, utc_now)
    asked = TaskRequest(question="Which?", session="default", request_id="long")
    row = make_task_row(asked, settings, await store.get_store_id())
    await store.register_task(row, (SourceDocument(name="a.md", text=text),))
    report = await store.put_text("# Which?\n\n" + "\n\n".join(paragraphs), row.ref.scope)
    await store.save_task_progress(row.ref.task_id, as_stored(row, TaskPhase.DONE).replace(report=report))
    await store.aclose()
    return row.ref.task_id


def test_a_report_stays_in_its_place_while_its_citations_are_read(settings: Settings) -> None:
    task = asyncio.run(store_long_report(settings))
    with open_pages(settings) as (pages, page):
        made = page.request.post(
            f"{pages.address}/v1/tasks/{task}/shares",
            data={"days": 7, "sources": True},
            headers={"origin": pages.address},
        )
        for path in (f"/tasks/{task}/report", made.json()["path"]):
            page.set_viewport_size({"width": 1280, "height": 700})
            page.goto(f"{pages.address}{path}")
            source = page.locator("#source tr.cited")
            for number in (31, 25):
                citation = page.locator(f"#cite-{number}")
                citation.scroll_into_view_if_needed()
                before = citation.bounding_box()
                citation.click()
                expect(source).to_contain_text(f"Harbour {number} is closed")
                after = citation.bounding_box()
                assert before is not None
                assert after is not None
                assert abs(before["y"] - after["y"]) < 2
                expect(page.locator("a.cite[aria-current]")).to_have_text(f"[{number}]")
                assert page.url.endswith(f"?source={number}#source")
            assert find_faults_in_all_layouts(page) == {}
            page.set_viewport_size({"width": 1280, "height": 700})
            page.go_back()
            expect(source).to_contain_text("Harbour 31 is closed")

            page.goto("about:blank")
            page.goto(f"{pages.address}{path}?source=33#source")
            expect(page.locator("#cite-33")).to_be_in_viewport()
            expect(source).to_be_in_viewport()

            page.set_viewport_size({"width": 390, "height": 700})
            page.locator("#cite-1").click()
            expect(source).to_contain_text("Harbour 1 is closed")
            expect(source).to_be_in_viewport()
