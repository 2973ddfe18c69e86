"""The name of the user of a terminal, for what the admin shows."""

import getpass


def user_name() -> str:
    """Return the name of the current user, or a placeholder: in a container, a user may have no name."""
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):
        return "unknown user"
