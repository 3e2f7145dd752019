"""Who comes without a session, and what is tried at the form that asks for a key."""

import re
from html import escape, unescape
from pathlib import Path

import pytest

from tests.attacks.test_attacks_web_pages import ACCESS, COOKIES, HERE, NO_SERVER, open_site_client
from waystation.config.settings import Settings
from waystation.plugins.web.access import (
    COOKIE,
    MAX_BODY_BYTES,
    MAX_SIGN_IN_BYTES,
    MAX_SIGNED_OUT,
    TRIES_AT_ONCE,
    BrowserSession,
    SignOutRegistry,
)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return Settings(home=tmp_path / "home", offline=True)


WANTS_PAGE = {"Accept": "text/html,application/xhtml+xml"}


@pytest.mark.parametrize("path", ["/tasks/task-00000000?since=1", "/?session=a%2Fb", "/"])
async def test_a_browser_without_a_session_gets_a_form_for_a_key_that_leads_to_the_page_it_wanted(
    path: str, settings: Settings
) -> None:
    async with open_site_client(settings) as asking:
        refused = await asking.get(path, headers=WANTS_PAGE)
        styled = await asking.get("/static/style.css")
        action = unescape(re.findall(r'<form method="post" action="([^"]*)"', refused.text)[0])
        origin = {"Origin": HERE, **WANTS_PAGE}
        wrong = await asking.post(action, headers=origin, data={"key": "wrong" * 9})
        right = await asking.post(action, headers=origin, data={"key": ACCESS.token})
        out = await asking.post("/sign-out", headers={"Origin": HERE})
        after = await asking.get("/v1/tasks")
    assert (refused.status_code, refused.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert styled.status_code == 200
    assert (wrong.status_code, "wrongwrong" in wrong.text, f'action="{escape(action)}"' in wrong.text) == (
        401,
        False,
        True,
    )
    assert (right.status_code, right.headers["location"]) == (303, path)
    cookie, _, attributes = right.headers["set-cookie"].partition("; ")
    assert ACCESS.parse_cookie(cookie.removeprefix(f"{COOKIE}=")) is not None
    assert attributes == "HttpOnly; Path=/; SameSite=strict"
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert after.status_code == 401


@pytest.mark.parametrize(
    "to",
    ["//evil.example", "/\\evil.example", "https://evil.example", "/\t/evil.example", "", "x", "/\r\nSet-Cookie: a=b"],
)
async def test_signing_in_leads_to_no_other_site(to: str, settings: Settings) -> None:
    async with open_site_client(settings) as asking:
        answer = await asking.post(
            "/sign-in", params={"to": to}, headers={"Origin": HERE}, data={"key": ACCESS.token}, follow_redirects=False
        )
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


async def test_a_copy_of_a_cookie_opens_nothing_after_its_browser_signed_out_and_other_browsers_stay(
    settings: Settings,
) -> None:
    async def sign_in() -> dict[str, str]:
        answer = await asking.post("/sign-in", headers={"Origin": HERE}, data={"key": ACCESS.token})
        asking.cookies.clear()
        return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}

    async with open_site_client(settings) as asking:
        one, other = await sign_in(), await sign_in()
        before = [(await asking.get("/", headers=cookie)).status_code for cookie in (one, other)]
        await asking.post("/sign-out", headers={"Origin": HERE, **one})
        after = [(await asking.get("/", headers=cookie)).status_code for cookie in (one, other)]
        again = await asking.get("/", headers=await sign_in())
    assert (before, after, again.status_code) == ([200, 200], [401, 200], 200)


def test_only_someone_with_the_same_key_can_make_the_server_forget_who_signed_out() -> None:
    signed_out, mine = SignOutRegistry(), BrowserSession("0123", "mine")
    signed_out.add(mine)
    for number in range(MAX_SIGNED_OUT + 1):
        signed_out.add(BrowserSession("4567", str(number)))
    assert mine in signed_out
    assert BrowserSession("4567", "0") not in signed_out
    assert BrowserSession("4567", str(MAX_SIGNED_OUT)) in signed_out
    assert BrowserSession("4567", "mine") not in signed_out


async def test_no_other_page_signs_a_browser_in_and_nobody_tries_keys_without_end(settings: Settings) -> None:
    tried = {"key": ACCESS.token}
    async with open_site_client(settings) as asking:
        foreign = await asking.post("/sign-in", headers={"Origin": "http://evil.example"}, data=tried)
        nameless = await asking.post("/sign-in", data=tried)
        long = await asking.post("/sign-in", headers={"Origin": HERE}, data={"key": "k" * MAX_SIGN_IN_BYTES})
        keys = [
            await asking.post("/sign-in", headers={"Origin": HERE}, data={"key": f"wsk_00000000_{number}"})
            for number in range(TRIES_AT_ONCE + 5)
        ]
        late = await asking.post("/sign-in", headers={"Origin": HERE}, data=tried)
        still = await asking.get("/v1/tasks", headers=COOKIES)
    assert (foreign.status_code, nameless.status_code, long.status_code) == (403, 403, 413)
    assert {answer.status_code for answer in keys} == {401, 429}
    # Wrong keys keep nobody out who has a right one.
    assert (late.status_code, "set-cookie" in late.headers, still.status_code) == (303, True, 200)


async def test_what_the_guard_refuses_is_a_page_for_a_browser_and_a_problem_for_programs(settings: Settings) -> None:
    long = {"Content-Length": str(MAX_BODY_BYTES + 1), "Origin": HERE, **COOKIES}
    async with open_site_client(settings) as asking:
        page = await asking.post("/tasks", headers={**long, **WANTS_PAGE})
        problem = await asking.post("/v1/tasks", headers={**long, **WANTS_PAGE})
        lost = await asking.post("/tasks/task-00000000/message", headers={"Origin": HERE, **WANTS_PAGE})
    assert (page.status_code, "<h1>Too large</h1>" in page.text) == (413, True)
    assert (problem.status_code, problem.headers["content-type"]) == (413, "application/problem+json")
    assert "What you sent was not accepted: sign in, then go back" in lost.text
