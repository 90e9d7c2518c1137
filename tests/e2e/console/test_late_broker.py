"""A broker that does not answer delays its own figures, and no page."""

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from e2e.clusters import Cluster
from playwright.sync_api import Page, expect


@pytest.fixture
def hung(console_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, with a broker that is stopped in the middle of everything."""
    pid = console_cluster.pid("broker-3")
    os.kill(pid, signal.SIGSTOP)
    yield console_cluster
    os.kill(pid, signal.SIGCONT)
    console_cluster.wait_healthy()


@pytest.mark.feature("AD41")
def test_pages_are_whole_but_for_the_late_figures(
    hung: Cluster, open_page: Callable[..., Page], topic: str
) -> None:
    page = open_page()
    for path in ("/", "/brokers", "/topics", f"/topics/{topic}", "/groups"):
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == 200, path
    page.goto("/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(page.locator("main")).to_contain_text("Broker 3")
