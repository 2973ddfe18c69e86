"""In place of the package of this name, of which one page shows one call."""

import os
from urllib.parse import urlsplit


def config(*, conn_max_age):
    return {"ENGINE": urlsplit(os.environ["DATABASE_URL"]).scheme, "CONN_MAX_AGE": conn_max_age}
