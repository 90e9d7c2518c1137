"""``tidemark events``: what changed lately."""
