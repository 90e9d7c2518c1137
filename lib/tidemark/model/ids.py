"""Numbers that must not be confused, each a type of its own.

Offsets and watermarks named ``*_end`` or ``high_watermark`` are exclusive, ``last_*_offset`` is
inclusive.
"""

from typing import Final, NewType

Offset = NewType("Offset", int)
"""Position of a record in a partition, from 0; int64."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Raised by the controller at every change of a partition's leader; int32."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""Raised by the controller at every change of a partition's state; int32."""

BrokerId = NewType("BrokerId", int)
BrokerEpoch = NewType("BrokerEpoch", int)
"""Given by the controller at each registration of a broker; int64, increasing over the cluster."""

ControllerId = NewType("ControllerId", int)
ControllerEpoch = NewType("ControllerEpoch", int)

ProducerId = NewType("ProducerId", int)
"""Unique for each producer session (KIP-98); int64."""

ProducerEpoch = NewType("ProducerEpoch", int)
"""int16; an older one of the same producer id is fenced."""

Sequence = NewType("Sequence", int)
"""Number of a record within (producer id, partition); int32, wraps to 0 after 2**31 - 1."""

TopicId = NewType("TopicId", bytes)
"""A topic's identity: 16 bytes of a UUID. A recreated topic has another."""

InstantMs = NewType("InstantMs", int)
"""A monotonic instant, for intervals and deadlines only."""

WallMs = NewType("WallMs", int)
"""Milliseconds since 1970, UTC: what timestamps of records are made of."""

NO_OFFSET: Final = Offset(-1)
NO_EPOCH: Final = LeaderEpoch(-1)
NO_CONTROLLER: Final = ControllerId(-1)
NO_BROKER: Final = BrokerId(-1)
NO_PRODUCER: Final = ProducerId(-1)
NO_TOPIC_ID: Final = TopicId(bytes(16))
