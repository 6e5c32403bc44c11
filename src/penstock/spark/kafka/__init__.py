"""Kafka: topics as direct sources of events, and outcomes to a topic."""
