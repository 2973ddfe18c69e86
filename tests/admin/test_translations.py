"""What people read can be translated."""

import re
import shutil
import sys
from pathlib import Path

import pytest
from django.conf.urls.i18n import i18n_patterns
from django.contrib import admin
from django.urls import path
from django.utils.translation import override

from tests.shell import ran

ROOT = Path(__file__).parents[2]

#: Of a project that has the language in its addresses.
urlpatterns = i18n_patterns(path("admin/", admin.site.urls))


@pytest.mark.django_db(databases="__all__")
@pytest.mark.urls("tests.admin.test_translations")
def test_links_keep_the_language_of_the_page(operator, mq_settings, settings):
    session = "django.contrib.sessions.middleware.SessionMiddleware"
    middleware = [name for name in settings.MIDDLEWARE if name != session]
    settings.MIDDLEWARE = [session, "django.middleware.locale.LocaleMiddleware", *middleware]

    for language in ("en", "de"):
        with override(None):
            page = operator.get(f"/{language}/admin/mq_django/queue/").content.decode()
        assert {*re.findall(r'href="/(\w+)/admin/mq_django/queue/', page)} == {language}


@pytest.mark.skipif(shutil.which("xgettext") is None, reason="gettext is not installed")
def test_a_catalogue_has_the_sentences_of_the_pages(tmp_path):
    package = tmp_path / "mq_django"
    for part in ("admin", "inspector", "templates"):
        shutil.copytree(ROOT / "mq_django" / part, package / part, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "locale").mkdir()
    command = [sys.executable, "-m", "django", "makemessages", "--locale", "de", "--settings", "tests.settings"]

    ran(command, cwd=package, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)})
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
