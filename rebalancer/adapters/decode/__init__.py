"""Foreign dialects in, our own facts and readings out: a file a dialect.

Decoders are plain functions over bytes or JSON: no I/O, no clock, no state but what the caller hands in. They
raise nothing but :class:`~rebalancer.adapters.decode.errors.DecodeError`, and what they cannot read becomes
unknown, never a convenient value. They decide nothing: a pool, a victim or an idle GPU is the core's to find.
"""
