"""Topics, users and ACLs of a release, as the chart's Job keeps them: the calls to the cluster, and
the notes in a ConfigMap about ACLs that it has made.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

from tidemark.client.admin.admin import Admin
from tidemark.client.admin.types import ConfigResource
from tidemark.client.errors import AuthenticationError, ClientError
from tidemark.kubernetes.api import MERGE_PATCH, Document, KubernetesApi, KubernetesError
from tidemark.model.acls import AclBinding, AclFilter
from tidemark.model.errors import ErrorCode
from tidemark.plans.provisioning import (
    Changes,
    Found,
    FoundTopic,
    Wanted,
    from_words,
    plan,
    to_words,
)

_KEY: Final = "acls"
_NOT_FOUND: Final = 404
_OF_TOPIC: Final = "topic"


class Notes(Protocol):
    """ACLs that runs have made."""

    def read(self) -> frozenset[AclBinding]:
        """Return the ACLs."""

    def write(self, acls: frozenset[AclBinding]) -> None:
        """Replace the ACLs."""


class Place(NamedTuple):
    """Cluster, and settings of TLS and login of a client that may administer it."""

    bootstrap: str
    settings: Mapping[str, Any]

    def admin(self, **other: str) -> Admin:
        """Return a client, with other settings on top."""
        return Admin(
            self.bootstrap, client_id="tidemark-provisioning", **{**self.settings, **other}
        )


class ConfigMapNotes:
    """Notes in a ConfigMap, which is no object of helm's: it outlives the release, as the cluster's
    ACLs do. All calls raise KubernetesError, also if another run has written since the last call.
    """

    def __init__(
        self, api: KubernetesApi, namespace: str, name: str, labels: Mapping[str, str]
    ) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{quote(namespace)}/configmaps"
        self._metadata = {"name": name, "labels": dict(labels)}
        self._version = ""

    def read(self) -> frozenset[AclBinding]:
        """Return the ACLs; none while there is no ConfigMap."""
        try:
            found = self._api.call("GET", f"{self._path}/{quote(str(self._metadata['name']))}")
        except KubernetesError as error:
            if error.status == _NOT_FOUND:
                return frozenset()
            raise
        self._version = _version(found)
        return from_words(json.loads((found.get("data") or {}).get(_KEY, "[]")))

    def write(self, acls: frozenset[AclBinding]) -> None:
        """Replace the ACLs."""
        data = {_KEY: json.dumps(to_words(acls))}
        if self._version:
            path = f"{self._path}/{quote(str(self._metadata['name']))}"
            body: Document = {"metadata": {"resourceVersion": self._version}, "data": data}
            answer = self._api.call("PATCH", path, body, {"Content-Type": MERGE_PATCH})
        else:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": self._metadata}
            answer = self._api.call("POST", self._path, {**body, "data": data})
        self._version = _version(answer)


def _version(document: Document) -> str:
    return str((document.get("metadata") or {}).get("resourceVersion", ""))


def may_pass(error: ClientError) -> bool:
    """True if the same run may succeed later: brokers, or the super user, are not there yet."""
    early = error.code is ErrorCode.INVALID_REPLICATION_FACTOR
    return error.retriable or early or isinstance(error, AuthenticationError)


async def provision(
    place: Place, wanted: Wanted, passwords: Mapping[str, str], notes: Notes
) -> list[str]:
    """Make what is missing; return a line for each change. ``passwords``: by user. Raises
    ClientError, PlanError, KubernetesError; what was changed until then is kept by the next run.
    """
    async with place.admin() as admin:
        found = await _look(admin, wanted, notes)
        fit = [name for name in found.users if await _logs_in(place, name, passwords[name])]
        changes = plan(wanted, replace(found, users=frozenset(fit)))
        await _apply(admin, changes, passwords, notes, found.made)
    return list(changes.lines())


async def _look(admin: Admin, wanted: Wanted, notes: Notes) -> Found:
    """Return what is there, with all wanted users that exist."""
    there = set(await admin.list_topics())
    names = [topic.name for topic in wanted.topics if topic.name in there]
    described = await admin.describe_topics(names)
    resources = [ConfigResource("topic", name) for name in names]
    configs = await admin.describe_configs(resources) if names else {}
    topics = {
        name: FoundTopic(
            len(topic.partitions),
            max(len(each.replicas) for each in topic.partitions),
            {
                entry.name: entry.value
                for entry in configs[ConfigResource("topic", name)].values()
                if entry.source == _OF_TOPIC
            },
        )
        for name, topic in described.items()
    }
    users = frozenset(await admin.describe_users()) if wanted.users else frozenset()
    made = notes.read()
    needs_acls = bool(wanted.acls or made)
    acls = frozenset(await admin.describe_acls()) if needs_acls else frozenset()
    return Found(topics, users & set(wanted.users), acls, made)


async def _logs_in(place: Place, name: str, password: str) -> bool:
    """Return whether a user has this password."""
    try:
        async with place.admin(sasl_username=name, sasl_password=password) as client:
            await client.describe_cluster()
    except AuthenticationError:
        return False
    return True


async def _apply(
    admin: Admin,
    changes: Changes,
    passwords: Mapping[str, str],
    notes: Notes,
    made: frozenset[AclBinding],
) -> None:
    if changes.topics:
        await admin.create_topics(changes.topics)
    if changes.partitions:
        await admin.create_partitions(changes.partitions)
    if changes.configs:
        await admin.alter_configs(
            {ConfigResource("topic", name): each for name, each in changes.configs.items()}
        )
    if changes.users:
        await admin.set_passwords({name: passwords[name] for name in changes.users})
    if changes.new_acls:
        # Noted before they are made: a run that ends between leaves none that nobody removes.
        notes.write(made | changes.new_acls)
        await admin.create_acls(changes.new_acls)
    if changes.old_acls:
        await admin.delete_acls([AclFilter.only(one) for one in changes.old_acls])
    if changes.made != made | changes.new_acls:
        notes.write(changes.made)
