"""Rolling restart of the pods of a release: which pod is next, and why none is. Pure.

A StatefulSet continues with its next pod as soon as one is ready. That is too early for a broker,
whose replicas may not be in sync yet. This plan restarts one pod at a time, and only while every
pod is ready, every broker alive and every replica in sync.
"""

from collections.abc import Iterable

from tidemark.plans.kubernetes.release import (
    BROKER,
    COMPONENTS,
    ClusterCheck,
    Done,
    Pod,
    PodSet,
    Release,
    Wait,
)

NO_ANSWER = Wait("no controller answers")


def next_pod(release: Release, again: frozenset[str] = frozenset()) -> Pod | Wait | Done:
    """Return the pod to restart next: one that runs an older revision of its set, or whose uid is
    in ``again``. Components come in the order of ``COMPONENTS``, so that the controllers, which
    every restart of a broker needs, come last; pods from the highest ordinal down, as Kubernetes
    does.
    """
    sets = sorted(release.sets, key=lambda each: COMPONENTS.index(each.component))
    waits = [problem for each in sets for problem in _problems(release, each)]
    if waits:
        return Wait(waits[0])
    for each in sets:
        for pod in release.pods_of(each.component):
            if pod.uid in again or (each.is_on_delete and pod.revision != each.revision):
                return pod
    return Done()


def _problems(release: Release, each: PodSet) -> Iterable[str]:
    """Yield what is unfinished in a set: its own rolling update, or a pod that does not serve."""
    if not each.is_observed:
        yield f"Kubernetes has not seen the latest change of {each.name} yet"
    pods = release.pods_of(each.component)
    if len(pods) != each.replicas:
        yield f"{each.name} has {len(pods)} pods, not {each.replicas}"
    for pod in pods:
        if not pod.serves:
            yield f"{pod.name} is {'being ended' if pod.is_deleting else 'not ready'}"
        elif not each.is_on_delete and pod.revision != each.revision:
            yield f"Kubernetes has not restarted {pod.name} yet"


def may_restart(pod: Pod, check: ClusterCheck | None) -> Wait | None:
    """Return why this pod is not restarted now; None if it may be. Without an answer of a
    controller nothing is restarted.
    """
    if check is None:
        return NO_ANSWER
    if problem := check.problem():
        return Wait(problem)
    if pod.component == BROKER and check.risks:
        return Wait(f"a restart of {pod.name} is a risk: {'; '.join(check.risks)}")
    return None


def ended(check: ClusterCheck | None) -> Wait | None:
    """Return what is unfinished after the last restart; None if nothing is."""
    if check is None:
        return NO_ANSWER
    return Wait(problem) if (problem := check.problem()) else None
