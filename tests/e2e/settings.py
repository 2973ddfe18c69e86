"""The example project behind a strict content security policy, or with an admin of another look."""

import os

from example_project.settings import *  # noqa: F403
from example_project.settings import INSTALLED_APPS as SHOP_APPS
from example_project.settings import MIDDLEWARE as SHOP_MIDDLEWARE
from example_project.settings import MQ_DJANGO as SHOP_QUEUES

#: An app that changes the look of the admin. Such pages have scripts and styles in them, which the policy would refuse.
LOOK = os.environ.get("MQ_E2E_LOOK")
#: The admin of a project with hundreds of queues, for a picture.
IS_CROWDED = LOOK == "crowd"
AREAS = ("billing", "catalog", "emails", "exports", "payments", "returns", "search", "stock", "suppliers", "warehouse")
WHAT = ("index", "levels", "refunds", "capture", "digest", "invoices", "labels", "sync", "reports", "alerts")
CROWD = {f"{area}-{what}{part}": {} for part in ("", "-bulk", "-late") for area in AREAS for what in WHAT}

INSTALLED_APPS = [*([LOOK] if LOOK and not IS_CROWDED else []), *SHOP_APPS, "tests.e2e"]
MIDDLEWARE = [*SHOP_MIDDLEWARE] if LOOK else ["tests.e2e.policy.strict", *SHOP_MIDDLEWARE]
JAZZMIN_SETTINGS = {"use_google_fonts_cdn": False}
JAZZMIN_UI_TWEAKS = {"default_theme_mode": "auto"}


def directly(found):
    """Return queues or topics to which messages are published at once: tests look for them where no relay runs."""
    return {name: {**options, "OUTBOX": False} for name, options in found.items()}


MQ_DJANGO = {**SHOP_QUEUES, **{part: directly(SHOP_QUEUES[part]) for part in ("QUEUES", "TOPICS")}}
if IS_CROWDED:
    MQ_DJANGO = {
        **MQ_DJANGO,
        "QUEUES": {**MQ_DJANGO["QUEUES"], **CROWD},
        "NAMESPACE": f"{MQ_DJANGO['NAMESPACE']}-crowd",
    }
