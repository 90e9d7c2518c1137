"""ZooKeeper for an embedded cluster: a real server, from the jars in pyspark."""

import importlib.util
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidemark.cli.dev.layout import HOST, Layout
from tidemark.cli.dev.secure import zookeeper_keys
from tidemark.cli.failure import CommandError
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.tls import TlsError, TlsSettings, client_context

JAVA_VERSION_MIN: Final = 17
JARS_VARIABLE: Final = "TIDEMARK_ZOOKEEPER_JARS"
_SERVER: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"

_LOGGING: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
"""


def zookeeper_argv(layout: Layout) -> list[str]:
    """Write ZooKeeper's configuration and return the command that starts it.

    Raises CommandError for a missing requirement.
    """
    java, jars = find_java(), find_jars()
    data = layout.data_path("zookeeper")
    data.mkdir(parents=True, exist_ok=True)
    logging_path = layout.run_directory / "zookeeper-log4j2.properties"
    logging_path.write_text(_LOGGING, encoding="utf-8")
    config_path = layout.run_directory / "zookeeper.cfg"
    config_path.write_text(_configuration(data, _port_keys(layout)), encoding="utf-8")
    return [
        java,
        "-Xmx128m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # a small server: starts in half the time
        "-Dzookeeper.admin.enableServer=false",
        f"-Dlog4j2.configurationFile={logging_path}",
        "-cp",
        f"{jars}/*",
        _SERVER,
        str(config_path),
    ]


def _port_keys(layout: Layout) -> Mapping[str, object]:
    if layout.shape.is_secure:
        return zookeeper_keys(layout)
    return {"clientPort": layout.shape.ports.zookeeper, "clientPortAddress": HOST}


def _configuration(data: Path, port_keys: Mapping[str, object]) -> str:
    lines = "\n".join(f"{name}={value}" for name, value in port_keys.items())
    return f"""\
tickTime=1000
minSessionTimeout=1000
maxSessionTimeout=120000
dataDir={data}
{lines}
maxClientCnxns=0
autopurge.purgeInterval=1
autopurge.snapRetainCount=3
4lw.commands.whitelist=ruok,srvr,mntr
"""


def zookeeper_problem(
    port: int, timeout_seconds: float = 1.0, tls: TlsSettings | None = None
) -> str | None:
    """Return why ZooKeeper does not serve, over TLS with ``tls``; None if it does."""
    try:
        answer = four_letters(port, "srvr", timeout_seconds, tls)
    except (OSError, TlsError) as error:
        return str(error)
    if b"Mode:" in answer:
        return None
    return answer.decode("utf-8", "replace").strip() or "no answer"


def four_letters(
    port: int, word: str, timeout_seconds: float, tls: TlsSettings | None = None
) -> bytes:
    """Return ZooKeeper's answer to a command of four letters, over TLS with ``tls``.

    Raises OSError, TlsError.
    """
    address = (HOST, port)
    with socket.create_connection(address, timeout_seconds) as sock, over(sock, tls) as own:
        own.sendall(word.encode())
        answer = b""
        while part := own.recv(65_536):
            answer += part
    return answer


def over(sock: socket.socket, tls: TlsSettings | None) -> socket.socket:
    """Return the socket itself, or TLS over it. Raises OSError, TlsError."""
    if tls is None:
        return sock
    return client_context(tls).wrap_socket(sock, server_hostname=HOST)


def find_java() -> str:
    """Return the path of a Java of at least version 17. Raises CommandError."""
    home = os.environ.get("JAVA_HOME")
    candidate = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if candidate is None or not Path(candidate).exists():
        raise _missing_java("no java was found" + (f" in JAVA_HOME={home}" if home else " on PATH"))
    printed = subprocess.run([candidate, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)', printed.stderr + printed.stdout)
    if match is None or int(match[1]) < JAVA_VERSION_MIN:
        found = match[1] if match else "of unknown version"
        raise _missing_java(f"{candidate} is Java {found}")
    return candidate


def _missing_java(what: str) -> CommandError:
    return CommandError(
        f"{what}; ZooKeeper needs Java {JAVA_VERSION_MIN} or newer",
        hint="install a JDK (Debian: apt install openjdk-17-jre-headless; macOS: brew install"
        " openjdk@17) or point JAVA_HOME at one",
        code=ExitCode.UNAVAILABLE,
    )


def find_jars() -> Path:
    """Return the directory of zookeeper-3.x.jar and its dependencies. Raises CommandError."""
    named = os.environ.get(JARS_VARIABLE)
    spec = importlib.util.find_spec("pyspark")
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    candidates = [Path(named)] if named else [Path(place) / "jars" for place in places]
    for directory in candidates:
        if any(directory.glob("zookeeper-3*.jar")):
            return directory
    raise CommandError(
        f"no ZooKeeper jars in {named}"
        if named
        else "pyspark, which contains ZooKeeper, is not installed",
        hint=f"pip install pyspark, or name a directory of ZooKeeper's jars in {JARS_VARIABLE}",
        code=ExitCode.UNAVAILABLE,
    )
