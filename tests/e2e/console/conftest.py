"""One cluster for all tests of the console, and a browser for each module.

Every page of a test is watched: a console error, an exception of a script, or a request that leaves
the origin fails the test at its end.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import confluent_kafka
import confluent_kafka.admin
import pytest
from e2e.clusters import Cluster, started_cluster
from e2e.console.watched import Watched
from playwright.sync_api import Browser, Page, sync_playwright
from tidemark.cli.dev.layout import HOST
from tidemark.runtime.access.authorization_config import STANDARD_AUTHORIZER
from waiting import PATIENCE_S

FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def chromium() -> Path:
    """Debian's browser. A machine without one skips these tests; where .ci/run installs it, they
    fail instead.
    """
    found = shutil.which("chromium")
    if found is None:
        reason = "the console's tests need a browser: apt-get install chromium"
        if os.environ.get("TESTS_NEED_BROWSER"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return Path(found)


@pytest.fixture(scope="session")
def console_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers, which enforce ACLs where a resource has some. They take a batch without a
    transaction's consent, which then hangs.
    """
    shared = started_cluster(
        tmp_path_factory.mktemp("console"),
        brokers=3,
        txn_coordinators=1,
        share_coordinators=1,
        overrides={
            "broker": {
                "transaction.partition.verification.enable": False,
                "authorizer.class.name": STANDARD_AUTHORIZER,
                "super.users": "User:root",
                "allow.everyone.if.no.acl.found": True,
            }
        },
    )
    yield shared
    shared.end()


@pytest.fixture(scope="session")
def address(console_cluster: Cluster) -> str:
    """Address of the console."""
    return f"http://{HOST}:{console_cluster.layout.member('controller-1').ports['rest']}"


@pytest.fixture(scope="module")
def browser(chromium: Path) -> Iterator[Browser]:
    """A browser. Playwright's loop is the thread's own while it runs: not beyond one module."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """Pages with their own cookies, watched until the test ends."""
    watched: list[Watched] = []

    def opened(*, width: int = 1440, dark: bool = False) -> Page:
        context = browser.new_context(
            base_url=address,
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
        )
        context.set_default_timeout(PATIENCE_S * 1_000)
        page = context.new_page()
        watched.append(Watched(page, urlsplit(address).netloc))
        return page

    yield opened
    for one in watched:
        one.page.context.close()
    assert [problem for one in watched for problem in one.problems] == []


@pytest.fixture
def page(open_page: Callable[..., Page]) -> Page:
    """A wide page."""
    return open_page()


@pytest.fixture
def topic(console_cluster: Cluster, topic_name: Callable[[str], str]) -> str:
    """A topic of three partitions with ten records in partition 0."""
    name = topic_name("orders")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": console_cluster.bootstrap})
    for done in admin.create_topics([confluent_kafka.admin.NewTopic(name, 3, 2)]).values():
        done.result(PATIENCE_S)
    producer = confluent_kafka.Producer({"bootstrap.servers": console_cluster.bootstrap})
    for number in range(10):
        producer.produce(name, f'{{"number": {number}}}', f"key-{number}", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    return name
