"""A Kafka topic through Penstock, and through Spark's own source with an identity mapInArrow."""
