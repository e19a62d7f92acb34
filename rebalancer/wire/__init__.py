"""The public contract: what lies on the topics, as data.

Subscribers may rely on everything here. The models say how a record looks, not what it leads to; the core
is not known here, and nothing is sent or received. A change that would break a reader is never made to a
version: it becomes a new one beside it.
"""
