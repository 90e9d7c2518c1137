"""Work of ``tidemark k8s``."""

import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tidemark.cli.failure import CommandError
from tidemark.cli.output import say
from tidemark.cli.security import security
from tidemark.kubernetes.api import KubeconfigApi, KubernetesApi, KubernetesError, PodApi, is_in_pod
from tidemark.kubernetes.release_secrets import SecretStore, Wanted, keep
from tidemark.kubernetes.work import (
    POLL_S,
    NoReleaseError,
    OutOfTimeError,
    Surroundings,
    Work,
    prefix_of,
    whole_check,
)
from tidemark.plans.kubernetes.release import BROKER, Pod, Release
from tidemark.plans.kubernetes.replacement import Refusal, lost_on
from tidemark.plans.kubernetes.roll import NO_ANSWER, next_pod
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode

Row = dict[str, Any]
_REFUSED = (401, 403)


class Place(NamedTuple):
    """Kubeconfig and context of a cluster; None for the default."""

    kubeconfig: str | None
    context: str | None


@contextmanager
def failures(release: str, namespace: str) -> Iterator[None]:
    """Turn failures into messages with exit codes."""
    try:
        yield
    except KubernetesError as error:
        code = ExitCode.NO_PERMISSION if error.status in _REFUSED else ExitCode.UNAVAILABLE
        raise CommandError(f"Kubernetes: {error}", code=code) from None
    except NoReleaseError:
        raise CommandError(
            f"there is no release {release} in namespace {namespace}",
            hint="helm list --all-namespaces; -n NAMESPACE",
        ) from None
    except OutOfTimeError as error:
        raise CommandError(
            f"out of time; last: {error}",
            hint="run the command again: it continues where it ended",
            code=ExitCode.TEMPORARY,
        ) from None
    except ImportError as error:
        raise CommandError(
            f"the client of Kubernetes is not installed: {error}",
            hint="pip install kubernetes",
            code=ExitCode.UNAVAILABLE,
        ) from None


def open_work(release: str, namespace: str, place: Place, timeout_s: float | None) -> Work:
    """Return the work on a release. Raises KubernetesError, ImportError."""
    api = open_api(place)
    clock = Clock()
    end_ms = None if timeout_s is None else clock.now_ms() + int(timeout_s * 1_000)

    def wait() -> bool:
        if end_ms is not None and clock.now_ms() + POLL_S * 1_000 > end_ms:
            return False
        time.sleep(POLL_S)
        return True

    return Work(api, namespace, release, Surroundings(wait, say), _trusted(api))


def open_api(place: Place) -> KubernetesApi:
    """Return the API of this pod's cluster, or of a kubeconfig. Raises KubernetesError,
    ImportError.
    """
    is_named = place.kubeconfig is not None or place.context is not None
    if is_in_pod() and not is_named:
        return PodApi()
    return KubeconfigApi(place.kubeconfig, place.context)


def _trusted(api: KubernetesApi) -> ssl.SSLContext | None:
    """Return the TLS for REST in a pod, by the settings of the command line; None without TLS.
    Raises CommandError.
    """
    given = security()
    if not api.is_inside or "ssl_ca_location" not in given:
        return None
    from tidemark.client.security_config import SecurityConfig
    from tidemark.runtime.tls import TlsError, client_context, tls_settings

    files: Any = {name: value for name, value in given.items() if name.startswith("ssl_")}
    files.pop("ssl_endpoint_identification_algorithm", None)
    try:
        return client_context(tls_settings(SecurityConfig(**files)))
    except TlsError as problem:
        raise CommandError(str(problem), code=ExitCode.CONFIG) from None


def secret_store(namespace: str, place: Place, labels: Mapping[str, str]) -> SecretStore:
    """Return the Secrets of a namespace. Raises KubernetesError, ImportError."""
    return SecretStore(open_api(place), namespace, labels)


def wait_for_authority(store: SecretStore, name: str, timeout_s: float) -> None:
    """Return when a Secret has an authority. Raises KubernetesError; CommandError in the end."""
    clock = Clock()
    end_ms = clock.now_ms() + int(timeout_s * 1_000)
    while not store.authority(name):
        if clock.now_ms() + POLL_S * 1_000 > end_ms:
            raise CommandError(
                f"Secret {name} has no ca.crt after {timeout_s:g} s",
                hint="kubectl describe certificate, for what cert-manager waits for",
                code=ExitCode.TEMPORARY,
            )
        time.sleep(POLL_S)


def make_secrets(store: SecretStore, wanted: Wanted) -> list[str]:
    """Keep the Secrets of a release; return a line for each that was made or changed. Raises
    KubernetesError.
    """
    return keep(store, wanted, Clock().wall_ms())


def read_certificates(texts: Sequence[str]) -> dict[str, list[str]]:
    """Return host names and addresses by component, of COMPONENT=HOST,HOST. Raises CommandError."""
    found = {}
    for text in texts:
        component, equals, hosts = text.partition("=")
        if not equals or not component:
            raise CommandError(
                f"--certificate {text!r}: expected COMPONENT=HOST,HOST", code=ExitCode.USAGE
            )
        found[component] = [host for host in hosts.split(",") if host]
    return found


def status(work: Work) -> tuple[list[Row], list[str]]:
    """Return a row for each pod, and what is wrong."""
    release = work.on_kubernetes.read()
    check = whole_check(work, release)
    newest = {each.component: each.revision for each in release.sets}
    pods = sorted(release.pods, key=lambda pod: pod.name)
    rows = [_row(release, pod, newest[pod.component]) for pod in pods]
    problems = [f"{row['pod']} is {row['state']}" for row in rows if row["state"] != "ready"]
    problems += [f"node {name} is gone or not ready" for name in release.lost_nodes()]
    if problem := NO_ANSWER.reason if check is None else check.problem():
        problems.append(problem)
    following = next_pod(release)
    if isinstance(following, Pod):
        say(f"next to restart: {following.name}")
    return rows, problems


def _row(release: Release, pod: Pod, newest: str) -> Row:
    nodes = sorted({volume.node for _, volume in release.volumes_of(pod)})
    state = "being ended" if pod.is_deleting else "ready" if pod.is_ready else "not ready"
    return {
        "pod": pod.name,
        "state": state,
        "node": pod.node or None,
        "volume_node": nodes,
        "revision": "newest" if pod.revision == newest else "older",
        "problem": pod.problem,
    }


def require_empty(work: Work, brokers: int) -> None:
    """Raise CommandError if a broker beyond this number has replicas."""
    held = work.held_beyond(brokers)
    if held:
        ids = " ".join(f"--remove-broker {broker}" for broker in held)
        lines = ", ".join(
            f"broker {broker} has {count} replica{'s' if count > 1 else ''}"
            for broker, count in held.items()
        )
        raise CommandError(
            f"no fewer brokers: {lines}",
            hint=f"move them away: tidemark cluster reassign plan {ids}; then apply, and watch",
        )


def plan_replacement(
    work: Work, node: str, *, confirmed: bool, accept_loss: bool
) -> tuple[Release, list[Row], Refusal | None]:
    """Return the release, what it has on the node, and why that is not given up."""
    release = work.on_kubernetes.read()
    rows = [
        {"pod": pod.name, "claim": claim.name, "volume": volume.name}
        for pod, claim, volume in lost_on(release, node)
    ]
    refusal = None
    if rows:
        refusal = work.replacement_refusal(
            release, node, confirmed=confirmed, accept_loss=accept_loss
        )
    return release, rows, refusal


def report(work: Work, release: Release, refusal: Refusal) -> None:
    """Write an Event about a refusal, for those who watch the cluster; a line without the right."""
    set_name = f"{prefix_of(release)}-{BROKER}"
    now = Clock().wall_ms()
    try:
        work.on_kubernetes.report(set_name, refusal.reason, refusal.message, now=now)
    except KubernetesError as error:
        say(f"no Event written: {error}")
