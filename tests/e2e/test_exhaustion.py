"""A broker whose descriptors are used up by connections: it refuses what needs one, fences no disk,
and goes on when they are closed.
"""

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from e2e.broker_processes import BrokerProcess, running_cluster
from e2e.kafka_wire import Wire, batch
from tidemark.model.errors import ErrorCode
from waiting import PATIENCE_S, cpu_s, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SPARE = 20
CPU_S_MAX = 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Started again, so that no segment is open yet."""
    with running_cluster(tmp_path) as (started,):
        admin = AdminClient({"bootstrap.servers": started.bootstrap})
        wanted = [NewTopic(name, 1, 1, config={"segment.bytes": "1048576"}) for name in "ab"]
        for made in admin.create_topics(wanted).values():
            made.result(PATIENCE_S)
        with Wire(started.port) as wire:
            for _ in range(6):
                assert wire.produce("a", batch(bytes(500_000))).error_code == 0
        assert started.stop() == 0
        started.start()
        started.wait_ready()
        yield started


def descriptors(broker: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def limit(broker: BrokerProcess, count: int) -> None:
    _, hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (count, hard))


def fetched(wire: Wire) -> int:
    return int(wire.fetch(("a", 0, 0), bytes_min=0).topics[0].partitions[0].result.error_code)


def test_out_of_descriptors_requests_are_refused_and_no_disk_is_fenced(
    broker: BrokerProcess,
) -> None:
    with Wire(broker.port) as wire, ExitStack() as closing:
        wait_for(lambda: wire.produce("b", batch(b"warm")).error_code == 0, "it leads again")
        most = descriptors(broker) + SPARE
        limit(broker, most)
        crowd = [closing.enter_context(crowding(broker.port)) for _ in range(4 * SPARE)]

        def used_up() -> bool:
            """Connections that find no descriptor are closed: one that is freed later, perhaps by a
            call that was just under way, is taken by another connection.
            """
            if descriptors(broker) >= most - 1:
                return True
            crowd.append(closing.enter_context(crowding(broker.port)))
            return False

        wait_for(used_up, "the descriptors are used up")
        assert fetched(wire) == ErrorCode.KAFKA_STORAGE_ERROR
        assert wire.produce("b", batch(b"goes on")).error_code == 0
        before = cpu_s(broker.pid)
        for _ in range(200):
            assert wire.produce("b", batch(b"goes on")).error_code == 0
        assert cpu_s(broker.pid) - before < CPU_S_MAX
        for one in crowd:
            one.close()
        wait_for(lambda: fetched(wire) == ErrorCode.NONE, "a cold read is answered")
        with Wire(broker.port) as another:
            assert another.produce("a", batch(b"x")).error_code == 0
    told = {str(line["message"]).partition(":")[0] for line in broker.logged()}
    assert "log directory fenced" not in told
    assert broker.process is not None
    assert broker.process.poll() is None


def crowding(port: int) -> socket.socket:
    """One of many connections; what becomes of it is the broker's to say."""
    made = socket.socket()
    made.setblocking(False)
    with suppress(OSError):
        made.connect(("127.0.0.1", port))
    return made
