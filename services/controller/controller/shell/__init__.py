"""Shell of the controller: ZooKeeper, the election, the metadata feed, gRPC and REST.

It steps the core on the event loop and performs its effects. Clocks, sockets and ZooKeeper are
touched here only; wire formats are read and written in the ``*_mapping`` modules.
"""
