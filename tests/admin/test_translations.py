"""What people read can be translated."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("xgettext") is None, reason="gettext is not installed")
def test_a_catalogue_has_the_sentences_of_the_pages(tmp_path):
    package = tmp_path / "mq_django"
    shutil.copytree(ROOT / "mq_django", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "locale").mkdir()
    command = [sys.executable, "-m", "django", "makemessages", "--locale", "de", "--settings", "tests.settings"]

    done = subprocess.run(
        command,
        cwd=package,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    catalogue = (package / "locale" / "de" / "LC_MESSAGES" / "django.po").read_text()
    for sentence in ("The queue is paused.", "Pause the queue…", "Why it is not running:", "Scanned"):
        assert f'"{sentence}' in catalogue


def test_templates_have_no_words_outside_of_translations():
    for template in (ROOT / "mq_django" / "templates").rglob("*.html"):
        text = template.read_text()
        text = re.sub(r"{% blocktranslate.*?endblocktranslate %}", "", text, flags=re.DOTALL)
        text = re.sub(r"{% block bodyclass %}.*?{% endblock %}", "", text, flags=re.DOTALL)
        text = re.sub(r"{#.*?#}|{%.*?%}|{{.*?}}", "", text, flags=re.DOTALL)
        text = re.sub(r"<[^>]*>|&\w+;", "", text, flags=re.DOTALL)
        assert not re.search(r"[A-Za-z]{2}", text), template.name
