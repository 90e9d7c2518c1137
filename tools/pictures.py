"""Pictures of the console for the documentation, from a real cluster: ``make pictures``.

Starts a cluster on free ports of loopback, with topics, a group that lags, share groups, dead
letters and an open transaction, and writes a PNG of each page to docs/operating/pictures. Needs
chromium.
"""

import contextlib
import json
import secrets
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlencode

from playwright.sync_api import Browser, sync_playwright
from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.dev.layout import HOST, Layout
from tidemark.cli.failure import CommandError
from tidemark.client import AlterConfig, ConfigResource, NewTopic, sync
from tidemark.model.acls import (
    ALL_OPERATIONS,
    AclBinding,
    AclEntry,
    PatternType,
    Permission,
    ResourcePattern,
)
from tidemark.model.authorization import Operation, ResourceType
from tidemark.model.quotas import QuotaEntity
from tidemark.runtime.exit_codes import ExitCode

ROOT: Final = Path(__file__).parents[1]
PICTURES: Final = ROOT / "docs/operating/pictures"
BYTES_MAX: Final = 150_000
_WAIT_MS: Final = 60_000
_STAYS_MS: Final = 900_000
"""Time for which the transaction stays open: longer than all pictures take."""
_RECORDS: Final = 600
_POINTS: Final = 12
_TOPICS: Final = {"orders": 6, "payments": 3, "clicks": 12, "searches": 8}
_UNEVEN: Final = "returns"
"""Topic for whose replicas there is a better plan."""
_GROUP: Final = "billing"
_WORKERS: Final = "invoice-printers"
_MAILERS: Final = "mailers"
_QUEUE: Final = "dlq.mailers"
_TRANSACTION: Final = "payments-1"
_ENFORCED: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "allow.everyone.if.no.acl.found": True,
}
_QUESTION: Final = urlencode(
    {
        "principal": "User:shop",
        "operation": "READ",
        "resource_type": "TOPIC",
        "resource_name": "payments",
    }
)
_FLAGS: Final = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run")
_LOADED: Final = (
    "() => [...document.querySelectorAll('[data-part]')].every("
    "part => !part.hasAttribute('aria-busy') && !part.querySelector(':scope > .late'))"
)


class Picture(NamedTuple):
    """One picture: name, path of the page, size of the window, theme."""

    name: str
    path: str
    width: int = 1_200
    height: int = 800
    is_dark: bool = False
    press: str = ""
    """Button to press first."""


ALL: Final = (
    Picture("overview", "/"),
    Picture("overview-phone-dark", "/", 390, 800, is_dark=True),
    Picture("topics", "/topics"),
    Picture("topic", "/topics/orders"),
    Picture("messages", "/topics/orders/messages?from=earliest&limit=20"),
    Picture("group", f"/groups/{_GROUP}"),
    Picture("share-group", f"/share-groups/{_WORKERS}"),
    Picture("dead-letters", f"/dead-letters/{_MAILERS}"),
    Picture("transactions", "/transactions"),
    Picture("brokers", "/brokers"),
    Picture("reassignments", "/reassignments", height=1_100, press="Show the plan"),
    Picture("access", "/access"),
    Picture("may-x-do-y", f"/access/check?{_QUESTION}"),
)


def main() -> int:
    """Start the cluster, and write all pictures."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise CommandError(
            "chromium is not installed", hint="apt-get install chromium", code=ExitCode.UNAVAILABLE
        )
    PICTURES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="tidemark-pictures-") as directory,
        cluster(Path(directory)) as address,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=list(_FLAGS))
        for picture in ALL:
            path = take(browser, address, picture)
            print(f"{path.relative_to(ROOT)}  {path.stat().st_size:,} bytes")
        browser.close()
    return 0


def take(browser: Browser, address: str, picture: Picture) -> Path:
    """Write one picture, after all parts of its page are there. Raises CommandError if it is larger
    than is to be kept in the repository.
    """
    context = browser.new_context(
        base_url=address,
        viewport={"width": picture.width, "height": picture.height},
        color_scheme="dark" if picture.is_dark else "light",
    )
    context.set_default_timeout(_WAIT_MS)
    page = context.new_page()
    page.goto(picture.path)
    if picture.press:
        page.get_by_role("button", name=picture.press).click()
    page.wait_for_function(_LOADED)
    path = PICTURES / f"{picture.name}.png"
    page.screenshot(path=path)
    context.close()
    if path.stat().st_size > BYTES_MAX:
        raise CommandError(
            f"{path} has {path.stat().st_size:,} bytes, and may have {BYTES_MAX:,}",
            hint="choose a smaller window in tools/pictures.py",
        )
    return path


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """A cluster with data; yields the console's address."""
    layout = Layout.on_free_ports(
        directory, brokers=3, controllers=2, txn_coordinators=1, share_coordinators=1
    )
    running = DevCluster(layout, overrides={"broker": _ENFORCED})
    try:
        running.start()
        with contextlib.ExitStack() as held:
            fill(layout.bootstrap, held)
            grant(layout.bootstrap)
            address = f"http://{HOST}:{layout.member('controller-1').ports['rest']}"
            measure(layout.bootstrap, address)
            yield address
    finally:
        running.stop()


def fill(servers: str, held: contextlib.ExitStack) -> None:
    """Write records; begin to read as a group, as a share group and in a transaction."""
    with sync.Admin(servers) as admin:
        admin.create_topics([NewTopic(name, count, 3) for name, count in _TOPICS.items()])
        admin.create_topics([NewTopic(_UNEVEN, assignments=[(1, 2)] * 8)])
        admin.create_topics(
            [NewTopic(_QUEUE, 1, 3, {"errors.deadletterqueue.group.enable": "true"})]
        )
        earliest = AlterConfig("share.auto.offset.reset", "earliest")
        queue = AlterConfig("errors.deadletterqueue.topic.name", _QUEUE)
        admin.alter_configs({ConfigResource("group", _WORKERS): [earliest]})
        admin.alter_configs({ConfigResource("group", _MAILERS): [earliest, queue]})
    with sync.Producer(servers) as producer:
        for topic in _TOPICS:
            producer.send_many(topic, [_record(topic, number) for number in range(_RECORDS)])
    reader = held.enter_context(
        sync.Consumer(servers, group_id=_GROUP, auto_offset_reset="earliest", max_poll_records=100)
    )
    reader.subscribe(["orders", "payments"])
    while not reader.poll(timeout_ms=500):
        pass
    reader.commit()
    worker = held.enter_context(
        sync.ShareConsumer(servers, group_id=_WORKERS, share_acknowledgement_mode="explicit")
    )
    worker.subscribe(["orders"])
    while not worker.poll(timeout_ms=500):
        pass
    give_up(servers)
    writer = held.enter_context(
        sync.TransactionalProducer(
            servers, transactional_id=_TRANSACTION, transaction_timeout_ms=_STAYS_MS
        )
    )
    writer.init()
    writer.begin()
    writer.send("payments", b'{"amount": 4200, "currency": "EUR"}', partition=0)


def grant(servers: str) -> None:
    """Add users, ACLs and a quota. The other clients here are anonymous, and may do everything."""
    allowed = [
        (ResourcePattern(ResourceType.TOPIC, "*"), "User:ANONYMOUS", ALL_OPERATIONS),
        (ResourcePattern(ResourceType.GROUP, "*"), "User:ANONYMOUS", ALL_OPERATIONS),
        (ResourcePattern(ResourceType.TOPIC, "orders"), "User:shop", Operation.WRITE),
        (
            ResourcePattern(ResourceType.TOPIC, "pay", PatternType.PREFIXED),
            "User:billing",
            Operation.READ,
        ),
        (ResourcePattern(ResourceType.GROUP, "billing"), "User:billing", Operation.READ),
        (
            ResourcePattern(ResourceType.TRANSACTIONAL_ID, "payments-1"),
            "User:billing",
            Operation.WRITE,
        ),
    ]
    acls = [
        AclBinding(pattern, AclEntry(principal, "*", operation, Permission.ALLOW))
        for pattern, principal, operation in allowed
    ]
    denied = AclEntry("User:shop", "*", Operation.READ, Permission.DENY)
    acls.append(AclBinding(ResourcePattern(ResourceType.TOPIC, "payments"), denied))
    with sync.Admin(servers) as admin:
        admin.set_passwords(dict.fromkeys(("billing", "shop"), secrets.token_hex()))
        admin.alter_quotas({QuotaEntity(user="shop"): {"producer_byte_rate": 10 * 2**20}})
        admin.create_acls(acls)


def give_up(servers: str) -> None:
    """Reject some records, which are copied to a dead-letter queue."""
    with sync.ShareConsumer(
        servers, group_id=_MAILERS, share_acknowledgement_mode="explicit", max_poll_records=20
    ) as mailer:
        mailer.subscribe(["payments"])
        records = mailer.poll(timeout_ms=500)
        while not records:
            records = mailer.poll(timeout_ms=500)
        for number, record in enumerate(records):
            mailer.acknowledge(record, "accept" if number % 3 else "reject")
        mailer.commit_sync()


def measure(servers: str, address: str) -> None:
    """Write and read until the chart of the throughput has _POINTS points."""
    with urllib.request.urlopen(f"{address}/v3/clusters") as answer:
        cluster_id = json.load(answer)["data"][0]["cluster_id"]
    with (
        sync.Producer(servers) as producer,
        sync.Consumer(servers, group_id="reports", auto_offset_reset="latest") as reader,
    ):
        reader.subscribe(["clicks"])
        points = 0
        while points < _POINTS:
            count = _RECORDS * (1 + points % 3)
            producer.send_many("clicks", [_record("clicks", each) for each in range(count)])
            reader.poll(timeout_ms=500)
            with urllib.request.urlopen(f"{address}/v3/clusters/{cluster_id}/traffic") as answer:
                points = len(json.load(answer)["past"])


def _record(topic: str, number: int) -> tuple[bytes, bytes]:
    value = {"id": number, "topic": topic, "customer": f"c-{number % 37}", "amount": number * 7}
    return b"c-%d" % (number % 37), json.dumps(value).encode()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CommandError as problem:
        print("\n".join(problem.lines()), file=sys.stderr)
        sys.exit(problem.exit_code)
