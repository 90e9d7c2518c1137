"""Coordinator replicas: their registration, their liveness, and the assignment of their shards."""

from collections.abc import Iterable, Iterator
from typing import Final

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerEpoch, InstantMs
from tidemark.model.metadata import (
    COORDINATOR_KINDS,
    ClusterDelta,
    ClusterImage,
    CoordinatorImage,
)

from controller.core.cluster import Change, Cluster
from controller.core.deaf import Deaf
from controller.core.effects import CoordinatorRegistered, ShardAcquired
from controller.core.inputs import AcquireShard, RegisterCoordinator
from controller.core.liveness import CoordinatorListing
from controller.core.shard_owners import (
    STATE_TOPICS,
    Owners,
    assign,
    given_to,
    needs_rebalancing,
    of_coordinator,
    rebalance,
)

_NO_ZNODE: Final = -1


class Coordinators:
    """State of one term that is not stored: which coordinators have a session, whose stream broke,
    and when shards may next move for balance.
    """

    def __init__(
        self,
        listings: Iterable[CoordinatorListing],
        *,
        fence_ms: int,
        moves_max: int,
        move_interval_ms: int,
        no_subscriber_ms: int = 0,
    ) -> None:
        self._fence_ms = fence_ms
        self._deaf = Deaf(no_subscriber_ms)
        self._streams: set[int] = set()
        self._moves_max = moves_max
        self._move_interval_ms = move_interval_ms
        self._listings = {kind: CoordinatorListing(kind, -1) for kind in COORDINATOR_KINDS}
        self._streams_lost: dict[int, InstantMs] = {}
        self._move_at: dict[str, InstantMs] = {}
        for listing in listings:
            self.see(listing)

    def see(self, listing: CoordinatorListing) -> None:
        """Take a listing of the coordinators with a session, unless a newer one is present."""
        present = self._listings.get(listing.kind)
        if present is not None and listing.zxid >= present.zxid:
            self._listings[listing.kind] = listing

    def listing(self, kind: str) -> CoordinatorListing:
        """Return the newest listing; an empty one for an unknown kind."""
        return self._listings.get(kind, CoordinatorListing(kind, -1))

    def vanished(self, image: ClusterImage) -> tuple[CoordinatorImage, ...]:
        """Return the registered coordinators that no longer have a session."""
        return tuple(
            one
            for one in image.coordinators.values()
            if one.kind in self._listings and not self._listings[one.kind].has(one)
        )

    # -- moves

    def due(self, image: ClusterImage, now: InstantMs) -> Change | None:
        """Return a change that unregisters dead coordinators, assigns their shards, and moves
        shards for balance; None: none is due.
        """
        gone = tuple(one.key for one in self.vanished(image))
        shards_changed = {}
        for kind, topic in STATE_TOPICS.items():
            live = {number for one, number in image.coordinators if one == kind} - {
                number for one, number in gone if one == kind
            }
            state = image.topics.get(topic)
            shard_count = 0 if state is None else len(state.partitions)
            owners = image.shards.get(kind, ())
            moved = assign(owners, live, shard_count) or self._evened(kind, owners, live, now)
            if moved:
                shards_changed[kind] = moved
        if not gone and not shards_changed:
            return None
        return Change(ClusterDelta(coordinators_gone=gone, shards_changed=shards_changed))

    def _evened(self, kind: str, owners: Owners, live: set[int], now: InstantMs) -> Owners:
        if not needs_rebalancing(owners, live):
            self._move_at.pop(kind, None)
            return ()
        if now < self._move_at.get(kind, now):
            return ()
        self._move_at[kind] = InstantMs(now + self._move_interval_ms)
        return rebalance(owners, live, self._moves_max)

    # -- streams

    def stream_lost(self, coordinator_epoch: int, now: InstantMs) -> None:
        """Note that a coordinator's feed stream broke."""
        self._streams.discard(coordinator_epoch)
        self._streams_lost.setdefault(coordinator_epoch, now)

    def stream_regained(self, coordinator_epoch: int) -> None:
        """Note that a coordinator has a feed stream, again or for the first time."""
        self._streams_lost.pop(coordinator_epoch, None)
        self._streams.add(coordinator_epoch)

    def to_fence(
        self, image: ClusterImage, now: InstantMs, *, may_fence: bool
    ) -> list[CoordinatorImage]:
        """Return, once, the coordinators to fence because their stream has been lost for long, and
        from time to time those that never had one.
        """
        registered = {one.coordinator_epoch for one in image.coordinators.values()}
        self._streams &= registered
        heard = self._streams | self._streams_lost.keys() if may_fence else registered
        self._deaf.see(map(BrokerEpoch, registered - heard), now)
        if not may_fence:
            return []
        due: set[int] = {
            one for one, since in self._streams_lost.items() if now - since >= self._fence_ms
        }
        for one in due:
            del self._streams_lost[one]
        due |= self._deaf.take_due(now)
        return [one for one in image.coordinators.values() if one.coordinator_epoch in due]

    def next_deadline(self, *, may_fence: bool) -> InstantMs | None:
        """Return when a coordinator is to be fenced, or shards may move again."""
        dues: list[int] = list(self._move_at.values())
        if may_fence:
            dues += [since + self._fence_ms for since in self._streams_lost.values()]
            deaf = self._deaf.next_deadline()
            dues += [] if deaf is None else [deaf]
        return InstantMs(min(dues)) if dues else None


# -- requests


def decide_register_coordinator(
    cluster: Cluster, request: RegisterCoordinator, listing: CoordinatorListing
) -> tuple[Change | None, CoordinatorRegistered]:
    """Register a replica under its new epoch. It owns the shards of an earlier process of its id,
    under higher owner epochs. Raises TidemarkError.
    """
    image, coordinator = cluster.image, request.coordinator
    for problem in _problems(image, request, listing):
        raise problem
    registered = CoordinatorRegistered(coordinator.coordinator_epoch, image.cluster_id)
    last = image.coordinators.get(coordinator.key)
    if last == coordinator:
        return None, registered  # a repetition, because the first answer was lost
    shards_changed = {}
    if last is not None and last.incarnation_id != coordinator.incarnation_id:
        kind, number = coordinator.key
        inherited = of_coordinator(image.shards.get(kind, ()), number)
        if inherited:
            shards_changed[kind] = tuple(given_to(one, number) for one in inherited)
    delta = ClusterDelta(coordinators_changed=(coordinator,), shards_changed=shards_changed)
    return Change(delta), registered


def decide_acquire_shard(
    cluster: Cluster, request: AcquireShard
) -> tuple[Change | None, ShardAcquired]:
    """Raise the owner epoch of a shard for its owner. Raises TidemarkError NOT_COORDINATOR for any
    other coordinator.
    """
    kind, number, incarnation_id = request.coordinator
    owners = cluster.image.shards.get(kind, ())
    registered = cluster.image.coordinators.get((kind, number))
    owner = owners[request.shard] if 0 <= request.shard < len(owners) else None
    if owner is None or owner.coordinator_id != number:
        held_by = "nobody" if owner is None or owner.coordinator_id < 0 else owner.coordinator_id
        raise TidemarkError(
            ErrorCode.NOT_COORDINATOR,
            f"{kind} shard {request.shard} belongs to {held_by}, not to coordinator {number}",
        )
    if registered is None or registered.incarnation_id != incarnation_id:
        raise TidemarkError(
            ErrorCode.NOT_COORDINATOR,
            f"{kind} shard {request.shard} belongs to another process of coordinator {number}",
        )
    raised = given_to(owner, number)
    change = Change(ClusterDelta(shards_changed={kind: (raised,)}))
    return change, ShardAcquired(raised.owner_epoch)


def _problems(
    image: ClusterImage, request: RegisterCoordinator, listing: CoordinatorListing
) -> Iterator[TidemarkError]:
    one = request.coordinator
    name = f"{one.kind} coordinator {one.coordinator_id}"
    if request.cluster_id not in ("", image.cluster_id):
        yield TidemarkError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"{name} belongs to cluster {request.cluster_id}, this is cluster {image.cluster_id}",
        )
    malformed = _malformed(one)
    if malformed:
        yield TidemarkError(ErrorCode.INVALID_REGISTRATION, malformed)
    if one.coordinator_epoch == _NO_ZNODE or not listing.has(one):
        yield TidemarkError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"{name} has no live znode for incarnation {one.incarnation_id.hex()}:"
            " it must create one before it registers",
        )
    known = image.coordinators.get(one.key)
    if known is not None and known.incarnation_id != one.incarnation_id and listing.has(known):
        yield TidemarkError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another {name} is registered: incarnation {known.incarnation_id.hex()}, at"
            f" {known.grpc_endpoint}, whose ZooKeeper session is alive",
        )


def _malformed(one: CoordinatorImage) -> str:
    if one.kind not in COORDINATOR_KINDS:
        kinds = ", ".join(COORDINATOR_KINDS)
        return f"there are no coordinators of kind {one.kind!r}, only: {kinds}"
    if one.coordinator_id < 0:
        return f"a coordinator id must not be negative, this one is {one.coordinator_id}"
    if not one.grpc_endpoint or not one.incarnation_id:
        return f"{one.kind} coordinator {one.coordinator_id} has no gRPC endpoint"
    return ""
