"""One controller replica: stands for election, and drives the machine while it is active.

The machine is stepped on the event loop, one input at a time, and its effects are performed before
the next input. The outcome of a slow effect (writing the store) comes back as an input. The machine
bounds the requests that wait.
"""

import asyncio
import itertools
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Final, TypeVar

from tidemark.model.authorization import Authorizer
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerEpoch, ControllerId, InstantMs
from tidemark.model.metadata import (
    COORDINATOR_KINDS,
    BrokerImage,
    ClusterImage,
    CoordinatorImage,
    FeedPosition,
)
from tidemark.runtime import supervised, zk_paths
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.inbox import Inbox
from tidemark.runtime.service import ServiceError
from tidemark.runtime.telemetry import fields
from tidemark.runtime.zk_session import OnChange, SessionState, ZkError, ZkSession

from controller.config import ControllerConfig
from controller.core.constants import Constants, agreed
from controller.core.controller import FAULT, NO_SUBSCRIBERS, Role
from controller.core.effects import (
    CloseFeed,
    Effect,
    NoteFault,
    OpenFeed,
    Publish,
    RemoveCoordinatorZnode,
    RemoveLiveZnode,
    Reply,
    Resign,
    WriteStore,
)
from controller.core.inputs import (
    Deposed,
    Elected,
    Faulted,
    FeedAcknowledged,
    FeedLost,
    FeedRegained,
    Input,
    LiveBrokersChanged,
    LiveCoordinatorsChanged,
    Request,
    RequestHeader,
    StoreFailed,
    StoreWritten,
    Tick,
)
from controller.core.liveness import CoordinatorListing, LiveListing
from controller.shell.audit import Audit
from controller.shell.changes import ElectionStats, report
from controller.shell.live_znodes import LiveZnodes
from controller.shell.machine import new_machine
from controller.shell.metadata_feed import FeedLimits, MetadataFeed
from controller.shell.zk_election import Term, ZkElection
from controller.shell.zk_store import OPS_MAX, ZkStore, load_constants

log = logging.getLogger(__name__)

_NO_ZNODE: Final = -1
_BEATS_PER_SILENCE: Final = 4

Listing = TypeVar("Listing", LiveListing, CoordinatorListing)


class ControllerNode:
    """Object graph of one replica, without its servers."""

    def __init__(
        self,
        config: ControllerConfig,
        session: ZkSession,
        clock: Clock,
        *,
        store_ops_max: int = OPS_MAX,
    ) -> None:
        """``store_ops_max`` bounds the operations of one ZooKeeper transaction."""
        self._config = config
        self._store_ops_max = store_ops_max
        self.controller_id = ControllerId(config.controller_id)
        self.authorizer = Authorizer()
        self.audit = Audit(config, clock)
        self.feed = MetadataFeed(
            FeedLimits(config.feed_updates_queued_max, config.feed_subscribers_max), self
        )
        self.stats = ElectionStats()
        self.election = ZkElection(session, self.controller_id)
        self._machine = new_machine(config, store_ops_max)
        self._session = session
        self._clock = clock
        self._term: Term | None = None
        self._store: ZkStore | None = None
        self._live_znodes: LiveZnodes | None = None
        self._write_began: InstantMs | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writes: Inbox[WriteStore] = Inbox(inputs_max=1)
        self._request_ids = itertools.count(1)
        self._replies: dict[int, asyncio.Future[Reply]] = {}
        self.active = asyncio.Event()
        """Set while this replica is the active controller and its feed is open."""
        self.standby = asyncio.Event()
        """Set while it is not."""
        self.standby.set()
        self._draining = False
        self._broken: asyncio.Future[None] | None = None

    # -- state

    @property
    def is_active(self) -> bool:
        """True if this replica is the active controller."""
        return self._machine.role is Role.ACTIVE

    @property
    def image(self) -> ClusterImage | None:
        """All metadata, on the active replica."""
        return self._machine.image

    @property
    def hint(self) -> str:
        """gRPC endpoint of the active controller; '' while none is known."""
        active = self.election.active
        return "" if active is None else active.grpc_endpoint

    def problem(self) -> str | None:
        """Return why this replica is not ready; None if it is active, or another one is."""
        if self._session.state is not SessionState.CONNECTED:
            return f"no ZooKeeper session at {self._session.connect}"
        if self.is_active or (self.election.active is not None and self._term is None):
            return None
        return "no controller is active yet"

    # -- the driver

    async def run(self, stop: asyncio.Event) -> None:
        """Stand for election again and again until stopped; then resign.

        Raises the error for which a term could not be ended: the process is of no use then.
        """
        self._broken = asyncio.get_running_loop().create_future()
        async with asyncio.TaskGroup() as tasks:
            terms = tasks.create_task(self._serve_terms(), name="terms")
            broken = tasks.create_task(_wait(self._broken), name="broken")
            await stop.wait()
            broken.cancel()
            self._draining = True
            if self._term is None:
                terms.cancel()
            else:
                self._term.end("this replica is stopping")

    async def _serve_terms(self) -> None:
        while not self._draining:
            await self._check_constants()
            term = await self.election.campaign()
            self._term = term
            supervised.announce(self.election.znodes(term))
            self._store = store = ZkStore(
                self._session, term.epoch_version, ops_max=self._store_ops_max
            )
            self._live_znodes = removals = LiveZnodes(self._session, store)
            log.info("elected", extra=fields(controller_epoch=term.controller_epoch))
            try:
                await self._serve(term, store, removals)
            finally:
                self._term = self._store = self._live_znodes = None
                self._stop_timer()
            await self.election.resign(term)
            if await term.wait_ended() in (NO_SUBSCRIBERS, FAULT) and not self._draining:
                await asyncio.sleep(self._config.lease_ms / 1_000)  # another one may be elected

    async def _check_constants(self) -> None:
        """Raise ServiceError if this replica could not become active, before it has to."""
        try:
            await self._session.wait_connected()
            stored = await load_constants(self._session)
        except ZkError as error:
            log.info("constants not read", extra=fields(reason=str(error)))
        else:
            _agreed(stored, self._config)

    async def _serve(self, term: Term, store: ZkStore, removals: LiveZnodes) -> None:
        """Run one term, from loading the state to its end."""
        async with asyncio.TaskGroup() as tasks:
            duties = [
                tasks.create_task(self.election.watch(term), name="watch-term"),
                tasks.create_task(self._lead(term, store), name="lead"),
                tasks.create_task(self._write(term, store), name="write-store"),
                tasks.create_task(removals.run(term), name="remove-live-znodes"),
                tasks.create_task(self._beat(), name="feed-heartbeats"),
            ]
            reason = await term.wait_ended()
            log.warning(
                "deposed", extra=fields(controller_epoch=term.controller_epoch, reason=reason)
            )
            if self.election.active is not None and self.is_active:
                self.election.active = None
            self.take(Deposed(reason))
            for duty in duties:
                duty.cancel()

    async def _lead(self, term: Term, store: ZkStore) -> None:
        """Load the state and become active. Then watch the live brokers and coordinators."""
        started_at = self._clock.now_ms()
        try:
            stored = await store.load()
            constants = _agreed(stored.constants, self._config)
            if constants != stored.constants:
                await store.write_constants(constants)
                log.info("constants written", extra=fields(**asdict(constants)))
            brokers_changed = asyncio.Event()
            listing = await store.live_brokers(brokers_changed.set)
            changed = {kind: asyncio.Event() for kind in COORDINATOR_KINDS}
            coordinators = [
                await store.live_coordinators(kind, changed[kind].set) for kind in changed
            ]
        except ZkError as error:
            term.end(f"loading the state failed: {error}")
            return
        if term.over:
            return
        log.info(
            "state loaded",
            extra=fields(
                topics=len(stored.topics),
                partitions=sum(len(topic.partitions) for topic in stored.topics),
                brokers=len(stored.brokers),
                took_ms=self._clock.now_ms() - started_at,
            ),
        )
        epoch, all_kinds = term.controller_epoch, tuple(coordinators)
        stored = replace(stored, constants=constants)
        self.take(Elected(self.controller_id, epoch, stored, listing, all_kinds))

        async def read_brokers(on_change: OnChange) -> None:
            self.take(LiveBrokersChanged(await store.live_brokers(on_change)))

        async def read_coordinators(kind: str, on_change: OnChange) -> None:
            self.take(LiveCoordinatorsChanged(await store.live_coordinators(kind, on_change)))

        async with asyncio.TaskGroup() as watches:
            watches.create_task(self._watch(term, brokers_changed, read_brokers))
            for kind, event in changed.items():
                watches.create_task(self._watch(term, event, partial(read_coordinators, kind)))

    async def _watch(
        self, term: Term, changed: asyncio.Event, read: Callable[[OnChange], Awaitable[None]]
    ) -> None:
        """Call ``read`` whenever the znode that it read last has changed."""
        while not term.over:
            await changed.wait()
            changed = asyncio.Event()
            try:
                await read(changed.set)
            except ZkError:
                changed.set()  # the connection broke: read again when it is back
                await self._session.wait_connected()

    async def _write(self, term: Term, store: ZkStore) -> None:
        while True:
            write = await self._writes.get()
            try:
                await store.write(write.ops)
            except ZkError as error:
                self.take(StoreFailed(write.write_id, f"writing the state failed: {error}"))
                term.end(str(error))
                return
            except Exception as fault:  # noqa: BLE001 - a bug: the next term finds out what is written
                self.take(StoreFailed(write.write_id, FAULT, fault))
                return
            self.take(StoreWritten(write.write_id))

    async def _beat(self) -> None:
        """Send heartbeats. A stream without an answer within a session's timeout counts as lost."""
        silent_ms = self._config.zookeeper_session_timeout_ms
        pause_ms = silent_ms // _BEATS_PER_SILENCE
        while True:
            before = self._clock.now_ms()
            await asyncio.sleep(pause_ms / 1_000)
            now = self._clock.now_ms()
            if now - before > 2 * pause_ms:
                self.feed.restart_heartbeats()
            self.feed.beat(now, silent_ms)

    def take(self, stimulus: Input) -> None:
        """Step the machine, and perform its effects in order."""
        log.debug("input", extra=fields(input=type(stimulus).__name__))
        effects = deque(self._machine.step(stimulus, self._clock.now_ms()))
        try:
            while effects:
                self._perform(effects[0])
                effects.popleft()
            self._set_timer()
        except Exception as bug:
            if isinstance(stimulus, Faulted):
                if self._broken is not None and not self._broken.done():
                    self._broken.set_exception(bug)
                raise
            unanswered = tuple(one.request_id for one in effects if isinstance(one, Reply))
            self.take(Faulted(bug, unanswered))

    def _set_timer(self) -> None:
        """Set the timer to the machine's next deadline."""
        self._stop_timer()
        now = self._clock.now_ms()
        deadline = self._machine.next_deadline(now)
        if deadline is not None:
            loop, wait_s = asyncio.get_running_loop(), max(0, deadline - now) / 1000
            self._timer = loop.call_later(wait_s, self.take, Tick())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- listener of the feed

    def acknowledged(self, broker_epoch: BrokerEpoch, position: FeedPosition) -> None:
        """Take news of a broker that has applied the feed up to ``position``."""
        self.take(FeedAcknowledged(broker_epoch, position))

    def lost(self, broker_epoch: BrokerEpoch) -> None:
        """Take news of a broker whose last stream broke."""
        self.take(FeedLost(broker_epoch))

    def regained(self, broker_epoch: BrokerEpoch) -> None:
        """Take news of a broker that has a stream again, or for the first time."""
        self.take(FeedRegained(broker_epoch))

    def _perform(self, effect: Effect) -> None:
        match effect:
            case WriteStore():
                accepted = self._writes.put_nowait(effect)
                assert accepted, "the machine has one write under way at a time"
                self._write_began = self._clock.now_ms()
            case RemoveLiveZnode() | RemoveCoordinatorZnode():
                self._remove_live(effect)
            case OpenFeed() | Publish() | CloseFeed():
                self._perform_on_feed(effect)
            case NoteFault():
                self._note_fault(effect)
            case Resign(reason):
                if self._term is not None:
                    self._term.end(reason)
            case Reply(request_id):
                reply = self._replies.get(request_id)
                if reply is not None and not reply.done():
                    reply.set_result(effect)
            case _:
                raise AssertionError(f"an effect nobody performs: {effect}")

    def _perform_on_feed(self, effect: OpenFeed | Publish | CloseFeed) -> None:
        match effect:
            case OpenFeed(image):
                self.feed.open(image)
                self.standby.clear()
                self.active.set()
            case Publish():
                self._publish(effect)
            case CloseFeed():
                self._writes.drain_nowait()
                self.active.clear()
                self.standby.set()
                self.feed.close(self.hint)

    def _note_fault(self, fault: NoteFault) -> None:
        self.stats.faults.value += 1
        log.error("internal error", exc_info=fault.error, extra=fields(where=fault.where))

    def _remove_live(self, effect: RemoveLiveZnode | RemoveCoordinatorZnode) -> None:
        assert self._live_znodes is not None, "only the active one fences"
        match effect:
            case RemoveLiveZnode(broker_id, incarnation_id):
                self._live_znodes.remove(zk_paths.LiveBroker(broker_id, incarnation_id))
            case RemoveCoordinatorZnode(kind, number, incarnation_id):
                self._live_znodes.remove(zk_paths.LiveCoordinator(kind, number, incarnation_id))

    def _publish(self, effect: Publish) -> None:
        before = self.feed.image
        self.feed.publish(effect.delta, effect.image)
        elected, unclean = report(before, effect.delta, effect.image)
        if elected and self._write_began is not None:
            self.stats.times_ms.observe(self._clock.now_ms() - self._write_began)
        self.stats.unclean.value += unclean

    async def ask(self, make: Callable[[RequestHeader], Request], timeout_ms: int) -> Reply:
        """Give the machine a request. Return its reply, after at most ``timeout_ms``."""
        now = self._clock.now_ms()
        header = RequestHeader(next(self._request_ids), InstantMs(now + timeout_ms))
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._replies[header.request_id] = answer
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                self.take(make(header))
                return await answer
        except TimeoutError:
            words = f"the controller did not finish within {timeout_ms} ms; it may still do so"
            return Reply(header.request_id, ErrorCode.REQUEST_TIMED_OUT, words)
        finally:
            del self._replies[header.request_id]

    def dice(self) -> int:
        """Return a random number for a decision."""
        return secrets.randbits(32)

    async def find_live(self, broker: BrokerImage) -> tuple[BrokerEpoch, LiveListing] | None:
        """Return the epoch that a broker's live znode gives it (-1: there is none), and a listing.

        Both are read after a sync, so not from a server that lags. None if this replica is not
        active, or cannot read.
        """
        store = self._store
        if store is None:
            return None
        live = zk_paths.LiveBroker(broker.broker_id, broker.incarnation_id)
        read = await self._read_live(zk_paths.LIVE_BROKERS, live, store.live_brokers)
        return None if read is None else (BrokerEpoch(read[0]), read[1])

    async def list_live(self) -> LiveListing | None:
        """Return the brokers with a session, read after a sync; None likewise."""
        store = self._store
        if store is None:
            return None
        read = await self._read_live(zk_paths.LIVE_BROKERS, None, store.live_brokers)
        return None if read is None else read[1]

    async def find_live_coordinator(
        self, coordinator: CoordinatorImage
    ) -> tuple[int, CoordinatorListing] | None:
        """Return the same for a coordinator."""
        store, kind = self._store, coordinator.kind
        if store is None:
            return None
        if kind not in COORDINATOR_KINDS:
            return _NO_ZNODE, CoordinatorListing(kind, -1)
        live = zk_paths.LiveCoordinator(
            kind, coordinator.coordinator_id, coordinator.incarnation_id
        )
        parent = zk_paths.live_coordinators(kind)
        return await self._read_live(parent, live, lambda: store.live_coordinators(kind))

    async def _read_live(
        self, parent: str, live: zk_paths.LiveZnode | None, read: Callable[[], Awaitable[Listing]]
    ) -> tuple[int, Listing] | None:
        try:
            await self._session.sync(parent)
            stat = None if live is None else await self._session.exists(live.path)
            listing = await read()
        except ZkError as error:
            log.info("live znodes not read", extra=fields(reason=str(error)))
            return None
        return (_NO_ZNODE if stat is None else stat.created_zxid), listing


def _agreed(stored: Constants | None, config: ControllerConfig) -> Constants:
    """Return the constants to store. Raises ServiceError if this replica's differ from the
    cluster's.
    """
    try:
        return agreed(stored, Constants(config.lease_ms, config.lease_ms_before))
    except TidemarkError as error:
        raise ServiceError(error.message, ExitCode.CONFIG) from None


async def _wait(happened: asyncio.Future[None]) -> None:
    await happened
