"""Loads of JetStream by the Go program of this folder. A stream stands for a partition."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.peers.librdkafka_load import IN_FLIGHT_MAX
from bench.peers.loads import RunLoad, outcome_of, output_of
from bench.peers.rows import Load, Row, Size, records_a_second, records_of
from tidemark.cli.failure import CommandError
from tidemark.runtime.exit_codes import ExitCode

PROJECT: Final = Path(__file__).parent / "nats"
_SERVER_MODULE: Final = "github.com/nats-io/nats-server/v2"
_BUILD_S: Final = 900
_TAIL: Final = 2_000
_WINDOW: Final = 256
"""Records of a stream that wait for their acknowledgement: with 1 KB, four batches of 64 KB."""


class NatsPrograms(NamedTuple):
    """What ``build`` made."""

    server: Path
    load: Path

    def version(self) -> str:
        """Of the server."""
        return output_of([str(self.server), "--version"]).split()[-1]


def build(directory: Path) -> NatsPrograms:
    """Compile server and load; without a network if an earlier build left the modules. Raises
    CommandError where there is no Go, or no module proxy.
    """
    if shutil.which("go") is None:
        raise CommandError(
            "go is not installed, and nats-server is built from its Go module",
            hint="install it, or leave NATS out: --systems tidemark,kafka",
            code=ExitCode.UNAVAILABLE,
        )
    directory.mkdir(parents=True, exist_ok=True)
    built = subprocess.run(
        ["go", "build", "-trimpath", "-o", f"{directory}/", ".", _SERVER_MODULE],
        cwd=PROJECT,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=_BUILD_S,
        check=False,
    )
    if built.returncode != 0:
        raise CommandError(
            f"nats-server is not built:\n{built.stderr[-_TAIL:]}",
            hint="give Go a module proxy (GOPROXY), or leave NATS out: --systems tidemark,kafka",
            code=ExitCode.UNAVAILABLE,
        )
    return NatsPrograms(server=directory / "nats-server", load=directory / "peers")


class NatsLoads:
    """Loads of a JetStream cluster."""

    def __init__(self, address: str, program: Path) -> None:
        self._address, self._program = address, program

    @contextmanager
    def prepared(self, row: Row, size: Size) -> Iterator[RunLoad]:
        """Streams, and for consumers their records."""
        publish = self._argv("publish", row, records_of(row, size))
        output_of(self._argv("create", row, 0))
        try:
            if row.load is Load.CONSUME:
                outcome_of(publish)
                consume = self._argv("consume", row, records_of(row, size))
                yield lambda: outcome_of(consume)
            else:
                yield lambda: outcome_of(publish)
        finally:
            output_of(self._argv("delete", row, 0))

    def _argv(self, command: str, row: Row, records: int) -> list[str]:
        is_small = row.load is Load.SMALL
        options = {
            "address": self._address,
            "streams": row.partitions,
            "replicas": row.replicas,
            "records": records,
            "size": row.record_bytes,
            "rate": max(0, records_a_second(row)),
            "window": IN_FLIGHT_MAX if is_small and not row.requests_s else _WINDOW,
        }
        return [str(self._program), *(f"-{key}={value}" for key, value in options.items()), command]
