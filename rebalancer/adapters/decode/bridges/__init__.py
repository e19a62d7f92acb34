"""What other people's collectors put on Kafka, a file a dialect.

Each dialect turns one message into the same rows and the same sightings of objects as our own collectors make.
A collector's own host, namespace or clock is never taken for the node, the pod's namespace or the sample's.
The one entry is :func:`rebalancer.adapters.decode.foreign.decode_foreign`.
"""
