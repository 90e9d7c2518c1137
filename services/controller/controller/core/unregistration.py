"""Unregistration of brokers that will not return: which may go, and what goes with them
(ADR 0023).
"""

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import BrokerImage, ClusterDelta, ClusterImage

from controller.core.cluster import Change
from controller.core.liveness import LiveListing

_NAMES_SHOWN_MAX = 5


def decide_unregistration(
    image: ClusterImage, broker_id: BrokerId, listing: LiveListing, *, lease_left_ms: int
) -> Change:
    """Remove a broker's registration and its dynamic configuration. Raises TidemarkError for a
    broker that may be alive, or that has replicas.

    ``lease_left_ms`` is how long its last process may still acknowledge writes as a leader: a
    partition may have left that broker, and wait for the end of the lease before another leads it.
    """
    check_unregistration(image, broker_id)
    if any(one.broker_id == broker_id for one in listing.live):
        raise _is_alive(broker_id)
    if lease_left_ms > 0:
        raise TidemarkError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"broker {broker_id} may hold its lease for {lease_left_ms} ms more; try again then",
        )
    name = str(broker_id)
    configs = {name: dict[str, str]()} if name in image.broker_configs else {}
    return Change(ClusterDelta(brokers_gone=(broker_id,), broker_configs_changed=configs))


def check_unregistration(image: ClusterImage, broker_id: BrokerId) -> BrokerImage:
    """Return the broker, unless the metadata show that it has to stay. Raises TidemarkError."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise TidemarkError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered"
        )
    if not broker.fenced:
        raise _is_alive(broker_id)
    held = [
        f"{topic.name}-{one.partition}"
        for topic in image.topics.values()
        for one in topic.partitions
        if broker_id in one.replicas
    ]
    if held:
        more = " and others" if len(held) > _NAMES_SHOWN_MAX else ""
        raise TidemarkError(
            ErrorCode.POLICY_VIOLATION,
            f"broker {broker_id} has {len(held)} replicas ({', '.join(held[:_NAMES_SHOWN_MAX])}"
            f"{more}); move them to other brokers first: tidemark cluster reassign plan"
            f" --remove-broker {broker_id}, or :decommission over REST",
        )
    return broker


def _is_alive(broker_id: BrokerId) -> TidemarkError:
    return TidemarkError(
        ErrorCode.POLICY_VIOLATION,
        f"broker {broker_id} is alive, and would register again; stop it first",
    )
