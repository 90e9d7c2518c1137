"""A controller beside a secured cluster, whose REST and console want to know who calls."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from e2e.certificates import Authority, Files
from e2e.controllers import ControllerProcess
from e2e.identity_provider import IdentityProvider, identity_provider
from e2e.rest_world import Api
from e2e.secured import SUPER_USER, Secured, secured_cluster
from tidemark.cli.dev.layout import HOST
from tidemark.runtime.access.authorization_config import STANDARD_AUTHORIZER
from waiting import PATIENCE_S, wait_for

VIEWER, EDITOR, OPERATOR, ADMIN = ROLES = ("viewer", "editor", "operator", "admin")
"""Users with the role of that name."""
NOBODY = "nobody"
"""User that may do nothing."""
DENIED = "denied"
"""User with the role admin."""
USERS = (SUPER_USER, *ROLES, NOBODY, DENIED)


@dataclass
class Guarded:
    """https with basic, bearer and mtls. The password of a user is its name."""

    secured: Secured
    controller: ControllerProcess
    authority: Authority
    provider: IdentityProvider

    @property
    def base(self) -> str:
        return f"https://{self.controller.rest}"

    def client(
        self, user: str | None = None, *, files: Files | None = None, source: str = HOST
    ) -> httpx.Client:
        """A client that sends a user and a password, or has a certificate, or neither."""
        context = ssl.create_default_context(cafile=self.authority.ca)
        if files is not None:
            context.load_cert_chain(files["ssl.certificate.location"], files["ssl.key.location"])
        auth = None if user is None else (user, user)
        transport = httpx.HTTPTransport(verify=context, local_address=source)
        return httpx.Client(base_url=self.base, auth=auth, transport=transport, timeout=PATIENCE_S)

    def api(self, user: str | None = None, **how: Any) -> Api:
        return Api(self.base, self.client(user, **how))


@contextmanager
def guarded_controller(directory: Path) -> Iterator[Guarded]:
    authority = Authority(directory / "certificates")
    with secured_cluster(directory / "cluster") as secured, identity_provider() as provider:
        server = authority.server
        options = {
            "rest.authentication.mechanisms": "basic,bearer,mtls",
            "rest.ssl.certificate.location": server["ssl.certificate.location"],
            "rest.ssl.key.location": server["ssl.key.location"],
            "rest.ssl.ca.location": authority.ca,
            "rest.ssl.client.auth": "requested",
            "rest.ssl.principal.mapping.rules": "RULE:^.*CN=([a-z]+).*$/$1/",
            "rest.failed.authentication.delay.ms": "0",
            "rest.rate.per.second": "10000",
            "audit.sinks": "log",
            "audit.interval.ms": "200",
            "sasl.oauthbearer.jwks.endpoint.url": provider.url,
            "sasl.oauthbearer.jwks.endpoint.allow.http": "true",
            "sasl.oauthbearer.expected.issuer": provider.url,
            "sasl.oauthbearer.expected.audience": "tidemark",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{SUPER_USER}",
            "rest.roles": ";".join(f"User:{name}={name}" for name in ROLES)
            + f";User:{DENIED}=admin",
        }
        argv = [word for key, value in options.items() for word in (f"--{key}", value)]
        connect = secured.cluster.layout.zookeeper_connect
        controller = ControllerProcess(2, connect, directory, *argv)
        world = Guarded(secured, controller, authority, provider)
        try:
            secured.add_users(USERS)
            with world.client() as http:
                wait_for(lambda: _is_ready(http), "the controller is ready")
            yield world
        finally:
            controller.stop()


def _is_ready(http: httpx.Client) -> bool:
    try:
        return http.get("/readyz").is_success
    except httpx.TransportError:
        return False
