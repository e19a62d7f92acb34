"""Everything that speaks to a Kubernetes API server: eyes that list and watch, hands that patch and evict.

The only room that imports the Kubernetes client. What objects mean is the decoders' to say, what is done about
them the core's; here requests are made, bounded in time, and answers handed on as they came.
"""
