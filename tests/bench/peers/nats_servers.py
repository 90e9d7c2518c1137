"""NATS with JetStream, its server built from the Go module that ``nats/go.mod`` names."""

from pathlib import Path

from bench.peers.rows import NATS
from bench.peers.servers import NODES, START_S, Children
from bench.processes import wait_for_port
from free_ports import free_port
from tidemark.cli.dev.layout import HOST


class NatsServers:
    """Three nats-servers with JetStream on files."""

    name = NATS

    def __init__(self, directory: Path, program: Path, bytes_max: int) -> None:
        self._directory, self._program, self._bytes_max = directory, program, bytes_max
        self._ports = {node: (free_port(), free_port()) for node in NODES}
        self._children = Children(directory)

    def start(self) -> None:
        """Start the servers; the load waits for their quorum."""
        for node in NODES:
            path = self._directory / f"nats-{node}.conf"
            path.write_text(self._config(node))
            self._children.start(f"nats-{node}", [str(self._program), "-c", str(path)])
        for client, _ in self._ports.values():
            wait_for_port(client, START_S)

    def stop(self) -> None:
        """Stop the servers."""
        self._children.stop()

    @property
    def address(self) -> str:
        """URLs of all servers."""
        return ",".join(f"nats://{HOST}:{client}" for client, _ in self._ports.values())

    def roots(self) -> list[int]:
        """Servers."""
        return self._children.pids()

    def _config(self, node: int) -> str:
        client, route = self._ports[node]
        routes = ", ".join(f'"nats://{HOST}:{port}"' for _, port in self._ports.values())
        return (
            f'server_name: "nats-{node}"\n'
            f'listen: "{HOST}:{client}"\n'
            f"jetstream {{\n"
            f'  store_dir: "{self._directory / f"node-{node}"}"\n'
            f"  max_file_store: {self._bytes_max}\n"
            f"}}\n"
            f'cluster {{\n  name: bench\n  listen: "{HOST}:{route}"\n  routes: [{routes}]\n}}\n'
        )
