"""The systems that are compared, started from what Maven and Go bring."""

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from bench.peers import nats_loads
from bench.peers.kafka_loads import KafkaLoads
from bench.peers.kafka_servers import KafkaServers
from bench.peers.loads import Loads
from bench.peers.nats_loads import NatsLoads
from bench.peers.nats_servers import NatsServers
from bench.peers.rows import COMPILED, KAFKA, NATS, TIDEMARK, Size, disk_bytes
from bench.peers.servers import Servers
from bench.peers.tidemark_servers import TidemarkServers
from bench.processes import ROOT
from compiled.build import BuildError, tree
from conformance.maven import NotBuiltError, class_path
from tidemark.cli.failure import CommandError
from tidemark.runtime.exit_codes import ExitCode

_KAFKA_JAR: Final = re.compile(r"kafka_2\.13-([\w.]+)\.jar")


@dataclass(frozen=True, slots=True)
class System:
    """A cluster, and what loads it."""

    servers: Servers
    loads: Loads
    version: str


def started(
    names: Sequence[str],
    directory: Path,
    size: Size,
    ending: ExitStack,
    report: Callable[[str], None],
) -> Mapping[str, System]:
    """Build all that is needed, then start the systems; ``ending`` stops them. Raises
    CommandError.
    """
    systems = {name: _MAKERS[name](directory / name, size) for name in names}
    for name, system in systems.items():
        report(f"starting {name} {system.version}")
        ending.callback(system.servers.stop)
        system.servers.start()
    return systems


def _tidemark(directory: Path, _: Size) -> System:
    servers = TidemarkServers(directory)
    return System(servers, KafkaLoads(servers.address, _class_path()), _commit())


def _compiled(directory: Path, _: Size) -> System:
    try:
        built = tree()
    except BuildError as problem:
        raise CommandError(
            f"the compiled build cannot be made: {problem}",
            hint="without it: --systems tidemark,kafka,nats",
            code=ExitCode.UNAVAILABLE,
        ) from None
    path = os.pathsep.join([str(built), *filter(None, [os.environ.get("PYTHONPATH")])])
    servers = TidemarkServers(directory, COMPILED, {**os.environ, "PYTHONPATH": path})
    return System(servers, KafkaLoads(servers.address, _class_path()), _commit())


def _kafka(directory: Path, _: Size) -> System:
    directory.mkdir()
    servers = KafkaServers(directory, _class_path())
    found = _KAFKA_JAR.search(_class_path())
    version = found[1] if found else "of an unknown version"
    return System(servers, KafkaLoads(servers.address, _class_path()), version)


def _nats(directory: Path, size: Size) -> System:
    directory.mkdir()
    programs = nats_loads.build(ROOT / "build/bench")
    servers = NatsServers(directory, programs.server, disk_bytes(size))
    return System(servers, NatsLoads(servers.address, programs.load), programs.version())


_MAKERS: Final[Mapping[str, Callable[[Path, Size], System]]] = {
    TIDEMARK: _tidemark,
    COMPILED: _compiled,
    KAFKA: _kafka,
    NATS: _nats,
}


@cache
def _class_path() -> str:
    try:
        return class_path()
    except NotBuiltError as problem:
        raise CommandError(
            f"Kafka's servers and performance tools come from Maven: {problem}",
            hint="a JDK 17, Maven and a registry are needed, as for make conformance",
            code=ExitCode.UNAVAILABLE,
        ) from None


def _commit() -> str:
    """Of the working tree."""
    argv = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "of an unknown commit"
