"""Probes of a broker as its node sends them: while it recovers its logs, and while it is fenced."""

import fcntl
import signal
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from k8s.cluster_waiting import wait_for
from k8s.load import PARTITIONS, Load
from k8s.release import Manifest, Release, is_ready, run
from k8s.test_nodes import MANY, broker, disk_of, load, number_of
from lab import node

__all__ = ["load"]

ORDINAL: Final = 2
FAILURES: Final = 8
"""Of a probe every five seconds: longer than the 30 s after which the liveness probe would restart
the broker.
"""
ASK: Final = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen("http://127.0.0.1:9392" + sys.argv[1]).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""
CUT: Final = """
add table inet off;
add chain inet off forward {{ type filter hook forward priority -10; }};
add rule inet off forward ip saddr {address} tcp dport 2281 drop;
"""


def answer(release: Release, path: str) -> str:
    """What the broker answers to a probe; '' while it answers nothing."""
    argv = ("kubectl", "-n", release.name, "exec", f"{release.name}-broker-{ORDINAL}")
    try:
        return run(*argv, "-c", "broker", "--", "python3", "-c", ASK, path)
    except AssertionError:  # neither container nor port are there yet
        return ""


def failures(release: Release, words: str) -> int:
    """How often a probe of the broker has failed with these words, by the pod's Events."""
    pod = broker(release, ORDINAL)
    selector = f"reason=Unhealthy,involvedObject.uid={pod['metadata']['uid']}"
    found = release.objects("events", "--field-selector", selector)
    return sum(int(it["count"]) for it in found if it["message"].startswith(words))


def container(release: Release) -> Manifest:
    """Status of the broker's container."""
    (found,) = broker(release, ORDINAL)["status"]["containerStatuses"]
    return dict(found)


@contextmanager
def held(paths: Iterable[Path]) -> Iterator[None]:
    """Hold files by leases: whoever opens one waits as long as this lasts, or for the 45 s that the
    kernel grants the holder of each.
    """
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # sent when somebody opens a file
    with ExitStack() as files:
        for path in paths:
            file = files.enter_context(path.open("r+b"))
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield
    signal.signal(signal.SIGIO, before)


@pytest.mark.feature("KU11")
def test_a_long_recovery_is_shown_by_the_startup_probe_and_ended_by_no_probe(
    release: Release, load: Load
) -> None:
    before = container(release)["restartCount"]
    disk = disk_of(release, ORDINAL)
    logs = [disk / f"log/{load.topic}-{number}" for number in range(PARTITIONS)]
    with load:
        wait_for(lambda: len(load.acknowledged) > MANY)
        with held(log / "leader-epoch-checkpoint" for log in logs):
            name = f"{release.name}-broker-{ORDINAL}"
            crash = "kill -9 $(cat /proc/1/task/1/children)"
            release.kubectl("exec", name, "-c", "broker", "--", "sh", "-c", crash)
            words = f"left in /data/disk0/log, {load.topic}-"
            wait_for(lambda: words in answer(release, "/startupz"))
            assert answer(release, "/startupz").startswith("503 recovering logs: ")
            left = 'kafka_log_logmanager_remaininglogstorecover{dir="/data/disk0/log"} '
            assert float(answer(release, "/metrics").partition(left)[2].split()[0]) >= 1
            assert answer(release, "/livez").startswith("ok")
            refused = "Startup probe failed: HTTP probe failed with statuscode: 503"
            wait_for(
                lambda: failures(release, refused) >= FAILURES, lambda: str(container(release))
            )
            status = container(release)
        assert (status["started"], status["ready"]) == (False, False)
        assert status["restartCount"] == before + 1, "only by its crash"
        release.wait_ready()
        assert container(release)["restartCount"] == before + 1
    load.check()


@contextmanager
def off_zookeeper(pod: Manifest) -> Iterator[None]:
    """A pod reaches no ZooKeeper server, and everything else."""
    number = number_of(pod)
    node.inside(number, "nft", CUT.format(address=pod["status"]["podIP"]))
    try:
        yield
    finally:
        node.inside(number, "nft", "delete table inet off")


@pytest.mark.feature("KU13")
def test_a_fenced_broker_is_not_ready_and_the_others_are(release: Release, load: Load) -> None:
    before = container(release)["restartCount"]
    with load:
        wait_for(lambda: len(load.acknowledged) > MANY)
        with off_zookeeper(broker(release, ORDINAL)):
            wait_for(lambda: not is_ready(broker(release, ORDINAL)))
            assert "fenced by the controller" in answer(release, "/readyz")
            seen = len(load.acknowledged)
            wait_for(lambda: len(load.acknowledged) > seen + MANY)
            ready = [is_ready(broker(release, ordinal)) for ordinal in range(ORDINAL + 1)]
            assert ready == [True, True, False]
        release.wait_ready()
    assert container(release)["restartCount"] == before
    load.check()
