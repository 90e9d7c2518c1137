"""Names that would break a careless page show and link right, everywhere."""

from urllib.parse import quote

import confluent_kafka
import confluent_kafka.admin
import httpx
import pytest
from e2e.clusters import Cluster
from e2e.console.share import configure
from e2e.console.watched import overflows
from playwright.sync_api import Page, expect
from waiting import PATIENCE_S, wait_for

NAMES = [
    "<script>alert(1)</script>",
    "a/b/../../c",
    "..",
    "quotes \"double\" 'single' `back`",
    "percent%2F%00?query=1#fragment&amp;",
    "grüße-你好-🌊",
    "x" * 249,
    "right\u202eto left\u200b",
]


@pytest.mark.feature("AD40")
@pytest.mark.parametrize("name", NAMES)
def test_attack_xss_a_group_of_any_name_is_listed_linked_and_shown(
    console_cluster: Cluster, page: Page, topic: str, name: str
) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": console_cluster.bootstrap, "group.id": name}
    )
    at = confluent_kafka.TopicPartition(topic, 0, 4)
    consumer.commit(offsets=[at], asynchronous=False)
    consumer.close()
    row = page.get_by_role("rowheader", name=shown(name), exact=True)

    def is_listed() -> bool | None:
        page.goto("/groups?per=500")
        return row.count() == 1 or None

    wait_for(is_listed, f"{name!r} is in the list, which is some seconds old")
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(shown(name))
    expect(page.locator("main")).to_contain_text(f"{topic}-0")
    assert not overflows(page)
    page.get_by_role("link", name="Reset offsets").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Reset offsets")


@pytest.mark.feature("AD40", "AD45")
@pytest.mark.parametrize("name", NAMES)
def test_attack_xss_a_share_group_of_any_name_with_a_queue_is_listed_linked_and_shown(
    console_cluster: Cluster, page: Page, topic: str, name: str
) -> None:
    unique = topic[-13:]
    group = f"{unique}{name}"[:249]
    configure(console_cluster, group, errors_deadletterqueue_topic_name=f"dlq.{topic}")
    page.goto(f"/dead-letters?per=500&q={unique}")
    row = page.get_by_role("rowheader", name=shown(group), exact=True)
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(shown(group))
    expect(page.locator("main")).to_contain_text("No letter waits")
    assert not overflows(page)


@pytest.mark.feature("AD40")
@pytest.mark.parametrize(
    "path", ["/topics/{}", "/topics/{}/messages", "/topics?q={}", "/groups/{}"]
)
@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "'\"><img src=x onerror=alert(1)>", "javascript:alert(1)"]
)
def test_attack_xss_a_link_to_a_topic_that_cannot_be(
    console_cluster: Cluster, address: str, path: str, name: str
) -> None:
    """No topic can have such a name; a link can."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": console_cluster.bootstrap})
    made = admin.create_topics([confluent_kafka.admin.NewTopic(name, 1, 1)])[name]
    with pytest.raises(confluent_kafka.KafkaException, match="TOPIC_EXCEPTION"):
        made.result(PATIENCE_S)
    text = httpx.get(address + path.format(quote(name, safe=""))).text
    assert "<main" in text
    assert "<script>alert" not in text
    assert "<img" not in text
    assert 'href="javascript' not in text


def shown(name: str) -> str:
    return name.replace("\u202e", "\\u202e").replace("\u200b", "\\u200b")


@pytest.mark.feature("AD40")
def test_attack_xss_keys_values_and_headers_of_any_bytes_are_shown_as_text(
    console_cluster: Cluster, page: Page, topic: str
) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    producer = confluent_kafka.Producer({"bootstrap.servers": console_cluster.bootstrap})
    producer.produce(topic, hostile, hostile, partition=2, headers=[(hostile, hostile.encode())])
    producer.produce(topic, b"\x00\xff\xfe", None, partition=2)
    assert producer.flush(PATIENCE_S) == 0
    page.goto(f"/topics/{topic}/messages?partition=2")
    expect(page.locator(".record")).to_have_count(2)
    for record in page.locator(".record summary").all():
        record.click()
    expect(page.locator(".record dd.mono")).to_have_text(hostile)
    expect(page.locator(".record pre").first).to_be_visible()
    assert page.locator("img").count() == 0
