"""Talks to people: commands, tables, the live view, and the sentence that answers `why`.

Data goes to stdout, talk to stderr; every command can answer as JSON. Nothing is decided here and no
client of Kafka or Kubernetes is made here: commands ask `bootstrap` and the adapters, and word what comes
back.
"""
