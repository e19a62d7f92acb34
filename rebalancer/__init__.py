"""Event-driven rebalancer for GPU pools.

Rooms: ``core`` decides (pure), ``wire`` is the public contract, ``adapters`` touch Kafka, files and
Kubernetes, ``simulate`` is a cluster that behaves, ``cli`` talks to people. Imports point downwards only.
"""
