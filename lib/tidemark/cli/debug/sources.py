"""Sources of a bundle: processes by their HTTP ports, files of an embedded cluster, the machine."""

import http.client
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from tidemark.cli.debug.bundle import Source
from tidemark.cli.debug.http_page import ask
from tidemark.cli.debug.redact import text_without_secrets, without_secrets
from tidemark.cli.dev.layout import Layout, Shape
from tidemark.cli.dev.secure import SecureFiles
from tidemark.cli.dev.zookeeper import four_letters

PAGES: Final = (
    ("metrics.txt", "/metrics"),
    ("ready.txt", "/readyz"),
    ("live.txt", "/livez"),
    ("log-levels.json", "/loglevel"),
    ("stacks.txt", "/stacks"),
)
_TIMEOUT_S: Final = 5.0
_PAGE_BYTES_MAX: Final = 64 * 1024 * 1024
_PATH_CHARS: Final = re.compile(r"[^A-Za-z0-9._-]")


def of_process(name: str, address: str) -> Iterator[Source]:
    """Yield the pages of one process at its address, HOST:PORT or https://HOST:PORT."""
    folder = f"processes/{_PATH_CHARS.sub('_', name)}"
    for file, page in PAGES:
        yield Source(f"{folder}/{file}", partial(_page, address, page))


def of_embedded(directory: Path, log_bytes_max: int) -> Iterator[Source]:
    """Yield logs, configurations and processes of an embedded cluster. Raises CommandError."""
    shape = Shape.read(directory / "cluster.json")
    if shape is None:
        return
    layout = Layout(directory, shape)
    yield Source("embedded/cluster.json", partial(_document, layout.shape_path))
    for member in layout.members():
        if member.kind == "zookeeper":
            tls = SecureFiles.of(layout).process_tls() if shape.is_secure else None
            for word in ("srvr", "mntr"):
                answered = partial(four_letters, member.ports["client"], word, _TIMEOUT_S, tls)
                yield Source(f"processes/zookeeper/{word}.txt", answered)
            continue
        address = layout.http_address(member)
        if address is None:
            continue
        yield from of_process(member.name, address)
        path = layout.run_directory / f"{member.name}.yaml"
        yield Source(f"embedded/config/{member.name}.json", partial(_document, path))
    for path in sorted((layout.directory / "logs").glob("*.log*")):
        yield Source(f"logs/{path.name}", partial(_tail, path, log_bytes_max))


def of_machine(directory: Path | None) -> Iterator[Source]:
    """Yield memory, load and disks of this machine."""
    yield Source("machine/machine.json", partial(_machine, directory))
    for name in ("meminfo", "loadavg", "pressure/cpu", "pressure/io", "pressure/memory"):
        if Path(f"/proc/{name}").exists():
            file = f"machine/{name.replace('/', '-')}.txt"
            yield Source(file, Path(f"/proc/{name}").read_bytes)


def of_settings(rows: Sequence[dict[str, Any]]) -> Source:
    """Return the settings of the command line, with their sources."""
    return Source("machine/settings.json", lambda: as_json(rows))


def as_json(value: object) -> bytes:
    """Return a document without secrets."""
    plain = json.loads(json.dumps(value, default=str))
    return (json.dumps(without_secrets(plain), indent=1, ensure_ascii=False) + "\n").encode()


def _page(address: str, page: str) -> bytes:
    answer = ask(address, "GET", page, bytes_max=_PAGE_BYTES_MAX, timeout_s=_TIMEOUT_S)
    if answer.status == http.client.NOT_FOUND:
        raise LookupError(f"{address} does not serve {page}")
    if answer.status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        raise PermissionError(f"{address} does not show {page} to this user")
    return text_without_secrets(answer.body.decode("utf-8", "replace")).encode()


def _tail(path: Path, bytes_max: int) -> bytes:
    """Return the end of a file from the beginning of a line on."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - bytes_max))
        content = file.read(bytes_max)
    if size > bytes_max:
        content = content.partition(b"\n")[2]
    return text_without_secrets(content.decode("utf-8", "backslashreplace")).encode()


def _document(path: Path) -> bytes:
    """Return a configuration, which an embedded cluster writes as JSON."""
    return as_json(json.loads(path.read_text(encoding="utf-8")))


def _machine(directory: Path | None) -> bytes:
    usage = shutil.disk_usage(directory or Path.cwd())
    return as_json(
        {
            "system": platform.uname()._asdict(),
            "cpus": os.cpu_count(),
            "directory": str(directory or Path.cwd()),
            "disk": usage._asdict(),
        }
    )
