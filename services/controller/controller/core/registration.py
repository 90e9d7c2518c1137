"""Deciding on a broker that registers: whether it may, and what it still has of what it had."""

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
    cluster: Cluster, asked: RegisterBroker, listing: LiveListing
) -> tuple[Change | None, Registered]:
    """Unfence a broker under its new epoch. Where it led it leads in the next leader epoch; ISR and
    ELR it leaves where it has not kept what it had.
    """
    image, broker = cluster.image, asked.broker
    known = image.brokers.get(broker.broker_id)
    problem = _problem(image, asked, listing)
    if problem is not None:
        raise problem
    registered = Registered(broker.broker_epoch, image.cluster_id)
    is_repeated = known == broker  # asked again, for want of our answer
    holdings = _holdings(known, asked)
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


def _holdings(known: BrokerImage | None, asked: RegisterBroker) -> Holdings:
    if known is None:
        return Holdings(None, nothing_kept=False, directory_gone=False)
    if asked.held is None:
        kept = has_kept_its_disks(known, asked)
        return Holdings(None, nothing_kept=not kept, directory_gone=False)
    before, now = set(known.log_dir_ids), set(asked.broker.log_dir_ids)
    # A log in another directory may be one of long ago: of a disk that was put back, for example.
    all_others = bool(before) and before.isdisjoint(now)
    return Holdings(
        asked.held,
        nothing_kept=all_others or not has_kept_its_page_cache(known, asked),
        directory_gone=not before <= now,
    )


def has_kept_its_disks(known: BrokerImage, asked: RegisterBroker) -> bool:
    """Whether all that it acknowledged is still there, of a broker that does not name its logs: the
    same directories, with all that was in the page cache.
    """
    broker = asked.broker
    same = not known.log_dir_ids or set(known.log_dir_ids) == set(broker.log_dir_ids)
    is_same_process = known.incarnation_id == broker.incarnation_id
    return is_same_process or (same and has_kept_its_page_cache(known, asked))


def has_kept_its_page_cache(known: BrokerImage, asked: RegisterBroker) -> bool:
    """Whether what was written is there or on disk: the same kernel, whose page cache survives any
    end of a process, or a stop in order.
    """
    broker = asked.broker
    if known.incarnation_id == broker.incarnation_id:
        return True
    in_order = asked.clean_stop and asked.previous_broker_epoch == known.broker_epoch
    return in_order or not known.boot_id or known.boot_id == broker.boot_id


def check_predecessor(known: BrokerImage | None, broker: BrokerImage, lease_left_ms: int) -> None:
    """Raises TidemarkError DUPLICATE_BROKER_REGISTRATION, to be tried again, while another process
    of the broker id may hold its lease. One that shares a log directory has locked it: the other
    one has ended.
    """
    if known is None or lease_left_ms <= 0 or known.incarnation_id == broker.incarnation_id:
        return
    if not known.log_dir_ids or set(known.log_dir_ids) & set(broker.log_dir_ids):
        return
    raise TidemarkError(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        f"Broker {broker.broker_id} was last registered by incarnation"
        f" {known.incarnation_id.hex()}, with other log directories; that process may be alive and"
        f" hold its lease for {lease_left_ms} ms more: register again then",
    )


def _problem(
    image: ClusterImage, asked: RegisterBroker, listing: LiveListing
) -> TidemarkError | None:
    broker = asked.broker
    if asked.cluster_id not in ("", image.cluster_id):
        return TidemarkError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the disks of broker {broker.broker_id} belong to cluster {asked.cluster_id},"
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
    known = image.brokers.get(broker.broker_id)
    return None if known is None else _outlived(known, broker, listing)


def _outlived(
    known: BrokerImage, broker: BrokerImage, listing: LiveListing
) -> TidemarkError | None:
    """Return why the registered process keeps the broker id; None: the other one may have it."""
    if (
        not known.fenced
        and incarnation_of(known) in listing.live
        and known.incarnation_id != broker.incarnation_id
    ):
        return TidemarkError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker is registered with id {broker.broker_id}: incarnation"
            f" {known.incarnation_id.hex()}, whose ZooKeeper session is alive",
        )
    if broker.broker_epoch < known.broker_epoch:
        # Leaders refuse fetches of an older epoch than they have seen: epochs never fall.
        return TidemarkError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker.broker_id} was registered with epoch {known.broker_epoch}; the live"
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
