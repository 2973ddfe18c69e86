"""Tests of the outbox, on SQLite, PostgreSQL and MariaDB."""
