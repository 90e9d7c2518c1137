"""Registration: the broker epoch that the controller gave this broker. Only Membership sets it."""

from tidemark.model.ids import BrokerId


class Registration:
    """Id and epoch of one broker. The epoch is -1 until the controller has answered."""

    __slots__ = ("broker_epoch", "broker_id")

    def __init__(self, broker_id: BrokerId) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1

    def current(self) -> tuple[int, int]:
        """Return broker id and broker epoch."""
        return self.broker_id, self.broker_epoch
