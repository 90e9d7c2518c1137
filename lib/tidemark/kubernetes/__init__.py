"""Kubernetes as the command line and the controller reach it."""
