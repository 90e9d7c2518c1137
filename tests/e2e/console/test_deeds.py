"""What people come to the console for, done in a browser on a real cluster."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest
from e2e.clusters import Cluster
from e2e.console.share import read_as_share_group
from e2e.kafka_wire import Wire, batch
from playwright.sync_api import Page, expect
from tidemark.codec.record_batch import TRANSACTIONAL_BIT
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock
from waiting import PATIENCE_S, wait_for

expect.set_options(timeout=PATIENCE_S * 1_000)


@pytest.mark.feature("AD30", "AD32")
def test_a_topic_is_created_written_read_and_deleted(
    console_cluster: Cluster, page: Page, topic_name: Callable[[str], str]
) -> None:
    name = topic_name("made")
    _create(page, name)
    page.get_by_role("link", name="Produce", exact=True).click()
    page.locator("#value").fill('{"paid": true}')
    page.get_by_role("button", name="Produce", exact=True).click()
    page.get_by_role("link", name="Show it").click()
    page.locator(".record summary").first.click()
    expect(page.locator(".record pre").first).to_have_text('{\n  "paid": true\n}')
    page.get_by_role("link", name="Manage", exact=True).click()
    page.locator("#confirm").fill(name)
    page.get_by_role("button", name="Delete topic").click()
    expect(page.get_by_role("status").first).to_have_text("The topic has been deleted.")


def _create(page: Page, name: str) -> None:
    page.goto("/")
    page.get_by_role("link", name="Create topic").click()
    page.locator("#name").fill(name)
    page.locator("#partitions").fill("3")
    page.get_by_role("button", name="Check only").click()
    expect(page.get_by_role("status")).to_contain_text("3 partitions of 1 replicas")
    page.get_by_role("button", name="Create topic", exact=True).click()
    expect(page.get_by_role("status")).to_have_text("The topic has been created.")


@pytest.mark.feature("AD31")
def test_a_setting_is_changed_and_restored(page: Page, topic: str) -> None:
    page.goto(f"/topics/{topic}/configs?q=retention.ms")
    page.get_by_role("link", name="Change").first.click()
    page.locator("#value").fill("86400000")
    page.get_by_role("button", name="Change", exact=True).click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("this topic")
    page.get_by_role("link", name="Change").first.click()
    page.get_by_role("button", name="Restore the default").click()
    expect(page.get_by_role("row").nth(1)).not_to_contain_text("this topic")


@pytest.mark.feature("AD32")
def test_records_are_sought_filtered_and_shown_in_hex(page: Page, topic: str) -> None:
    page.goto(f"/topics/{topic}/messages?from=offset&offset=7&partition=0")
    expect(page.locator(".record")).to_have_count(3)
    page.locator("#q").fill("KEY-9")
    page.locator("#as").select_option("hex")
    page.locator("main form button.primary").click()
    expect(page.locator(".record")).to_have_count(1)
    expect(page.locator(".record .cut").first).to_have_text("6b 65 79 2d 39")


@pytest.mark.feature("AD32")
def test_a_live_tail_shows_new_records(console_cluster: Cluster, page: Page, topic: str) -> None:
    page.goto(f"/topics/{topic}/messages?from=tail")
    expect(page.locator("#tail-state")).to_have_text("Waiting for records")
    producer = confluent_kafka.Producer({"bootstrap.servers": console_cluster.bootstrap})
    producer.produce(topic, "<b>fresh</b>")
    assert producer.flush(PATIENCE_S) == 0
    expect(page.locator(".record.new .cut").nth(1)).to_have_text("<b>fresh</b>")


@pytest.mark.feature("AD33")
def test_a_group_is_reset_after_its_difference_was_shown(
    console_cluster: Cluster, page: Page, topic: str
) -> None:
    group = f"billing-{topic}"
    _commit(console_cluster, group, topic, 7)
    page.goto(f"/groups/{group}")
    expect(page.locator("main")).to_contain_text("Lag, records")
    expect(page.get_by_role("row").filter(has_text=f"{topic}-0")).to_contain_text("3")
    page.get_by_role("link", name="Reset offsets").click()
    page.get_by_role("button", name="Show what would change").click()
    expect(page.locator("#difference")).to_contain_text("7 records again")
    assert _committed(console_cluster, group, topic) == 7
    page.get_by_role("button", name="Move the offsets").click()
    expect(page.get_by_role("status").first).to_have_text("The offsets have been moved.")
    assert _committed(console_cluster, group, topic) == 0


@pytest.mark.feature("AD43")
def test_a_group_and_a_share_group_are_deleted_after_their_names_were_typed(
    console_cluster: Cluster, page: Page, topic: str
) -> None:
    group, workers = f"leaving-{topic}", f"workers-{topic}"
    _commit(console_cluster, group, topic, 7)
    read_as_share_group(console_cluster, workers, topic)
    for room, name in (("groups", group), ("share-groups", workers)):
        page.goto(f"/{room}/{name}")
        page.get_by_role("link", name="Delete", exact=True).click()
        expect(page.get_by_role("button", name="Delete the")).to_be_disabled()
        page.locator("#confirm").fill(name)
        page.get_by_role("button", name="Delete the").click()
        expect(page.get_by_role("status").first).to_have_text("The group has been deleted.")
        answer = page.goto(f"/{room}/{name}/figures")
        assert answer is not None
        assert answer.status == 404, name


@pytest.mark.feature("AD44")
def test_the_overview_shows_throughput_lag_and_what_changed(
    console_cluster: Cluster, page: Page, topic: str
) -> None:
    group = f"behind-{topic}"
    _commit(console_cluster, group, topic, 1)
    page.goto("/")
    producer = confluent_kafka.Producer({"bootstrap.servers": console_cluster.bootstrap})
    taken = page.locator(".figure").filter(has_text="from producers").locator(".value")

    def is_measured() -> bool:
        for _ in range(200):
            producer.produce(topic, b"x" * 1_000, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        text = taken.text_content() if taken.count() else ""
        return re.search(r"[1-9].* [KM]iB/s", text or "") is not None

    wait_for(is_measured, "two answers of a broker give a rate")
    expect(page.get_by_role("img", name="Throughput of the last")).to_be_visible()
    lag = page.get_by_role("table", name="Groups with the largest lag")
    expect(lag.get_by_role("row").filter(has_text=group)).to_contain_text("records")
    changes = page.get_by_role("region", name="Changed lately")
    expect(changes).to_contain_text(f"topic {topic} was created with 3 partitions")
    lag.get_by_role("link", name=group).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(group)


@contextmanager
def _consumer(cluster: Cluster, group: str) -> Iterator[confluent_kafka.Consumer]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    try:
        yield consumer
    finally:
        consumer.close()


def _commit(cluster: Cluster, group: str, topic: str, offset: int) -> None:
    with _consumer(cluster, group) as consumer:
        at = confluent_kafka.TopicPartition(topic, 0, offset)
        consumer.commit(offsets=[at], asynchronous=False)


def _committed(cluster: Cluster, group: str, topic: str) -> int:
    with _consumer(cluster, group) as consumer:
        (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], PATIENCE_S)
    return int(found.offset)


@pytest.mark.feature("AD34")
def test_a_hanging_transaction_is_seen_and_aborted(
    console_cluster: Cluster, page: Page, topic: str
) -> None:
    _hang(console_cluster, topic)
    page.goto(f"/transactions?o.q={topic}")
    row = page.get_by_role("row").filter(has_text=f"{topic}-1")
    expect(row).to_contain_text("hanging")
    row.get_by_role("link", name="Abort", exact=True).click()
    page.locator("#confirm").fill(f"{topic}-1")
    page.get_by_role("button", name="Abort in this partition").click()
    expect(page.get_by_role("status").first).to_have_text("The transaction has been aborted.")
    page.goto(f"/topics/{topic}/messages?partition=1&show=all")
    expect(page.locator(".record.aborted")).to_have_count(1)


def _hang(cluster: Cluster, topic: str) -> None:
    """Write a batch of a transaction that no coordinator has; it began an hour ago."""
    late = batch(
        b"late",
        timestamp=Clock().wall_ms() - 3_600_000,
        producer_id=77,
        producer_epoch=5,
        base_sequence=0,
        attributes_extra=TRANSACTIONAL_BIT,
    )
    codes: dict[int, ErrorCode] = {}

    def is_taken() -> bool:
        for broker in (1, 2, 3):
            with Wire(int(cluster.kafka(broker).rpartition(":")[2])) as wire:
                answer = wire.produce(topic, late, partition=1, acks=-1, transactional_id="gone")
            codes[broker] = ErrorCode(answer.error_code)
            if codes[broker] is ErrorCode.NONE:
                return True
        return False

    # Only the broker that answered CreateTopics has seen the topic; its leader may see it later.
    wait_for(is_taken, lambda: f"a leader for the batch: {codes}")


@pytest.mark.feature("AD35")
def test_a_reassignment_is_planned_watched_and_ends(page: Page, topic: str) -> None:
    page.goto("/reassignments")
    page.locator("#leaving").select_option(label="take all replicas away from broker 3")
    page.locator("#topics").fill(topic)
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_role("table", name="Before and after")).to_contain_text(topic)
    page.get_by_role("button", name="Move the replicas").click()
    expect(page.locator("main")).to_contain_text("succeeded")
    expect(page.locator("main")).to_contain_text("100 %")
    page.goto(f"/topics/{topic}")
    expect(page.get_by_title("broker 3")).to_have_count(0)
    page.goto(f"/events?q={topic}")
    expect(page.get_by_role("table")).to_contain_text("has the replicas")
