"""Transactions: calls of this broker to the transaction coordinators.

Handlers relay the requests of producers here, appends are verified here, and producer ids come from
here. It touches the coordinators' client and the metadata; logs are not its business.
"""
