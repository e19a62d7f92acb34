"""What must hold in a cluster, on a real control plane with the real broker: the product runs as it would in a pod.

Each story has nodes of a model of its own, so that several may share one running product; what it leaves behind is
taken away by the next one's stage. Nothing here looks into the product's processes: only at the API server, at the
topics, and at what its pages say.
"""
