"""Write docs/states/*.mmd: the states of each protocol, drawn from its table in the code.

Run it after changing a table; `tests/tidy/test_state_diagrams.py` fails until then.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from broker.core.groups.classic import states as classic_states
from broker.core.groups.consumer import reconciliation
from broker.core.share import states as share_states
from txn_coordinator.core import marker_states, transaction

OUTPUT: Final = Path(__file__).parent.parent / "docs/states"


@dataclass(frozen=True, slots=True)
class Diagram:
    """One table: for each state the states before it, all by their names."""

    source: str
    previous: Mapping[str, Collection[str]]
    first: str
    last: str | None = None
    passing: Collection[str] = ()
    """States that no record has: a decision passes through them."""


def _name(state: Enum) -> str:
    return state.value if isinstance(state.value, str) else state.name


def previous_of(moves: Mapping[tuple[Any, Any], Any]) -> dict[str, list[str]]:
    """A table of (state, cause) -> next state, the other way round."""
    states: Iterable[Enum] = dict.fromkeys(
        state for (before, _), after in moves.items() for state in (before, after)
    )
    return {
        _name(state): list(
            dict.fromkeys(_name(before) for (before, _), after in moves.items() if after is state)
        )
        for state in states
    }


DIAGRAMS: Final[Mapping[str, Diagram]] = {
    "transaction": Diagram(
        "txn_coordinator.core.transaction.VALID_PREVIOUS",
        {
            state.title: [before.title for before in previous]
            for state, previous in transaction.VALID_PREVIOUS.items()
        },
        first=transaction.EMPTY.title,
        last=transaction.DEAD.title,
        passing=[transaction.PREPARE_EPOCH_FENCE.title],
    ),
    "marker": Diagram(
        "txn_coordinator.core.marker_states.NEXT_STATE",
        previous_of(marker_states.NEXT_STATE),
        first=_name(marker_states.PARKED),
    ),
    "classic-group": Diagram(
        "broker.core.groups.classic.states.NEXT_STATE",
        previous_of(classic_states.NEXT_STATE),
        first=_name(classic_states.GroupState.EMPTY),
        last=_name(classic_states.GroupState.DEAD),
    ),
    "consumer-group-member": Diagram(
        "broker.core.groups.consumer.reconciliation.NEXT_STATE",
        previous_of(reconciliation.NEXT_STATE),
        first=_name(reconciliation.STABLE),
    ),
    "share-record": Diagram(
        "broker.core.share.states.NEXT_DELIVERY",
        previous_of(share_states.NEXT_DELIVERY),
        first=_name(share_states.AVAILABLE),
    ),
    "share-partition": Diagram(
        "broker.core.share.states.NEXT_PHASE",
        previous_of(share_states.NEXT_PHASE),
        first=_name(share_states.Phase.EMPTY),
        last=_name(share_states.Phase.FENCED),
    ),
}


def draw(diagram: Diagram) -> str:
    """Mermaid, with the moves in the order of the table."""
    states = list(diagram.previous)
    lines = [
        f"%% Drawn by tools/draw_states.py from {diagram.source}; do not edit.",
        "stateDiagram-v2",
        f"    [*] --> {diagram.first}",
    ]
    lines += [
        f"    {before} --> {state}"
        for before in states
        for state in states
        if before in diagram.previous[state]
    ]
    if diagram.last is not None:
        lines.append(f"    {diagram.last} --> [*]")
    for state in diagram.passing:
        lines.append(f"    note right of {state}: never written")
    return "\n".join(lines) + "\n"


def write(output: Path) -> None:
    """All diagrams, each a file of its own."""
    for name, diagram in DIAGRAMS.items():
        (output / f"{name}.mmd").write_text(draw(diagram))


if __name__ == "__main__":
    write(OUTPUT)
