"""Where the outside comes in and deeds go out: Kafka, Kubernetes, files, metrics.

Each adapter turns foreign things into the core's stimuli, or the core's instructions into foreign calls,
through the ports that the core declares. Nothing is decided here; no adapter imports `bootstrap` or `cli`.
"""
