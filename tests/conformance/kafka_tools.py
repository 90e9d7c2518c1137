"""Kafka's own command line tools, many of them in one JVM: a JVM for each would take seconds."""

import base64
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from conformance.java_programs import JavaPrograms

CLASSES: Final = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}
"""Main class of each tool's script."""


class Done(NamedTuple):
    """What a tool did."""

    status: int
    out: str
    error: str

    def lines(self) -> list[str]:
        """Lines of its output that are not empty."""
        return [line.strip() for line in self.out.splitlines() if line.strip()]

    def rows(self) -> list[dict[str, str]]:
        """Output as a table: the first line has the names of its columns."""
        head, *rows = self.lines()
        return [dict(zip(head.split(), row.split(), strict=False)) for row in rows]


class KafkaTools:
    """A JVM that runs tools one after the other."""

    def __init__(self, programs: JavaPrograms, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._process = subprocess.Popen(
            programs.argv("Tools"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __call__(self, tool: str, *arguments: str, stdin: str = "") -> Done:
        """Run a tool, as its script would, with the cluster's address."""
        return self.plain(tool, "--bootstrap-server", self._bootstrap, *arguments, stdin=stdin)

    def plain(self, tool: str, *arguments: str, stdin: str = "") -> Done:
        """Run a tool as its script would."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = (CLASSES[tool], stdin, *arguments)
        line = " ".join(base64.b64encode(word.encode()).decode() for word in words)
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        status, *texts = self._process.stdout.readline().rstrip("\n").split(" ")
        out, error = (base64.b64decode(text).decode() for text in texts)
        return Done(int(status), out, error)

    def end(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def kafka_tools(programs: JavaPrograms, bootstrap: str) -> Iterator[KafkaTools]:
    """The tools, against a cluster; their JVM ends with the block."""
    tools = KafkaTools(programs, bootstrap)
    try:
        yield tools
    finally:
        tools.end()
