"""HTTP application of the controller: REST under /v3, and the operator's pages."""

from typing import Any, Final

from fastapi import APIRouter, FastAPI
from tidemark.runtime.clock import Clock
from tidemark.runtime.metrics import Metrics
from tidemark.runtime.ops_http import Application, OpsApplication, Receive, Scope, Send
from tidemark.runtime.service_config import version

from controller.admin.service import AdminService
from controller.config import ControllerConfig
from controller.console.application import OPS_PATHS, Console
from controller.login.authentication import Authentication
from controller.login.logins import RestLogins
from controller.rest import (
    access_acls,
    access_quotas,
    access_users,
    brokers,
    clusters,
    config_changes,
    configs,
    dead_letters,
    groups,
    load,
    loggers,
    messages,
    operations,
    problems,
    reassignments,
    share_groups,
    topic_changes,
    topics,
    transactions,
    watching,
)
from controller.rest.hosts import HostCheck, allowed_hosts
from controller.rest.limits import Limits
from controller.shell.node import ControllerNode

ROUTERS: Final[tuple[APIRouter, ...]] = (
    clusters.router,
    configs.router,
    config_changes.router,
    reassignments.router,
    brokers.router,
    loggers.router,
    topic_changes.router,
    messages.router,
    topics.router,
    groups.router,
    share_groups.router,
    dead_letters.router,
    transactions.router,
    load.router,
    watching.router,
    operations.router,
    access_acls.router,
    access_users.router,
    access_quotas.router,
)
"""Routers in order of precedence: `topics/-/configs` comes before `topics/{topic_name}/configs`."""


class Rest(FastAPI):
    """Application of REST."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        is_made = self.openapi_schema is not None
        document = super().openapi()
        if not is_made:
            problems.describe(document)
        return document


def make_rest(admin: AdminService, config: ControllerConfig, clock: Clock) -> Rest:
    """Return the application of REST, with its OpenAPI document at /openapi.json."""
    application = Rest(
        title="Tidemark",
        summary="Administration of a Tidemark cluster, in the shapes of Confluent's REST v3",
        version=version(),
        docs_url=None,
        redoc_url=None,
    )
    application.state.admin = admin
    problems.install(application)
    for router in ROUTERS:
        application.include_router(router)
    application.add_middleware(Limits, config=config, clock=clock)
    return application


def make_application(
    admin: AdminService,
    config: ControllerConfig,
    node: ControllerNode,
    metrics: Metrics,
) -> Application:
    """Return the application: REST, the console, and the paths for operators, as /metrics."""
    ops = OpsApplication(metrics.registry, ready=node.problem, live=lambda: None)
    clock = Clock()
    logins = RestLogins(config, admin.image, clock, metrics, node.audit.login)
    console = Console(admin.context, ops, logins)
    served = Authentication(Dispatch(make_rest(admin, config, clock), console), logins)
    return HostCheck(served, allowed_hosts(config), OPS_PATHS)


class Dispatch:
    """ASGI application that gives /v3 and /openapi.json to REST, and all other paths away."""

    def __init__(self, rest: Application, others: Application) -> None:
        self._rest = rest
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope.get("path", "")
        is_rest = path == "/openapi.json" or path == "/v3" or path.startswith("/v3/")
        await (self._rest if is_rest else self._others)(scope, receive, send)
