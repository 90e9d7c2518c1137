"""Network namespaces for tests: one for each process, each on a link of its own to a router, which
drops what is cut.

A cut is a blackhole rule in the router, so that packets vanish on their way as they do when a cable
is pulled: connections stall, new ones time out, and nobody hears an error.
"""

import ctypes
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final

CLONE_NEWNET: Final = 0x4000_0000
NET: Final = "10.77"
"""Of addresses that exist in these namespaces alone: networks of several runs do not meet."""
_PREFIX: Final = "tidemark"

Names = str | Sequence[str]


class Network:
    """A router namespace and one for each name. ``close`` removes all of them."""

    def __init__(self, names: Sequence[str]) -> None:
        self._run = f"{_PREFIX}-{secrets.token_hex(3)}"
        self._numbers = {name: number for number, name in enumerate(names, 1)}
        self._cuts: list[tuple[str, str]] = []
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        router = self._namespace("router")
        _ip("netns", "add", router)
        for name, number in self._numbers.items():
            namespace, port = self._namespace(name), f"port{number}"
            _ip("netns", "add", namespace)
            link = ("link", "add", "eth0", "netns", namespace, "type", "veth")
            _ip(*link, "peer", "name", port, "netns", router)
            _ip("-n", router, "addr", "add", f"{NET}.{number}.1/24", "dev", port)
            _ip("-n", router, "link", "set", port, "up")
            _ip("-n", namespace, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            _ip("-n", namespace, "link", "set", "lo", "up")
            _ip("-n", namespace, "link", "set", "eth0", "up")
            _ip("-n", namespace, "route", "add", "default", "via", f"{NET}.{number}.1")
        with self.inside("router"):
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")

    def _namespace(self, name: str) -> str:
        return f"{self._run}-{name}"

    def address(self, name: str) -> str:
        """The only one of that namespace."""
        return f"{NET}.{self._numbers[name]}.2"

    def argv(self, name: str, argv: Sequence[str]) -> list[str]:
        """A command as it is to be run there; it keeps the process id that it was started with."""
        return ["ip", "netns", "exec", self._namespace(name), *argv]

    # -- cuts

    def cut(self, one: Names, other: Names) -> None:
        """Nothing passes between them any more, either way."""
        self.cut_one_way(one, other)
        self.cut_one_way(other, one)

    def cut_one_way(self, source: Names, destination: Names) -> None:
        """Nothing of the one reaches the other any more; the other way it still does."""
        for pair in product(_list(source), _list(destination)):
            if pair[0] != pair[1] and pair not in self._cuts:
                self._rule("add", pair)
                self._cuts.append(pair)

    def heal(self) -> None:
        """All cuts are over."""
        while self._cuts:
            self._rule("del", self._cuts[-1])
            self._cuts.pop()

    def _rule(self, verb: str, pair: tuple[str, str]) -> None:
        source, destination = map(self.address, pair)
        router = self._namespace("router")
        _ip("-n", router, "rule", verb, "from", source, "to", destination, "blackhole")

    # -- being there

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """This thread is in that namespace: its new sockets are, and those of threads and processes
        that it starts. Others, and what is open already, stay where they are.
        """
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self._namespace(name)}", os.O_RDONLY)
        try:
            _set_namespace(there)
            try:
                yield
            finally:
                _set_namespace(before)
        finally:
            os.close(there)
            os.close(before)

    def close(self) -> None:
        """Remove every namespace, whatever was made of it."""
        for name in ("router", *self._numbers):
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", self._namespace(name))


@contextmanager
def network(names: Sequence[str]) -> Iterator[Network]:
    """A network that ends with the block."""
    made = Network(names)
    try:
        yield made
    finally:
        made.close()


@cache
def why_no_networks() -> str | None:
    """What this machine lacks for them; None where they work."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the ip command (iproute2)"
    try:
        with network(("here", "there")) as tried:
            tried.cut("here", "there")
    except (OSError, subprocess.CalledProcessError) as refused:
        said = getattr(refused, "stderr", None) or str(refused)
        return f"network namespaces do not work here: {said.strip()}"
    return None


def _list(names: Names) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _set_namespace(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")
