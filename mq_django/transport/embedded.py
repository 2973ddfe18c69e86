"""A private Redis shared by every process of a project."""

from pathlib import Path

from mq_django.errors import NoServer


def url(directory: Path) -> str:
    """Start or join the server whose data is in `directory`, and return its URL."""
    raise NoServer(f"The embedded server of {directory} cannot be started")
