"""Audit of one process: its options, and the task that writes entries down."""
