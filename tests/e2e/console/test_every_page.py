"""Every page: reached by links, every button pressed, accessible, narrow and wide."""

import re
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable
from typing import Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from e2e.clusters import Cluster
from e2e.console.share import read_as_share_group
from e2e.console.watched import overflows, settled
from playwright.sync_api import Locator, Page

PAGES_MAX: Final = 120
_NAME: Final = re.compile(
    r"^/(topics|brokers|groups|share-groups|dead-letters|transactions|operations|abort|access/users)/[^/]+(/[^/]+/\d+)?"
)


def kind_of(url: str) -> str:
    """The page's kind: pages of two topics are of one kind."""
    return _NAME.sub(r"/\1/*", url.partition("?")[0])


def links(page: Page) -> list[str]:
    found = page.eval_on_selector_all("a[href^='/']", "all => all.map(a => a.getAttribute('href'))")
    return [str(link) for link in found if "/static/" not in link and "download" not in link]


def pages_from(page: Page, *starts: str) -> list[str]:
    """One address of each kind of page that links lead to."""
    kinds: dict[str, str] = {}
    todo = deque(starts)
    while todo:
        url = todo.popleft()
        if kind_of(url) in kinds or "/export" in url:
            continue
        kinds[kind_of(url)] = url
        assert len(kinds) < PAGES_MAX, "kinds of pages are few"
        answer = page.goto(url)
        assert answer is not None, url
        assert answer.status == 200, url
        settled(page)
        todo += links(page)
    return list(kinds.values())


@pytest.mark.feature("AD36", "AD37")
def test_every_page_is_accessible_and_fits(
    console_cluster: Cluster, open_page: Callable[..., Page], topic: str
) -> None:
    read_as_share_group(
        console_cluster, f"g-{topic}", topic, errors_deadletterqueue_topic_name=f"dlq.{topic}"
    )
    wide = open_page()
    urls = pages_from(wide, "/", f"/topics/{topic}", "/topics?internal=yes")
    assert len(urls) >= 20, urls
    assert "/dead-letters/*" in map(kind_of, urls)
    problems = []
    for shown in (wide, open_page(width=390, dark=True)):
        for url in urls:
            shown.goto(url)
            settled(shown)
            problems += [f"{url} is too wide"] if overflows(shown) else []
            problems += [f"{url}: {one}" for one in violations(shown)]
    assert problems == []


def violations(page: Page) -> list[str]:
    """Rules of WCAG 2 at level A and AA that a page breaks, contrast and labels among them."""
    options = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
    found = Axe().run(page, options=options).response["violations"]
    return [f"{one['id']} {[node['html'][:90] for node in one['nodes'][:2]]}" for one in found]


@pytest.mark.feature("AD38")
def test_every_button_of_every_page_can_be_pressed(
    console_cluster: Cluster, page: Page, topic: str
) -> None:
    """No press ends in a failure of the server or of a script; a refusal is an answer."""
    read_as_share_group(
        console_cluster, f"g-{topic}", topic, errors_deadletterqueue_topic_name=f"dlq.{topic}"
    )
    failures: list[str] = []
    page.on("response", lambda answer: _note(failures, answer.status, answer.url))
    pressed = 0
    for url in pages_from(page, "/", f"/topics/{topic}"):
        page.goto(url)
        settled(page)
        # Those of the frame are the same on every page.
        buttons = page.locator("button" if url == "/" else "main button")
        can = [at for at, one in enumerate(buttons.all()) if one.is_visible() and one.is_enabled()]
        for at in can:
            page.goto(url)
            settled(page)
            pressed += press(buttons.nth(at))
    assert failures == []
    assert pressed > 15


def _note(failures: list[str], status: int, url: str) -> None:
    if status >= 500 and status != 503:
        failures.append(f"{status} {url}")


def press(button: Locator) -> bool:
    """Press a button if it can be pressed. What deletes or moves asks for a name first."""
    if not button.is_visible() or not button.is_enabled():
        return False
    button.click(no_wait_after=False)
    button.page.wait_for_load_state()
    return True


@pytest.mark.feature("AD39")
def test_pages_allow_no_inline_script_and_nothing_from_elsewhere(address: str) -> None:
    for path in ("/", "/topics", "/nowhere", "/static/x/nothing.js"):
        policy = headers(address + path)["content-security-policy"]
        assert "unsafe" not in policy, path
        assert "default-src 'none'" in policy, path
        assert "script-src 'self'" in policy, path


def headers(url: str) -> dict[str, str]:
    try:
        with urllib.request.urlopen(url) as answer:
            found = answer.headers
    except urllib.error.HTTPError as refusal:
        found = refusal.headers
        refusal.close()
    return {name.lower(): value for name, value in found.items()}


@pytest.mark.feature("AD39")
@pytest.mark.parametrize("origin", [None, "http://evil.example"])
def test_a_form_of_another_site_changes_nothing(
    address: str, topic: str, origin: str | None
) -> None:
    request = urllib.request.Request(
        f"{address}/topics/{topic}/delete",
        data=f"confirm={topic}".encode(),
        headers={"origin": origin} if origin else {},
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.status == 403
    refused.value.close()
    with urllib.request.urlopen(f"{address}/topics/{topic}") as answer:
        assert answer.status == 200


def test_static_files_are_kept_by_browsers(page: Page, address: str) -> None:
    page.goto("/")
    sheet = page.get_attribute("link[rel=stylesheet]", "href")
    found = headers(f"{address}{sheet}")
    assert "immutable" in found["cache-control"]
    request = urllib.request.Request(f"{address}{sheet}", headers={"if-none-match": found["etag"]})
    with pytest.raises(urllib.error.HTTPError) as unchanged:
        urllib.request.urlopen(request)
    assert unchanged.value.status == 304
    unchanged.value.close()


@pytest.mark.feature("AD37")
def test_the_theme_is_kept_and_the_keyboard_leads_everywhere(page: Page) -> None:
    page.goto("/brokers")
    page.get_by_role("button", name="Theme").click()
    assert page.get_attribute("html", "data-theme") == "dark"
    assert page.url.endswith("/brokers")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/topics")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
