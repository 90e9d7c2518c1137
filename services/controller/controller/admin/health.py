"""Health: what is wrong with the cluster, why, and what to do about it."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from pydantic import Field
from tidemark.model.authorization import Operation
from tidemark.model.ids import NO_BROKER
from tidemark.model.metadata import ClusterImage, PartitionImage

from controller.admin import brokers, cluster
from controller.admin.context import AdminContext
from controller.admin.models import Model
from controller.admin.topics import min_insync_replicas

_DISK_FULL_PERCENT: Final = 90
_GIB: Final = 2**30
_NAMED_MAX: Final = 5
"""Partitions that a problem names."""

Severity = Literal["error", "warning"]


class Problem(Model):
    """One problem. ``subject`` is the broker, partition or kind of coordinator that has it."""

    severity: Severity = Field(description="error: something is unavailable", examples=["warning"])
    what: str = Field(examples=["4 partitions have fewer replicas in sync than they should"])
    why: str = Field(examples=["broker 3 is not alive; affected: orders-0, orders-1"])
    remedy: str = Field(examples=["start broker 3"])
    subject_kind: str = Field(
        description="cluster, broker, partitions or coordinators", examples=["broker"]
    )
    subject: str = Field(examples=["3"])


class Health(Model):
    """State of the cluster with its problems, errors first."""

    status: Literal["ok", "warning", "error"] = Field(examples=["ok"])
    problems: list[Problem]


async def health(ctx: AdminContext) -> Health:
    """Return the health of the cluster as this controller sees it. Raises AdminError only for a
    caller that may not see it.
    """
    ctx.require(Operation.DESCRIBE)
    image = ctx.shared.image()
    if not image.cluster_id:
        found = [_no_metadata()]
    else:
        found = [*_brokers(image), *_partitions(image), *_coordinators(ctx)]
        found += await _disks(ctx)
    found.sort(key=lambda problem: problem.severity)
    return Health(status=found[0].severity if found else "ok", problems=found)


def _no_metadata() -> Problem:
    return Problem(
        severity="error",
        what="This controller has no metadata",
        why="no controller is active, or this one has not been able to follow it",
        remedy="check that ZooKeeper is reachable, and that a controller is running",
        subject_kind="cluster",
        subject="",
    )


def _brokers(image: ClusterImage) -> Iterator[Problem]:
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        if broker.fenced:
            yield Problem(
                severity="warning",
                what=f"Broker {broker_id} is not alive",
                why="its live znode is gone, or its metadata stream broke: it stopped, hangs,"
                " or is cut off",
                remedy=f"start it on {broker.node or 'its machine'}, or look at its log",
                subject_kind="broker",
                subject=str(broker_id),
            )
    if not image.brokers:
        yield Problem(
            severity="error",
            what="No broker is registered",
            why="brokers register when they reach ZooKeeper and the active controller",
            remedy="start a broker",
            subject_kind="cluster",
            subject="",
        )


def _partitions(image: ClusterImage) -> Iterator[Problem]:
    leaderless: list[tuple[str, PartitionImage]] = []
    under_min: list[tuple[str, PartitionImage]] = []
    under: list[tuple[str, PartitionImage]] = []
    for topic in image.topics.values():
        minimum = min_insync_replicas(image, topic)
        for one in topic.partitions:
            if one.leader == NO_BROKER:
                leaderless.append((topic.name, one))
            elif len(one.isr) < min(minimum, len(one.replicas)):
                under_min.append((topic.name, one))
            elif len(one.isr) < len(one.replicas) and not one.is_reassigning:
                under.append((topic.name, one))
    if leaderless:
        yield _of_partitions(image, "error", leaderless, "no leader", "read or written")
    if under_min:
        yield _of_partitions(
            image,
            "error",
            under_min,
            "fewer replicas in sync than min.insync.replicas",
            "written with acks=all",
        )
    if under:
        yield _of_partitions(image, "warning", under, "replicas that are not in sync", "")


def _of_partitions(
    image: ClusterImage,
    severity: Severity,
    found: list[tuple[str, PartitionImage]],
    having: str,
    impossible: str,
) -> Problem:
    missing = {one for _, part in found for one in part.replicas if one not in part.isr}
    dead = sorted(one for one in missing if one not in image.brokers or image.brokers[one].fenced)
    slow = sorted(missing - set(dead))
    reasons = []
    if dead:
        reasons.append(f"{_named_brokers(dead)} not alive")
    if slow:
        reasons.append(f"{_named_brokers(slow)} alive, but behind the leader")
    if impossible:
        reasons.append(f"these partitions cannot be {impossible}")
    names = ", ".join(f"{name}-{part.partition}" for name, part in found[:_NAMED_MAX])
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    start = f"start {', '.join(f'broker {one}' for one in dead)}" if dead else ""
    wait = "wait until they have caught up; if they do not, look at their logs and disks"
    count = f"{len(found)} partition{'s have' if len(found) > 1 else ' has'}"
    return Problem(
        severity=severity,
        what=f"{count} {having}",
        why=f"{'; '.join(reasons) or 'a leader is being elected'}; affected: {names}{more}",
        remedy=start or wait,
        subject_kind="partitions",
        subject=names,
    )


def _named_brokers(ids: Sequence[int]) -> str:
    numbers = ", ".join(map(str, ids))
    return f"broker {numbers} is" if len(ids) == 1 else f"brokers {numbers} are"


def _coordinators(ctx: AdminContext) -> Iterator[Problem]:
    for kind in cluster.coordinators(ctx):
        if not kind.unowned_shards:
            continue
        service = f"{kind.kind}-coordinator"
        alive = ", ".join(map(str, kind.coordinator_ids)) or "none"
        yield Problem(
            severity="error",
            what=f"{kind.unowned_shards} of {kind.shards} shards have no {service}",
            why=f"coordinators that are alive: {alive}",
            remedy=f"start a {service}" if not kind.coordinator_ids else "wait a few seconds",
            subject_kind="coordinators",
            subject=kind.kind,
        )


async def _disks(ctx: AdminContext) -> list[Problem]:
    found: list[Problem] = []
    live = {one.broker_id for one in ctx.brokers.live()}
    for broker_id, answer in (await brokers.all_log_dirs(ctx, with_logs=False)).items():
        if answer.problem and broker_id in live:
            found.append(_silent(broker_id, answer.problem))
        for directory in answer.directories:
            problem = _of_directory(broker_id, directory)
            if problem is not None:
                found.append(problem)
    return found


def _silent(broker_id: int, reason: str) -> Problem:
    return Problem(
        severity="warning",
        what=f"Broker {broker_id} does not answer in time",
        why=reason,
        remedy="its figures are missing or old; look at its load and its log",
        subject_kind="broker",
        subject=str(broker_id),
    )


def _of_directory(broker_id: int, directory: brokers.LogDirectory) -> Problem | None:
    if directory.error is not None:
        return Problem(
            severity="error",
            what=f"Broker {broker_id} has a failed log directory",
            why=f"{directory.path}: {directory.error}",
            remedy="repair or replace the disk, then restart the broker",
            subject_kind="broker",
            subject=str(broker_id),
        )
    total, usable = directory.total_bytes, directory.usable_bytes
    if not total or usable is None:
        return None
    used = round(100 * (total - usable) / total)
    if used < _DISK_FULL_PERCENT:
        return None
    return Problem(
        severity="warning",
        what=f"A disk of broker {broker_id} is {used} % full",
        why=f"{directory.path} has {usable / _GIB:.1f} of {total / _GIB:.1f} GiB left",
        remedy="shorten retention, move replicas to other brokers, or add a disk",
        subject_kind="broker",
        subject=str(broker_id),
    )
