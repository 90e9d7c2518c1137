"""Logins: makes the router of each listener whose clients authenticate with SASL, and the check of
the callers of the listener GRPC.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from tidemark.model.scram import MECHANISM_NAMES, UserCredentials
from tidemark.protocol.audit import NoteLogin
from tidemark.runtime.access.bearer_check import BearerCheck
from tidemark.runtime.access.certificate_logins import CertificateLogins
from tidemark.runtime.access.grpc_logins import GrpcLogins
from tidemark.runtime.access.header_logins import BASIC, BEARER, HeaderLogins
from tidemark.runtime.access.key_set import KeySetCache, fetch_from
from tidemark.runtime.access.password_checks import PasswordChecks
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.peers import AnonymousPeers, FindsPeers, Peers

from broker.core.login import Exchange, LoginRules
from broker.core.login_gate import LoginGate
from broker.listener_address import Listener
from broker.login_config import OAUTHBEARER, PLAIN
from broker.shell.counters import BrokerCounters
from broker.shell.facts import BrokerFacts
from broker.shell.listener.bearer_exchange import BearerExchange
from broker.shell.listener.login_turns import LoginTurns, Waiting
from broker.shell.listener.plain_exchange import PlainExchange
from broker.shell.listener.request_router import RequestRouter
from broker.shell.listener.sasl_router import LoginLimits, SaslRouter
from broker.shell.listener.scram_exchange import ScramExchange

_SCHEMES: Final[Mapping[str, str]] = {PLAIN: BASIC, OAUTHBEARER: BEARER}
"""Scheme of a header for each mechanism."""


class Logins:
    """Logins of all listeners of a broker."""

    def __init__(
        self,
        facts: BrokerFacts,
        metadata: MetadataCache,
        counters: BrokerCounters,
        note_login: NoteLogin,
    ) -> None:
        self.note_login = note_login
        self._config = facts.config
        self._metadata = metadata
        self._clock = facts.clock
        self._counters = counters
        self._passwords = PasswordChecks(self._users)
        gate: LoginGate[Waiting] = LoginGate(
            burst=facts.config.failed_authentication_burst_per_ip,
            rate_s=facts.config.failed_authentication_rate_per_ip,
        )
        self.turns = LoginTurns(gate, facts.clock)

    def _users(self) -> tuple[Mapping[str, UserCredentials], bytes]:
        return self._metadata.image.users, self._metadata.image.login_secret

    def router_for(self, listener: Listener, router: RequestRouter) -> RequestRouter | SaslRouter:
        """Return the router of a listener; one with SASL lets requests through after the login."""
        if not listener.speaks_sasl:
            return router
        config, security = self._config, self._config.security_of(listener.name)
        tokens = self._token_check(listener)
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
            note_login=self.note_login,
        )

    def grpc_peers(self, listener: Listener) -> FindsPeers:
        """Return the check of callers of the listener GRPC."""
        config, security = self._config, self._config.security_of(listener.name)
        has_certificates = listener.speaks_tls and security.ssl_client_auth == "required"
        if not listener.speaks_sasl and not has_certificates:
            return AnonymousPeers()
        counts = self._counters.logins_of(listener.name)
        if not listener.speaks_sasl:
            rules = security.ssl_principal_mapping_rules
            by_certificate = Peers(rules, frozenset(), takes_clients=True)
            return CertificateLogins(by_certificate, listener.name, self.note_login, counts)
        schemes = tuple(_SCHEMES[one] for one in config.mechanisms_of(listener))
        tokens = self._token_check(listener)
        of_headers = HeaderLogins(
            listener.name, schemes, self._users, tokens, self._clock, self.note_login
        )
        return GrpcLogins(
            of_headers,
            self._clock,
            lifetime_ms=security.connections_max_reauth_ms,
            failure_delay_ms=config.connection_failed_authentication_delay_ms,
            counts=counts,
        )

    def _token_check(self, listener: Listener) -> BearerCheck | None:
        if OAUTHBEARER not in self._config.mechanisms_of(listener):
            return None
        security = self._config.security_of(listener.name)
        keys = KeySetCache(security, self._clock, fetch_from(security))
        return BearerCheck(keys, security.token_rules, self._clock)

    def _begin(self, tokens: BearerCheck | None, mechanism: str) -> Exchange:
        if mechanism in MECHANISM_NAMES:
            return ScramExchange(mechanism, self._users)
        if mechanism == OAUTHBEARER and tokens is not None:
            return BearerExchange(tokens)
        assert mechanism == PLAIN, mechanism
        return PlainExchange(self._passwords)
