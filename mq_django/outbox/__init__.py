"""The outbox: publications that a transaction writes as rows, and a relay that publishes them after the commit."""
