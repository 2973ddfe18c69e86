"""What is skipped without an optional package."""

from importlib.util import find_spec

import pytest

needs_croniter = pytest.mark.skipif(find_spec("croniter") is None, reason="croniter is not installed")
