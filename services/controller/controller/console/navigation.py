"""The navigation: pages that every page links to, with counts where these cost nothing."""

from tidemark.model.metadata import ClusterImage

Entry = tuple[str, str, int | None]
"""Address, title and count of a page."""


def navigation(image: ClusterImage) -> tuple[Entry, ...]:
    """Return the entries of the navigation, in order."""
    return (
        ("/", "Overview", None),
        ("/brokers", "Brokers", len(image.brokers)),
        ("/topics", "Topics", len(image.topics)),
        ("/groups", "Consumer groups", None),
        ("/share-groups", "Share groups", None),
        ("/dead-letters", "Dead letters", None),
        ("/transactions", "Transactions", None),
        ("/access", "Access", None),
        ("/reassignments", "Reassignments", None),
        ("/operations", "Operations", None),
        ("/events", "Events", None),
    )
