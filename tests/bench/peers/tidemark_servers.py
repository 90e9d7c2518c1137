"""Tidemark, as ``tidemark dev up`` starts it."""

import os
from collections.abc import Mapping
from pathlib import Path

from bench.peers.rows import TIDEMARK
from bench.peers.servers import NODES, SOON_MS, START_S, STOP_S
from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.dev.layout import Layout
from tidemark.cli.dev.process import ProcessFile


class TidemarkServers:
    """Three brokers with all services of ``tidemark dev up``: ZooKeeper, two controllers, both
    coordinators, each but ZooKeeper under its supervisor. The build is the one that Python finds in
    ``environment``.
    """

    def __init__(
        self,
        directory: Path,
        name: str = TIDEMARK,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.name = name
        layout = Layout.on_free_ports(
            directory, brokers=len(NODES), txn_coordinators=1, share_coordinators=1
        )
        soon = {
            "log.segment.delete.delay.ms": SOON_MS,
            "log.retention.check.interval.ms": SOON_MS,
        }
        self._cluster = DevCluster(layout, overrides={"broker": soon}, environment=environment)

    def start(self) -> None:
        """Start all services."""
        self._cluster.start(START_S)

    def stop(self) -> None:
        """Stop all services."""
        self._cluster.stop(STOP_S)

    @property
    def address(self) -> str:
        """Bootstrap servers."""
        return self._cluster.bootstrap

    def roots(self) -> list[int]:
        """Supervisors, and ZooKeeper."""
        run = self._cluster.layout.run_directory
        found = []
        for member in self._cluster.layout.members():
            supervisor = ProcessFile.read(run / f"{member.name}.supervisor.json")
            found.append(supervisor.pid if supervisor else self._cluster.pid(member.name))
        return found
