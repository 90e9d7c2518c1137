"""Apache Kafka from the jars that Maven brings."""

import subprocess
from pathlib import Path
from typing import Final

from bench.peers.jvm import server_argv
from bench.peers.kafka_topics import brokers_known
from bench.peers.rows import KAFKA
from bench.peers.servers import LOG_TAIL, NODES, SOON_MS, Children
from free_ports import free_port
from tidemark.cli.dev.layout import HOST
from tidemark.cli.failure import CommandError

_FORMAT_S: Final = 120.0
_CLUSTER_ID: Final = "dGlkbWFySyCKYmVuY2ggIA"
"""A UUID in Base64, as Kafka wants it."""


class KafkaServers:
    """Three nodes of Apache Kafka, each broker and controller (KRaft)."""

    name = KAFKA

    def __init__(self, directory: Path, class_path: str) -> None:
        self._directory, self._class_path = directory, class_path
        self._ports = {node: (free_port(), free_port()) for node in NODES}
        self._children = Children(directory)

    def start(self) -> None:
        """Format the directories, start the nodes, wait until one knows all of them."""
        for node in NODES:
            path = self._write_properties(node)
            self._format(path)
            argv = server_argv(self._class_path, "kafka.Kafka", str(path))
            self._children.start(f"kafka-{node}", argv)
        self._children.wait_until(self._is_whole, "Apache Kafka")

    def stop(self) -> None:
        """Stop the nodes."""
        self._children.stop()

    @property
    def address(self) -> str:
        """Bootstrap servers."""
        return ",".join(f"{HOST}:{client}" for client, _ in self._ports.values())

    def roots(self) -> list[int]:
        """JVMs."""
        return self._children.pids()

    def _write_properties(self, node: int) -> Path:
        """Kafka's defaults, except what three nodes on a small disk of one machine need."""
        client, quorum = self._ports[node]
        voters = ",".join(f"{one}@{HOST}:{port}" for one, (_, port) in self._ports.items())
        properties: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": node,
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{HOST}:{client},CONTROLLER://{HOST}:{quorum}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self._directory / f"node-{node}",
            "log.segment.delete.delay.ms": SOON_MS,
            "log.retention.check.interval.ms": SOON_MS,
            "log.initial.task.delay.ms": SOON_MS,
        }
        path = self._directory / f"node-{node}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path

    def _format(self, properties: Path) -> None:
        arguments = ("format", "-t", _CLUSTER_ID, "-c", str(properties))
        argv = server_argv(self._class_path, "kafka.tools.StorageTool", *arguments)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_FORMAT_S, check=False)
        if done.returncode != 0:
            raise CommandError(f"Kafka's storage is not formatted:\n{done.stderr[-LOG_TAIL:]}")

    def _is_whole(self) -> bool:
        return brokers_known(self.address) == len(NODES)
