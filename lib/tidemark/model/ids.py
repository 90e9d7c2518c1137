"""Types of numbers that must not be confused.

Offsets and watermarks named ``*_end`` or ``high_watermark`` are exclusive, ``last_*_offset`` is
inclusive.
"""

from typing import TYPE_CHECKING, Final, NewType

if TYPE_CHECKING:

    class Offset(int):
        """For the type checker: an offset and a number of records make an offset."""

        def __add__(self, other: int, /) -> "Offset": ...

else:
    Offset = NewType("Offset", int)
"""Position of a record in a partition, from 0; int64."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Epoch of a partition's leader, raised by the controller at every change of leader; int32."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""Epoch of a partition's state, raised by the controller at every change of it; int32."""

BrokerId = NewType("BrokerId", int)
BrokerEpoch = NewType("BrokerEpoch", int)
"""Epoch of a broker's registration; int64, given by the controller, increasing in the cluster."""

ControllerId = NewType("ControllerId", int)
ControllerEpoch = NewType("ControllerEpoch", int)

ProducerId = NewType("ProducerId", int)
"""Id of a producer session (KIP-98), never used again; int64."""

ProducerEpoch = NewType("ProducerEpoch", int)
"""Epoch of a producer id; int16. Older epochs of the same producer id are fenced."""

TopicId = NewType("TopicId", bytes)
"""Identity of a topic: 16 bytes of a UUID. A recreated topic has a new one."""

InstantMs = NewType("InstantMs", int)
"""Monotonic time in milliseconds, for intervals and deadlines only."""

WallMs = NewType("WallMs", int)
"""Milliseconds since 1970, UTC, as in timestamps of records."""

NO_OFFSET: Final = Offset(-1)
NO_EPOCH: Final = LeaderEpoch(-1)
NO_CONTROLLER: Final = ControllerId(-1)
NO_BROKER: Final = BrokerId(-1)
NO_PRODUCER: Final = ProducerId(-1)
NO_TOPIC_ID: Final = TopicId(bytes(16))
