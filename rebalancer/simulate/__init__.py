"""A cluster that behaves, for demos and tests: nodes, kubelets, scheduler, services, training, faults.

It implements the core's ports and is deterministic by seed. It must never decide about lending, read a real clock,
or be imported by anything that runs against a real cluster.
"""
