"""A thread that looks at the cluster all the time, and counts what it sees change."""

import threading
from collections.abc import Callable
from typing import Final

from chaos.cluster import BROKERS, ChaosCluster
from chaos.counting import Elections, Epochs, Owners, Sessions
from chaos.sessions import Onlooker
from chaos.topics import NAMES, OFFSETS_PARTITIONS
from tidemark.cli.dev.layout import SHARE_COORDINATOR, TXN_COORDINATOR

LOOK_S: Final = 0.25

Say = Callable[[str], None]


class Watcher:
    """Leader epochs from every broker's metadata; controller epoch, sessions and owners of shards
    from ZooKeeper.
    """

    def __init__(self, cluster: ChaosCluster, onlooker: Onlooker, say: Say) -> None:
        self._cluster, self._onlooker, self._say = cluster, onlooker, say
        self._stop = threading.Event()
        self.elections = Elections()
        self.epochs = Epochs()
        self.sessions = Sessions()
        self.owners = Owners()
        self.group_moves = 0
        """Elections of a group coordinator: of a leader of __consumer_offsets."""

    def stop(self) -> None:
        """``run`` then ends."""
        self._stop.set()

    def run(self) -> None:
        """Look until stopped."""
        while not self._stop.wait(LOOK_S):
            self._look_at_leaders()
            self._look_at_zookeeper()

    def _look_at_leaders(self) -> None:
        elected = []
        for broker in range(1, BROKERS + 1):
            name = f"broker-{broker}"
            if name in self._cluster.down or name in self._cluster.paused:
                continue
            for partition, one in self._cluster.partitions(broker, NAMES).items():
                if self.elections.see(partition, one.leader_id, one.leader_epoch):
                    self.group_moves += partition in OFFSETS_PARTITIONS
                    elected.append(f"{partition} -> {one.leader_id} (e{one.leader_epoch})")
        if elected:
            self._say("elected " + ", ".join(sorted(elected)))

    def _look_at_zookeeper(self) -> None:
        if "zookeeper" in self._cluster.down:
            return
        epoch = self._onlooker.controller_epoch()
        if epoch is not None and self.epochs.see(epoch):
            self._say(f"controller epoch {epoch}")
        sessions = {
            "broker": self._onlooker.broker_sessions(),
            TXN_COORDINATOR: self._onlooker.coordinator_sessions(),
            SHARE_COORDINATOR: self._onlooker.share_coordinator_sessions(),
        }
        for kind, of_kind in sessions.items():
            for incarnation, session in of_kind.items():
                if self.sessions.see(f"{kind}-{incarnation}", session):
                    self._say(f"{kind}-{incarnation.partition('-')[0]} has a new session")
        for shard, owner in enumerate(self._onlooker.shard_owners()):
            if self.owners.see(shard, owner):
                self._say(f"transaction shard {shard} came to {TXN_COORDINATOR}-{owner}")
