"""The ``tidemark`` command: a package or a module for each group of commands.

It uses the native client and, for ``tidemark dev``, processes on this machine.
"""
