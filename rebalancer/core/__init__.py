"""The decision core: stimuli in, instructions out.

Everything here is synchronous and deterministic. Nothing here may read a clock, do I/O, log, draw random
numbers or know of Kafka, Kubernetes or JSON: ``now`` is always an argument (aware, UTC). Iteration that can
reach a decision is over sorted or insertion-ordered containers, so that equal inputs give equal plans.
"""
