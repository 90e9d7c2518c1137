"""DNS server of the cluster: A records of Services, of headless Services and of their pods.

    python dns.py ADDRESS API KUBECONFIG KEYS

Services and endpoints are read from the API server every half second, so that a name follows its
pods at once. No other name exists.
"""

import json
import re
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

_ZONE: Final = "svc.cluster.local"
_REFRESH_S: Final = 0.5
_TTL_S: Final = 1
_A: Final = 1
_NO_SUCH_NAME: Final = 3
_AUTHORITATIVE_ANSWER: Final = 0x8580

Zone = dict[str, list[str]]


class Api:
    """The API server, by the token of a kubeconfig."""

    def __init__(self, url: str, kubeconfig: Path, keys: Path) -> None:
        token = re.search(r"token: (\w+)", kubeconfig.read_text())
        assert token is not None, "the lab's kubeconfig has a token"
        self._url = url
        self._headers = {"Authorization": f"Bearer {token[1]}"}
        self._trusted = ssl.create_default_context(cafile=str(keys / "ca.crt"))

    def items(self, path: str) -> list[dict[str, Any]]:
        """Return the items of a list."""
        request = urllib.request.Request(self._url + path, headers=self._headers)
        with urllib.request.urlopen(request, context=self._trusted, timeout=10) as answer:
            items: list[dict[str, Any]] = json.load(answer)["items"]
            return items


def read_zone(api: Api) -> Zone:
    """Return the addresses of every name."""
    zone: Zone = {}
    headless = set()
    for service in api.items("/api/v1/services"):
        name = _full_name(service["metadata"]["name"], service)
        address = service["spec"].get("clusterIP")
        zone[name] = []
        if address == "None":
            headless.add(name)
        elif address:
            zone[name].append(address)
    for slice_ in api.items("/apis/discovery.k8s.io/v1/endpointslices"):
        service = slice_["metadata"].get("labels", {}).get("kubernetes.io/service-name", "")
        if (name := _full_name(service, slice_)) in headless:
            _add_endpoints(zone, name, slice_.get("endpoints") or [])
    return zone


def _full_name(service: str, of: dict[str, Any]) -> str:
    return f"{service}.{of['metadata']['namespace']}.{_ZONE}"


def _add_endpoints(zone: Zone, name: str, endpoints: list[dict[str, Any]]) -> None:
    for endpoint in endpoints:
        if endpoint.get("conditions", {}).get("ready") is False:
            continue
        for address in endpoint["addresses"]:
            zone[name].append(address)
            if hostname := endpoint.get("hostname"):
                zone.setdefault(f"{hostname}.{name}", []).append(address)


def answer(question: bytes, zone: Zone) -> bytes:
    """Return the answer to a question of one name."""
    labels, at = [], 12
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode().lower())
        at += 1 + question[at]
    name, kind = ".".join(labels), struct.unpack_from(">H", question, at + 1)[0]
    addresses = zone.get(name, []) if kind == _A else []
    exists = name in zone or any(other.endswith(f".{name}") for other in zone)
    flags = _AUTHORITATIVE_ANSWER | (0 if exists else _NO_SUCH_NAME)
    head = question[:2] + struct.pack(">HHHHH", flags, 1, len(addresses), 0, 0)
    records = [
        struct.pack(">HHHIH4s", 0xC00C, _A, 1, _TTL_S, 4, socket.inet_aton(address))
        for address in addresses
    ]
    return b"".join((head, question[12 : at + 5], *records))


class Server:
    """Answers from the zone as last read."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._zone: Zone = {}

    def refresh(self) -> None:
        """Read the zone again and again."""
        while True:
            try:
                self._zone = read_zone(self._api)
            except OSError as error:
                print(error, flush=True)
            time.sleep(_REFRESH_S)

    def serve(self, address: str) -> None:
        """Answer questions."""
        listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listening.bind((address, 53))
        while True:
            question, client = listening.recvfrom(1500)
            try:
                listening.sendto(answer(question, self._zone), client)
            except (IndexError, UnicodeDecodeError, struct.error) as error:
                print(f"{client}: {error}", flush=True)


def main(address: str, url: str, kubeconfig: str, keys: str) -> None:
    """Serve until killed."""
    server = Server(Api(url, Path(kubeconfig), Path(keys)))
    threading.Thread(target=server.refresh, daemon=True).start()
    server.serve(address)


if __name__ == "__main__":
    main(*sys.argv[1:])
