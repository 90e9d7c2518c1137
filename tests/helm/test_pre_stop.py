"""The hook before a broker is stopped: it waits while the end would be a risk, and always ends."""

import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme
from helm.chart import CHART

SCRIPT = CHART / "files/pre_stop.py"


@contextmanager
def controllers(
    answers: list[bool], tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Controllers that give these answers, the last one for ever; yield URL and paths asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            found: dict[str, object] = {"data": [{"cluster_id": "c"}]}
            if self.path.endswith(":can-restart"):
                found = {"can_restart": answers.pop(0) if len(answers) > 1 else answers[0]}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def run(url: str, seconds: int, *directory: str) -> None:
    """Run the hook of broker 2 to its end."""
    argv = [sys.executable, "-P", str(SCRIPT), url, "2", str(seconds), *directory]
    subprocess.run(argv, check=True)


@pytest.mark.feature("KU14")
def test_it_waits_until_a_controller_agrees() -> None:
    with controllers([False, False, True]) as (url, asked):
        run(url, 600)
    checks = [path for path in asked if path == "/v3/clusters/c/brokers/2:can-restart"]
    assert len(checks) == 3


@pytest.mark.feature("KU14")
def test_it_ends_although_no_controller_agrees() -> None:
    with controllers([False]) as (url, asked):
        run(url, 1)
    assert asked


@pytest.mark.feature("KU14")
def test_it_ends_although_no_controller_answers() -> None:
    with controllers([True]) as (url, _):
        pass
    run(url, 600)


@pytest.mark.feature("KU14", "SE29")
def test_it_shows_the_brokers_certificate_over_https(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    own = authority.issue_cert("broker")
    own.private_key_pem.write_to_path(str(tmp_path / "tls.key"))
    own.cert_chain_pems[0].write_to_path(str(tmp_path / "tls.crt"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    with controllers([False, True], context) as (url, asked):
        run(url, 600, str(tmp_path))
    assert len([path for path in asked if path.endswith(":can-restart")]) == 2
