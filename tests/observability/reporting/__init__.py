"""An app that initialises Sentry's SDK as a project does, with a transport that writes to a file when it is flushed."""

import os
from pathlib import Path

import sentry_sdk

from tests.observability.sentry_transport import Slow

sentry_sdk.init(
    dsn="https://key@sentry.invalid/1", traces_sample_rate=1.0, transport=Slow(Path(os.environ["MQ_TEST_SENTRY"]))
)
