"""Core of the controller: decisions on topics, replicas, brokers and coordinators.

``Controller`` is the machine that the shell steps, one input at a time. ``ActiveTerm`` has the
state of an active controller and passes each request to the module of its subject. Modules are pure
and return changes; a change is written, then applied, then published.
"""
