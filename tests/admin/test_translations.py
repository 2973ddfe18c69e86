"""What people read can be translated."""

import ast
import re
import shutil
from io import StringIO

import polib
import pytest
from django.conf.urls.i18n import i18n_patterns
from django.contrib import admin
from django.core.management import call_command
from django.urls import path
from django.utils.translation import override

from mq_django.inspector import actions
from tests.admin.conftest import BASE
from tests.catalogues import LANGUAGES, PACKAGE, catalogue_of, extract, untranslated

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
def test_each_text_is_in_the_catalogue_of_each_language(tmp_path):
    package = tmp_path / "mq_django"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))

    extract(package)

    assert {language: left for language in LANGUAGES if (left := untranslated(language, package))} == {}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_catalogue_keeps_what_code_puts_into_its_texts_and_is_compiled(language):
    found = polib.pofile(str(catalogue_of(language)))
    compiled = polib.mofile(str(catalogue_of(language).with_suffix(".mo")))

    assert untranslated(language) == []
    changed = []
    for entry in found:
        whole = entry.msgid_plural or entry.msgid
        *others, last = entry.msgstr_plural.values() if entry.msgid_plural else [entry.msgstr]
        # A singular may do without the number.
        if placed(last) != placed(whole) or any(placed(each) - placed(whole) for each in others):
            changed.append(entry.msgid)
    assert changed == []
    texts = [
        {(entry.msgctxt, entry.msgid): entry.msgstr_plural or entry.msgstr for entry in each}
        for each in (found, compiled)
    ]
    assert texts[0] == texts[1], "run make messages"


def placed(text):
    """Return what is put into a text, its signs of percent and its elements of HTML."""
    return {*re.findall(r"%\(\w+\)[sd]|%%|<[^>]+>", text)}


def test_gettext_finds_each_text_in_the_code():
    """It finds neither those in formatted strings nor those of functions with names of our own."""
    hidden, names = list[tuple[str, str]](), {"_", "override", "get_language", "activate"}
    names |= {f"{kind}{lazy}" for kind in ("gettext", "ngettext", "pgettext", "npgettext") for lazy in ("", "_lazy")}
    for module in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "django.utils.translation":
                hidden += [(module.name, each.asname) for each in node.names if (each.asname or each.name) not in names]
            if isinstance(node, ast.JoinedStr):
                calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
                hidden += [(module.name, each.id) for each in calls if getattr(each, "id", "") in ("_", "ngettext")]
    assert hidden == []


@pytest.mark.django_db(databases="__all__")
def test_pages_speak_the_language_of_their_reader(operator, mq_settings, settings):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.middleware.locale.LocaleMiddleware"]
    mq_settings()
    actions.pause("emails", who="ada")

    with override(None):
        page = operator.get(f"{BASE}emails/change/", headers={"Accept-Language": "de"}).content.decode()

    assert "ist pausiert." in page
    assert "is paused." not in page


@pytest.mark.usefixtures("mq_settings")
def test_commands_speak_english_in_a_project_of_another_language():
    actions.pause("emails")
    out = StringIO()
    with override("de"), pytest.raises(SystemExit):
        call_command("mq", "status", "--check", stdout=out)

    assert out.getvalue().startswith("[paused] emails is paused.")


def test_templates_have_no_words_outside_of_translations():
    for template in (PACKAGE / "templates").rglob("*.html"):
        text = template.read_text()
        text = re.sub(r"{% blocktranslate.*?endblocktranslate %}", "", text, flags=re.DOTALL)
        text = re.sub(r"<(code|kbd)>.*?</\1>", "", text)
        text = re.sub(r"{% block bodyclass %}.*?{% endblock %}", "", text, flags=re.DOTALL)
        text = re.sub(r"{#.*?#}|{%.*?%}|{{.*?}}", "", text, flags=re.DOTALL)
        text = re.sub(r"<[^>]*>|&\w+;", "", text, flags=re.DOTALL)
        assert not re.search(r"[A-Za-z]{2}", text), template.name
