"""Options of a broker's listeners: addresses, protocols, and what fits together."""

from collections.abc import Mapping
from typing import ClassVar, Final

from pydantic import Field, model_validator
from tidemark.model.metadata import (
    GRPC_LISTENER,
    INTERNAL_LISTENER,
    PLAINTEXT,
    SSL,
    Endpoint,
)
from tidemark.runtime.access.authorization_config import AuthorizationConfig
from tidemark.runtime.service_config import CommaList

from broker.grpc_listener import mechanisms_over_grpc, problem_over_grpc
from broker.listener_address import PROTOCOLS, SASL_SSL, Listener, protocol_named
from broker.login_config import OAUTHBEARER, ONLY_WITH_TLS
from broker.security_config import ListenerSecurityConfig

_MUTUAL_TLS: Final = (
    f"give it {SSL} in listener.security.protocol.map, and"
    f" listener.name.{INTERNAL_LISTENER.lower()}.ssl.client.auth=required (mutual TLS)"
)
_BETWEEN_BROKERS: Final = (
    f"brokers replicate over the listener {INTERNAL_LISTENER}, with certificates instead of"
    f" passwords: {_MUTUAL_TLS}"
)


class ListenersConfig(ListenerSecurityConfig, AuthorizationConfig):
    """Options of all listeners."""

    kafka_keys_replaced: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            "security_inter_broker_protocol",
            "inter_broker_listener_name",
            "sasl_mechanism_inter_broker_protocol",
        ),
        _BETWEEN_BROKERS,
    )

    listeners: CommaList = Field(
        ("CLIENT://127.0.0.1:9092",),
        min_length=1,
        description="listeners: NAME://host:port,...; they speak Kafka's protocol, INTERNAL is for"
        " brokers, and GRPC serves clients over gRPC",
    )
    advertised_listeners: CommaList = Field(
        (), description="addresses that clients get, NAME://host:port,...; default: listeners"
    )
    listener_security_protocol_map: CommaList = Field(
        (),
        description="NAME:PROTOCOL for each listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL;"
        " default: the protocol that the listener is named after, else PLAINTEXT",
    )

    @model_validator(mode="after")
    def _consistent_listeners(self) -> "ListenersConfig":
        names = [listener.name for listener in self.parsed_listeners()]
        if len(set(names)) != len(names):
            raise ValueError("listeners: each name may stand once")
        unknown = {Listener.parse(text).name for text in self.advertised_listeners} - set(names)
        if unknown:
            raise ValueError(
                f"advertised.listeners names {sorted(unknown)}, which listeners does not"
            )
        if not self.kafka_listeners():
            raise ValueError(f"listeners: one at least besides {GRPC_LISTENER}")
        self._check_security_protocols()
        return self

    def _check_security_protocols(self) -> None:
        listeners = self.parsed_listeners()
        unknown = self._security_protocols().keys() - {one.name for one in listeners}
        if unknown:
            raise ValueError(
                f"listener.security.protocol.map names {sorted(unknown)}, which listeners does not"
            )
        for one in listeners:
            if one.security_protocol not in PROTOCOLS:
                raise ValueError(
                    f"listener {one.name}: {one.security_protocol} is not a security protocol;"
                    f" there are {', '.join(PROTOCOLS)}"
                )
            if one.name == INTERNAL_LISTENER:
                self._check_internal(one)
        if self.authorizer_class_name and INTERNAL_LISTENER not in {one.name for one in listeners}:
            raise ValueError(
                f"authorizer.class.name needs a listener {INTERNAL_LISTENER}, over which brokers"
                " replicate: on the others, ACLs hold"
            )
        self.check_own_options(tuple(one.name for one in listeners))
        for one in listeners:
            if one.name == GRPC_LISTENER:
                self._check_grpc(one)
            elif one.speaks_sasl:
                self._check_mechanisms(one)
            if one.speaks_tls and not self.security_of(one.name).ssl_certificate_location:
                raise ValueError(
                    f"a listener with {SSL} or {SASL_SSL} needs ssl.certificate.location"
                )

    def _check_internal(self, listener: Listener) -> None:
        """Raise ValueError if brokers could not replicate over a listener."""
        if listener.speaks_sasl:
            raise ValueError(
                f"listener {listener.name}: brokers have certificates instead of passwords;"
                f" {_MUTUAL_TLS}, or {PLAINTEXT} in a private network"
            )
        required = self.security_of(listener.name).ssl_client_auth == "required"
        if listener.speaks_tls and self.authorizer_class_name and not required:
            raise ValueError(
                f"listener {listener.name} with {SSL}: brokers show who they are by certificates;"
                f" set listener.name.{listener.name.lower()}.ssl.client.auth=required"
            )

    def _check_grpc(self, listener: Listener) -> None:
        """Raise ValueError if clients could not call over gRPC as the options say."""
        problem = problem_over_grpc(
            listener, self.security_of(listener.name), self.mechanisms_of(listener)
        )
        if problem:
            raise ValueError(problem)

    def _check_mechanisms(self, listener: Listener) -> None:
        """Raise ValueError if a listener would serve no mechanism, or not what it names itself."""
        own = self.security_of(listener.name).sasl_enabled_mechanisms
        names_itself = "sasl_enabled_mechanisms" in self.own_options(listener.name)
        served = self.mechanisms_of(listener)
        if not served or (names_itself and served != own):
            secret = ", ".join(name for name in own if name not in served)
            raise ValueError(
                f"listener {listener.name} with {listener.security_protocol}: {secret} would show"
                f" secrets to the network; give it {SASL_SSL}, or SCRAM-SHA-512"
            )
        missing = self.security_of(listener.name).missing_for_tokens()
        if OAUTHBEARER in served and missing:
            raise ValueError(f"listener {listener.name}: {OAUTHBEARER} needs {missing}")

    def _security_protocols(self) -> dict[str, str]:
        """Return protocols by listener name, from the map. Raises ValueError."""
        protocols = {}
        for text in self.listener_security_protocol_map:
            name, separator, protocol = text.partition(":")
            if not separator or not protocol:
                raise ValueError(
                    f"listener.security.protocol.map: expected NAME:PROTOCOL, not {text!r}"
                )
            protocols[name.strip()] = protocol.strip().upper()
        return protocols

    @property
    def speaks_tls(self) -> bool:
        """True if any listener uses TLS."""
        return any(one.speaks_tls for one in self.parsed_listeners())

    def parsed_listeners(self) -> tuple[Listener, ...]:
        """Return the listeners, in order."""
        protocols = self._security_protocols()
        return tuple(
            one._replace(security_protocol=protocols.get(one.name, protocol_named(one.name)))
            for one in map(Listener.parse, self.listeners)
        )

    def kafka_listeners(self) -> tuple[Listener, ...]:
        """Return the listeners with Kafka's protocol, in order."""
        return tuple(one for one in self.parsed_listeners() if one.name != GRPC_LISTENER)

    def grpc_listener(self) -> Listener | None:
        """Return the listener for clients over gRPC."""
        return next((one for one in self.parsed_listeners() if one.name == GRPC_LISTENER), None)

    def mechanisms_of(self, listener: Listener) -> tuple[str, ...]:
        """Return the mechanisms of a listener with SASL."""
        if listener.name == GRPC_LISTENER:
            return mechanisms_over_grpc(
                self.own_options(listener.name), self.security_of(listener.name)
            )
        return tuple(
            one
            for one in self.security_of(listener.name).sasl_enabled_mechanisms
            if listener.speaks_tls or one not in ONLY_WITH_TLS
        )

    def endpoints(self, bound: Mapping[str, int] | None = None) -> tuple[Endpoint, ...]:
        """Return the advertised address of each listener; ``bound`` has the real ports for
        configured port 0.
        """
        advertised = {one.name: one for one in map(Listener.parse, self.advertised_listeners)}
        points = []
        for listener in self.parsed_listeners():
            shown = advertised.get(listener.name, listener)
            port = shown.port or (bound or {}).get(listener.name, 0)
            points.append(Endpoint(listener.name, shown.host, port, listener.security_protocol))
        return tuple(points)
