"""A project whose handlers write to the database of a test."""
