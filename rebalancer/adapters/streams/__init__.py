"""The only room that speaks Kafka: a file a role, and the few helpers that they share.

No other room imports faust, aiokafka or confluent_kafka. Nothing is decided here: records are decoded,
handed to the core, and what the core returns is published and acknowledged.
"""
