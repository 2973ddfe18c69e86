"""An app whose handlers have metrics of their own, defined as the documentation of prometheus_client does."""
