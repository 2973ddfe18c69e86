"""`python -m tests.chaos.web [KIND]... [--seconds 30]`: see web_outage.py."""

import os
import sys

import django

if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.chaos.settings"
    django.setup()
    from tests.chaos import web_outage

    sys.exit(web_outage.main(sys.argv[1:]))
