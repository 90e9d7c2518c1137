"""The command line as a process, with a cluster."""

import json
import subprocess
import sys
from typing import Any

from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.dev.layout import HOST
from tidemark.runtime.exit_codes import ExitCode
from waiting import PATIENCE_S

COMMAND = [sys.executable, "-m", "tidemark.cli.main"]


class Cli:
    """The command line, with its cluster."""

    def __init__(self, cluster: DevCluster) -> None:
        self.cluster = cluster
        self.kafka = ("--bootstrap", cluster.bootstrap)
        grpc_port = cluster.layout.shape.ports.grpc
        self.grpc = ("--bootstrap", f"{HOST}:{grpc_port}", "--transport", "grpc")

    def run(self, *words: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        argv = [*COMMAND, *words]
        return subprocess.run(
            argv, input=stdin, capture_output=True, timeout=PATIENCE_S, check=False
        )

    def json(self, *words: str, stdin: bytes = b"", code: ExitCode = ExitCode.OK) -> Any:
        done = self.run(*words, "-o", "json", stdin=stdin)
        assert done.returncode == code, done.stderr.decode()
        return json.loads(done.stdout)

    def read(self, topic: str, *words: str) -> list[dict[str, Any]]:
        where = words or self.kafka
        asked = ("topic", "consume", topic, "--from", "earliest", "-e", "-o", "json", *where)
        done = self.run(*asked)
        assert done.returncode == ExitCode.OK, done.stderr.decode()
        return [json.loads(line) for line in done.stdout.splitlines()]
