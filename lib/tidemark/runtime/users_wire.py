"""Conversion of users' credentials to and from protobuf."""

from collections.abc import Mapping

from tidemark_wire.v1 import controller_pb2

from tidemark.model.scram import ScramCredential, ScramMechanism, UserCredentials

_KNOWN = {int(one) for one in ScramMechanism}


def write_credential(credential: ScramCredential) -> controller_pb2.ScramCredential:
    """Convert from model to wire."""
    return controller_pb2.ScramCredential(
        mechanism=credential.mechanism,
        iterations=credential.iterations,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
    )


def read_credential(wire: controller_pb2.ScramCredential) -> ScramCredential | None:
    """Convert from wire to model; None for a mechanism of a newer release."""
    if wire.mechanism not in _KNOWN:
        return None
    return ScramCredential(
        ScramMechanism(wire.mechanism), wire.iterations, wire.salt, wire.stored_key, wire.server_key
    )


def write_users(
    users: Mapping[str, UserCredentials],
) -> dict[str, controller_pb2.UserCredentials]:
    """Convert from model to wire."""
    return {
        name: controller_pb2.UserCredentials(credentials=map(write_credential, credentials))
        for name, credentials in users.items()
    }


def read_users(
    wire: Mapping[str, controller_pb2.UserCredentials],
) -> dict[str, UserCredentials]:
    """Convert from wire to model, without credentials of mechanisms that this release lacks."""
    return {
        name: tuple(one for one in map(read_credential, user.credentials) if one is not None)
        for name, user in wire.items()
    }
