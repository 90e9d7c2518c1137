"""Listener: Kafka connections, from the socket to the handler of a request and back.

BrokerServer runs one KafkaListener for each listener of the configuration. Modules here may touch
sockets, receive buffers and the limits of connections, and park requests that do not find room.
They import no handler: the router is given its handlers.
"""
