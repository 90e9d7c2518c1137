"""Registration of brokers: admission, and the consequences for replicas that were not kept."""

from dataclasses import replace

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import NO_BROKER, BrokerEpoch, PartitionEpoch, TopicId
from tidemark.model.metadata import BrokerImage, ClusterDelta, ClusterImage, PartitionImage

from controller.core.cluster import Change, Cluster, with_partitions
from controller.core.effects import Registered
from controller.core.election_rules import elect
from controller.core.elections import availability_of
from controller.core.inputs import RegisterBroker
from controller.core.liveness import LiveListing, incarnation_of
from controller.core.soundness import Holdings, without_unsound
from controller.core.topic_rules import rules_of

_NO_ZNODE = BrokerEpoch(-1)


def decide_registration(
    cluster: Cluster, request: RegisterBroker, listing: LiveListing
) -> tuple[Change | None, Registered]:
    """Unfence a broker under its new epoch. It leads its partitions in the next leader epoch, and
    leaves ISR and ELR of partitions whose log it has not kept.
    """
    image, broker = cluster.image, request.broker
    last = image.brokers.get(broker.broker_id)
    problem = _problem(image, request, listing)
    if problem is not None:
        raise problem
    registered = Registered(broker.broker_epoch, image.cluster_id)
    is_repeated = last == broker  # the first answer was lost
    holdings = _holdings(last, request)
    joined = replace(image, brokers={**image.brokers, broker.broker_id: broker})
    restarted = NO_BROKER if is_repeated else broker.broker_id
    availability = availability_of(joined, frozenset(), restarted=restarted)
    drafts: dict[TopicId, dict[int, PartitionImage]] = {}
    for topic in image.topics.values():
        for partition in topic.partitions:
            if broker.broker_id not in partition.replicas:
                continue
            rules = rules_of(image, topic)
            soundness = holdings.soundness(topic, partition)
            after = without_unsound(
                partition, broker.broker_id, soundness, availability=availability, rules=rules
            )
            if after.leader == broker.broker_id:
                after = elect(after, availability, rules)
            if after is not partition:
                epoch = PartitionEpoch(partition.partition_epoch + 1)
                after = replace(after, partition_epoch=max(epoch, after.partition_epoch))
                drafts.setdefault(topic.topic_id, {})[partition.partition] = after
    if is_repeated and not drafts:
        return None, registered
    delta = ClusterDelta(brokers_changed=(broker,), topics_changed=with_partitions(image, drafts))
    return Change(delta), registered


def _holdings(last: BrokerImage | None, request: RegisterBroker) -> Holdings:
    if last is None:
        return Holdings(None, nothing_kept=False, directory_gone=False)
    if request.held is None:
        kept = has_kept_its_disks(last, request)
        return Holdings(None, nothing_kept=not kept, directory_gone=False)
    before, now = set(last.log_dir_ids), set(request.broker.log_dir_ids)
    # A log in another directory may be outdated: an old disk that was put back, for example.
    all_others = bool(before) and before.isdisjoint(now)
    return Holdings(
        request.held,
        nothing_kept=all_others or not has_kept_its_page_cache(last, request),
        directory_gone=not before <= now,
        new_directories=frozenset(now - before if before else ()),
    )


def has_kept_its_disks(last: BrokerImage, request: RegisterBroker) -> bool:
    """True if a broker that does not list its logs has all records that it acknowledged: it has the
    same log directories, with all that was in the page cache.
    """
    broker = request.broker
    same = not last.log_dir_ids or set(last.log_dir_ids) == set(broker.log_dir_ids)
    is_same_process = last.incarnation_id == broker.incarnation_id
    return is_same_process or (same and has_kept_its_page_cache(last, request))


def has_kept_its_page_cache(last: BrokerImage, request: RegisterBroker) -> bool:
    """True if all written records are in the page cache or on disk: after a clean stop, or under
    the same kernel, whose page cache survives any end of a process.
    """
    broker = request.broker
    if last.incarnation_id == broker.incarnation_id:
        return True
    in_order = request.clean_stop and request.previous_broker_epoch == last.broker_epoch
    return in_order or not last.boot_id or last.boot_id == broker.boot_id


def check_predecessor(last: BrokerImage | None, broker: BrokerImage, lease_left_ms: int) -> None:
    """Raise TidemarkError DUPLICATE_BROKER_REGISTRATION, which is retried, while another process of
    the broker id may hold its lease. A broker that shares a log directory with that process has
    locked it, so the process has ended.
    """
    if last is None or lease_left_ms <= 0 or last.incarnation_id == broker.incarnation_id:
        return
    if not last.log_dir_ids or set(last.log_dir_ids) & set(broker.log_dir_ids):
        return
    raise TidemarkError(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        f"Broker {broker.broker_id} was last registered by incarnation"
        f" {last.incarnation_id.hex()}, with other log directories; that process may be alive and"
        f" hold its lease for {lease_left_ms} ms more: register again then",
    )


def _problem(
    image: ClusterImage, request: RegisterBroker, listing: LiveListing
) -> TidemarkError | None:
    broker = request.broker
    if request.cluster_id not in ("", image.cluster_id):
        return TidemarkError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the disks of broker {broker.broker_id} belong to cluster {request.cluster_id},"
            f" this is cluster {image.cluster_id}",
        )
    malformed = _malformed(broker)
    if malformed is not None:
        return TidemarkError(ErrorCode.INVALID_REGISTRATION, malformed)
    if broker.broker_epoch == _NO_ZNODE or incarnation_of(broker) not in listing.live:
        return TidemarkError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"broker {broker.broker_id} has no live znode for incarnation"
            f" {broker.incarnation_id.hex()}: it must create one before it registers",
        )
    last = image.brokers.get(broker.broker_id)
    return None if last is None else _outlived(last, broker, listing)


def _outlived(last: BrokerImage, broker: BrokerImage, listing: LiveListing) -> TidemarkError | None:
    """Return why the registered process keeps the broker id; None: the other one may have it."""
    if (
        not last.fenced
        and incarnation_of(last) in listing.live
        and last.incarnation_id != broker.incarnation_id
    ):
        return TidemarkError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker is registered with id {broker.broker_id}: incarnation"
            f" {last.incarnation_id.hex()}, whose ZooKeeper session is alive",
        )
    if broker.broker_epoch < last.broker_epoch:
        # Leaders refuse fetches of an older epoch than they have seen, so epochs must not fall.
        return TidemarkError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker.broker_id} was registered with epoch {last.broker_epoch}; the live"
            f" znode of incarnation {broker.incarnation_id.hex()} has epoch {broker.broker_epoch},"
            " and must be made again",
        )
    return None


def _malformed(broker: BrokerImage) -> str | None:
    listeners = [point.listener for point in broker.endpoints]
    if broker.broker_id < 0:
        return f"a broker id must not be negative, this one is {broker.broker_id}"
    if not listeners:
        return f"broker {broker.broker_id} advertises no listener"
    if len(set(listeners)) != len(listeners):
        return f"broker {broker.broker_id} advertises a listener twice: {', '.join(listeners)}"
    if broker.fenced:
        return f"broker {broker.broker_id} cannot register as fenced"
    return None
