"""Kafka's APIs beside Tidemark's, for the page compatibility.md.

``kafka_apis.tsv`` has keys, names and versions of Kafka 4.3; which of them a broker serves is seen
in its code. For each that it does not serve, ``ABSENT`` says why.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tidemark.kafka.apis import APIS, INTERNAL_APIS, ApiKey

DATA: Final = Path(__file__).with_suffix(".tsv")
_REMOVED: Final = "Kafka 4 does not have it either"
_BETWEEN: Final = "between processes of Kafka; ours speak gRPC"
_NO_RAFT: Final = "there is no Raft quorum: controllers are elected in ZooKeeper"
_NO_TOKENS: Final = "there are no delegation tokens (KIP-48)"
_NO_STREAMS: Final = "there are no streams groups (KIP-1071); Streams uses classic groups"

ABSENT: Final[Mapping[str, str]] = {
    **dict.fromkeys(("LeaderAndIsr", "StopReplica", "UpdateMetadata"), _REMOVED),
    "ControlledShutdown": _REMOVED,
    **dict.fromkeys(("DescribeAcls", "CreateAcls", "DeleteAcls"), "there are no ACLs yet"),
    **dict.fromkeys(("CreateDelegationToken", "RenewDelegationToken"), _NO_TOKENS),
    **dict.fromkeys(("ExpireDelegationToken", "DescribeDelegationToken"), _NO_TOKENS),
    **dict.fromkeys(("DescribeClientQuotas", "AlterClientQuotas"), "there are no quotas yet"),
    **dict.fromkeys(("Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot"), _NO_RAFT),
    **dict.fromkeys(("AddRaftVoter", "RemoveRaftVoter", "UpdateRaftVoter"), _NO_RAFT),
    **dict.fromkeys(("AlterPartition", "Envelope", "BrokerRegistration"), _BETWEEN),
    **dict.fromkeys(("BrokerHeartbeat", "AllocateProducerIds", "AssignReplicasToDirs"), _BETWEEN),
    "ControllerRegistration": _BETWEEN,
    **dict.fromkeys(("StreamsGroupHeartbeat", "StreamsGroupDescribe"), _NO_STREAMS),
}
"""Reasons by name. A reason of an API that is served meanwhile is not shown."""


class KafkaApi(NamedTuple):
    """One API of Kafka, and its versions there; ``version_max`` -1: removed."""

    key: int
    name: str
    version_min: int
    version_max: int


def kafka_apis() -> list[KafkaApi]:
    """Return the APIs of Kafka 4.3, by key."""
    found = []
    for line in DATA.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            key, name, low, high, _ = line.split("\t")
            found.append(KafkaApi(int(key), name, int(low), int(high)))
    return found


def api_rows(served: Collection[ApiKey]) -> Iterator[tuple[str, ...]]:
    """Yield key, name, Kafka's versions, ours, and the reason for what is not there."""
    served_keys = {int(key) for key in served}
    for api in kafka_apis():
        kafkas = _versions(api.version_min, api.version_max)
        head = (str(api.key), api.name, kafkas)
        if api.key not in served_keys:
            yield *head, "", _why_absent(api)
            continue
        ours = APIS[ApiKey(api.key)]
        less = "" if ours.max >= api.version_max else f"not version {api.version_max}"
        yield *head, _versions(ours.served_min, ours.max), less


def _why_absent(api: KafkaApi) -> str:
    """Raises LookupError if ABSENT has no reason."""
    if api.key in {int(key) for key in INTERNAL_APIS}:
        return "between brokers and share-coordinators, over gRPC"
    if api.name not in ABSENT:
        raise LookupError(f"tools/kafka_apis.py does not say why {api.name} is not served")
    return ABSENT[api.name]


def _versions(low: int, high: int) -> str:
    if high < 0:
        return "none"
    return str(low) if low == high else f"{low} to {high}"
