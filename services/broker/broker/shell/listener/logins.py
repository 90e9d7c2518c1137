"""Logins: makes the router of each listener whose clients authenticate with SASL."""

from collections.abc import Mapping
from functools import partial

from tidemark.model.scram import MECHANISM_NAMES, UserCredentials
from tidemark.protocol.audit import NoteLogin
from tidemark.runtime.access.bearer_check import BearerCheck
from tidemark.runtime.access.key_set import KeySetCache, fetch_from
from tidemark.runtime.access.password_checks import PasswordChecks
from tidemark.runtime.clock import Clock
from tidemark.runtime.metadata_cache import MetadataCache

from broker.config import BrokerConfig
from broker.core.login import Exchange, LoginRules
from broker.listener_address import Listener
from broker.login_config import OAUTHBEARER, PLAIN
from broker.shell.counters import BrokerCounters
from broker.shell.listener.bearer_exchange import BearerExchange
from broker.shell.listener.plain_exchange import PlainExchange
from broker.shell.listener.request_router import RequestRouter
from broker.shell.listener.sasl_router import LoginLimits, SaslRouter
from broker.shell.listener.scram_exchange import ScramExchange


class Logins:
    """Logins of all listeners of a broker."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataCache,
        clock: Clock,
        counters: BrokerCounters,
        note_login: NoteLogin,
    ) -> None:
        self._note_login = note_login
        self._config = config
        self._metadata = metadata
        self._clock = clock
        self._counters = counters
        self._passwords = PasswordChecks(self._users)

    def _users(self) -> tuple[Mapping[str, UserCredentials], bytes]:
        return self._metadata.image.users, self._metadata.image.login_secret

    def router_for(self, listener: Listener, router: RequestRouter) -> RequestRouter | SaslRouter:
        """Return the router of a listener; one with SASL lets requests through after the login."""
        if not listener.speaks_sasl:
            return router
        config, security = self._config, self._config.security_of(listener.name)
        tokens = None
        if OAUTHBEARER in config.mechanisms_of(listener):
            keys = KeySetCache(security, self._clock, fetch_from(security))
            tokens = BearerCheck(keys, security.token_rules, self._clock)
        rules = LoginRules(
            mechanisms=config.mechanisms_of(listener),
            deadline_ms=config.sasl_login_deadline_ms,
            lifetime_ms=security.connections_max_reauth_ms,
            begin=partial(self._begin, tokens),
        )
        return SaslRouter(
            router,
            rules,
            LoginLimits.of(config),
            self._clock,
            self._counters,
            listener=listener.name,
            note_login=self._note_login,
        )

    def _begin(self, tokens: BearerCheck | None, mechanism: str) -> Exchange:
        if mechanism in MECHANISM_NAMES:
            return ScramExchange(mechanism, self._users)
        if mechanism == OAUTHBEARER and tokens is not None:
            return BearerExchange(tokens)
        assert mechanism == PLAIN, mechanism
        return PlainExchange(self._passwords)
