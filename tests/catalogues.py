"""The catalogues of the admin's texts: `make messages` writes them anew, and names what is to be translated.

It needs gettext (`xgettext`, `msgmerge`). Translate in `mq_django/locale/*/LC_MESSAGES/django.po`, and run it again.
"""

import os
import subprocess
import sys
from pathlib import Path

import polib

PACKAGE = Path(__file__).parents[1] / "mq_django"
LANGUAGES = ("de", "es", "fr", "ja", "pt_BR", "zh_Hans")


def catalogue_of(language: str, package: Path = PACKAGE) -> Path:
    """Return the catalogue of a language."""
    return package / "locale" / language / "LC_MESSAGES" / "django.po"


def extract(package: Path) -> None:
    """Write the texts of a package into the catalogues that it has."""
    # In the folder itself, `inspect` would be that of the package: `-P` leaves it out of the path.
    options = ["--all", "--no-location", "--no-obsolete", "--verbosity", "0"]
    command = [sys.executable, "-P", "-m", "django", "makemessages", *options]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE.parent)}
    subprocess.run(command, cwd=package, env=environment, check=True, timeout=120)


def untranslated(language: str, package: Path = PACKAGE) -> list[str]:
    """Return the texts that a catalogue lacks, or has only guessed."""
    found = polib.pofile(str(catalogue_of(language, package)))
    return [entry.msgid for entry in found if not entry.translated()]


def main() -> int:
    """Extract, compile, and print what is missing; return how many languages lack something."""
    extract(PACKAGE)
    lacking = 0
    for language in LANGUAGES:
        path = catalogue_of(language)
        found = polib.pofile(str(path))
        # Its date would differ each time.
        found.metadata.pop("POT-Creation-Date", None)
        found.save()
        found.save_as_mofile(str(path.with_suffix(".mo")))
        left = untranslated(language)
        lacking += bool(left)
        print(f"{language}: {len(found) - len(left)} of {len(found)}", *left[:20], sep="\n  ")
    return lacking


if __name__ == "__main__":
    sys.exit(main())
