"""HDFS: a NameNode and two DataNodes, each a process on loopback, of the release whose client
PySpark carries. Maven brings the servers once.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

import pyspark
from conformance.java_programs import RunningProgram, started
from conformance.maven import libraries
from free_ports import free_port
from waiting import wait_for

PROJECT: Final = Path(__file__).parent
DATANODES: Final = 2
"""As many replicas has each file."""
_JARS: Final = Path(pyspark.__file__).parent / "jars"
_SMALL: Final = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_NAMENODE: Final = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATANODE: Final = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_LOGGING: Final = """\
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %p %c{1}: %m%n%ex
"""


def servers_jar() -> Path:
    """Return the jar with NameNode and DataNode. Raises NotBuiltError."""
    client = next(_JARS.glob("hadoop-client-api-*.jar"))
    version = client.stem.removeprefix("hadoop-client-api-")
    (jar,) = libraries(PROJECT, hadoop_version=version)
    return jar


class Hdfs:
    """The servers; they end with ``ending``, and their directories stay over a restart."""

    def __init__(self, jar: Path, directory: Path, ending: ExitStack) -> None:
        self._jar, self._directory, self._ending = jar, directory, ending
        self._port = free_port()
        self._running: dict[str, RunningProgram] = {}
        self._starts = 0
        for name in self.names():
            self._configure(name)
        subprocess.run(
            self._argv("namenode", "-format", "-nonInteractive"), check=True, capture_output=True
        )
        for name in self.names():
            self.start(name)

    @staticmethod
    def names() -> list[str]:
        """Return the servers' names: ``namenode``, ``datanode-1`` and ``datanode-2``."""
        return ["namenode", *(f"datanode-{number + 1}" for number in range(DATANODES))]

    @property
    def address(self) -> str:
        """Address of the file system, for paths."""
        return f"hdfs://127.0.0.1:{self._port}"

    def start(self, name: str) -> None:
        """Start a server, and wait until it serves."""
        self._starts += 1
        log = self._directory / f"{name}-{self._starts}.log"
        program = self._ending.enter_context(started(self._argv(name), log))
        self._running[name] = program
        ready = "NameNode RPC up at" if name == "namenode" else "successfully registered with NN"
        wait_for(lambda: re.search(ready, program.story(None)), program.story)

    def kill(self, name: str) -> None:
        """Kill -9."""
        self._running[name].kill()

    def _argv(self, name: str, *options: str) -> list[str]:
        class_path = f"{self._directory / name}:{self._jar}:{_JARS}/*"
        program = _NAMENODE if name == "namenode" else _DATANODE
        return ["java", *_SMALL, "-cp", class_path, program, *options]

    def _configure(self, name: str) -> None:
        place = self._directory / name
        place.mkdir()
        (place / "log4j2.properties").write_text(_LOGGING)
        _write_settings(place / "core-site.xml", {"fs.defaultFS": self.address})
        data = "dfs.namenode.name.dir" if name == "namenode" else "dfs.datanode.data.dir"
        anywhere = dict.fromkeys(
            (
                "dfs.namenode.http-address",
                "dfs.datanode.address",
                "dfs.datanode.http.address",
                "dfs.datanode.ipc.address",
            ),
            "127.0.0.1:0",
        )
        settings = {
            data: f"file://{place}/data",
            "dfs.replication": str(DATANODES),
            "dfs.permissions.enabled": "false",
            "dfs.namenode.safemode.extension": "0",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            **anywhere,
        }
        _write_settings(place / "hdfs-site.xml", settings)


def _write_settings(path: Path, settings: Mapping[str, str]) -> None:
    lines = [
        f"<property><name>{name}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    ]
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))


@contextmanager
def running_hdfs(jar: Path, directory: Path) -> Iterator[Hdfs]:
    """Give a new file system, whose servers end with the block."""
    with ExitStack() as ending:
        yield Hdfs(jar, directory, ending)
