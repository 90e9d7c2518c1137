"""The console of a controller that wants to know who reads: login, session, forms, and attacks."""

import uuid
from collections.abc import Iterator

import httpx
import pytest
from e2e.guarded import NOBODY, VIEWER, Guarded, guarded_controller
from e2e.rest_world import Api
from e2e.secured import SUPER_USER
from playwright.sync_api import Browser, Page, expect
from waiting import PATIENCE_S, wait_for

expect.set_options(timeout=PATIENCE_S * 1_000)

COOKIE = "__Host-tidemark"
SAME_ORIGIN = {"sec-fetch-site": "same-origin"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_controller(tmp_path_factory.mktemp("login")) as made:
        with made.client(SUPER_USER) as http:
            wait_for(lambda: http.get("/v3/clusters").is_success, "the super user logs in")
        yield made


@pytest.fixture
def guarded_page(browser: Browser, world: Guarded) -> Iterator[Page]:
    context = browser.new_context(base_url=world.base, ignore_https_errors=True)
    context.set_default_timeout(PATIENCE_S * 1_000)
    yield context.new_page()
    context.close()


@pytest.fixture
def session(world: Guarded) -> Iterator[httpx.Client]:
    """A program with the session of the super user."""
    with world.client() as http:
        log_in(http, SUPER_USER, SUPER_USER)
        yield http


def log_in(http: httpx.Client, user: str, password: str, back: str = "/topics") -> httpx.Response:
    form = {"user": user, "password": password, "back": back}
    return http.post("/login", data=form, headers=SAME_ORIGIN)


def fill(page: Page, user: str, password: str) -> None:
    page.locator("#user").fill(user)
    page.locator("#password").fill(password)
    page.get_by_role("button", name="Log in").click()


@pytest.mark.feature("SE12")
def test_a_reader_logs_in_is_led_back_and_logs_out(guarded_page: Page, world: Guarded) -> None:
    page = guarded_page
    page.goto("/topics?search=orders")
    expect(page).to_have_url(f"{world.base}/login?back=%2Ftopics%3Fsearch%3Dorders")
    fill(page, SUPER_USER, "wrong")
    expect(page.get_by_role("alert")).to_have_text(
        "The password does not fit, or there is no such user."
    )
    fill(page, SUPER_USER, SUPER_USER)
    expect(page).to_have_url(f"{world.base}/topics?search=orders")
    expect(page.locator(".user")).to_have_text(f"User:{SUPER_USER}")
    (cookie,) = (one for one in page.context.cookies() if one["name"] == COOKIE)
    assert cookie["httpOnly"]
    assert cookie["secure"]
    assert cookie["sameSite"] == "Strict"
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{world.base}/login")
    page.goto("/topics")
    expect(page.locator("#password")).to_be_visible()


@pytest.mark.feature("SE12", "SE19")
def test_a_form_of_the_page_is_taken_and_rights_are_those_of_the_reader(
    guarded_page: Page, world: Guarded
) -> None:
    page = guarded_page
    page.goto("/create-topic")
    fill(page, SUPER_USER, SUPER_USER)
    name = f"made-{uuid.uuid4().hex}"
    page.locator("#name").fill(name)
    page.get_by_role("button", name="Create").first.click()
    wait_for(lambda: name in page.url or page.get_by_text(name).count(), "the topic is shown")
    with world.client(SUPER_USER) as http:
        cluster = http.get("/v3/clusters").json()["data"][0]["cluster_id"]
        assert http.get(f"/v3/clusters/{cluster}/topics/{name}").is_success
    with world.client() as http:
        log_in(http, VIEWER, VIEWER)
        assert http.get(f"/topics/{name}").is_success
        messages = http.get(f"/topics/{name}/messages")
    assert messages.status_code == httpx.codes.FORBIDDEN
    assert f"User:{VIEWER} may not READ {name}" in messages.text


@pytest.mark.feature("SE12")
def test_who_may_nothing_sees_nothing(world: Guarded) -> None:
    with world.client() as http:
        log_in(http, NOBODY, NOBODY)
        for part in ("problems", "load", "traffic", "lag", "changes"):
            answer = http.get(f"/parts/{part}", headers={"x-part": "1"})
            assert answer.status_code == httpx.codes.FORBIDDEN, part
        assert http.get("/topics").is_success
        assert http.get("/stacks").status_code == httpx.codes.UNAUTHORIZED


@pytest.mark.feature("SE12")
def test_a_session_ends_with_the_password(world: Guarded) -> None:
    root = Api(world.base, world.client(SUPER_USER))
    root.begin()
    name = f"user-{uuid.uuid4().hex}"
    root.ok("setUserPassword", user_name=name, body={"password": "first-password"})
    with world.client() as http:
        log_in(http, name, "first-password")
        assert http.get("/topics").is_success
        root.ok("setUserPassword", user_name=name, body={"password": "second-password"})
        assert http.get("/topics").status_code == httpx.codes.SEE_OTHER
    root.http.close()


@pytest.mark.feature("SE12")
@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_attack_csrf_a_form_of_another_site_is_refused(session: httpx.Client, site: str) -> None:
    name = f"forged-{uuid.uuid4().hex}"
    answer = session.post("/create-topic", data={"name": name}, headers={"sec-fetch-site": site})
    assert answer.status_code == httpx.codes.FORBIDDEN


@pytest.mark.feature("SE12")
@pytest.mark.parametrize("token", [None, "", "0" * 64, "é"])
def test_attack_csrf_a_form_without_the_sessions_token_is_refused(
    session: httpx.Client, token: str | None
) -> None:
    form = {"name": f"forged-{uuid.uuid4().hex}", "form-token": token}
    given = {key: value for key, value in form.items() if value is not None}
    answer = session.post("/create-topic", data=given, headers=SAME_ORIGIN)
    assert answer.status_code == httpx.codes.FORBIDDEN
    assert "belongs to another session" in answer.text


@pytest.mark.feature("SE12")
def test_attack_csrf_a_session_is_no_credential_for_rest(session: httpx.Client) -> None:
    assert session.get("/v3/clusters").status_code == httpx.codes.UNAUTHORIZED


@pytest.mark.feature("SE12")
@pytest.mark.parametrize(
    "back", ["//evil.example", "https://evil.example", "/\\evil.example", "", "/a\r\nx: y"]
)
def test_attack_open_redirect_after_the_login_leads_nowhere_else(world: Guarded, back: str) -> None:
    with world.client() as http:
        answer = log_in(http, SUPER_USER, SUPER_USER, back)
    assert answer.status_code == httpx.codes.SEE_OTHER
    assert answer.headers["location"] == "/"


@pytest.mark.feature("SE12")
def test_attack_session_fixation_and_forged_cookies_are_no_session(world: Guarded) -> None:
    with world.client() as http:
        log_in(http, VIEWER, VIEWER)
        own = http.cookies[COOKIE]
    body, _, signature = own.partition(".")
    expires, _, user = body.partition("-")
    forged = [
        "fixed",
        f"{body}.",
        f"{body}.{'0' * len(signature)}",
        f"{int(expires, 16) + 1:x}-{user}.{signature}",
        f"{expires}-cm9vdA==.{signature}",  # root
        "x" * 5_000,
    ]
    with world.client() as http:
        for cookie in forged:
            answer = http.get("/topics", headers={"cookie": f"{COOKIE}={cookie}"})
            assert answer.status_code == httpx.codes.SEE_OTHER, cookie[:80]
        assert http.get("/topics", headers={"cookie": f"{COOKIE}={own}"}).is_success
