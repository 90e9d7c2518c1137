"""``tidemark operations``: long actions of the cluster."""
