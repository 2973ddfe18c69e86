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
from tests.syntax_trees import nodes_of

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


@pytest.fixture(scope="module")
def nodes():
    """Return what the code has of imports, calls and formatted strings, each with the path of its module."""
    return nodes_of(sorted(PACKAGE.rglob("*.py")), ast.ImportFrom, ast.JoinedStr, ast.Call)


def called(node):
    return getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""


def test_gettext_finds_each_text_in_the_code(nodes):
    """It finds neither those in formatted strings nor those of functions with names of our own."""
    hidden, names = list[tuple[str, str]](), {"_", "override", "get_language", "activate"}
    names |= {f"{kind}{lazy}" for kind in ("gettext", "ngettext", "pgettext", "npgettext") for lazy in ("", "_lazy")}
    for module, node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "django.utils.translation":
            hidden += [(module.name, each.asname) for each in node.names if (each.asname or each.name) not in names]
        if isinstance(node, ast.JoinedStr):
            hidden += [(module.name, called(each)) for each in ast.walk(node) if called(each) in ("_", "ngettext")]
    assert hidden == []


#: Texts with a count and without plural forms: the noun is a unit, or there is none.
ALLOWED = {
    "%(count)s %%",
    "%(count)s KiB",
    "%(count)s d",
    "%(count)s h",
    "%(count)s in %(time)s",
    "%(count)s min",
    "%(count)s more",
    "%(count)s ms",
    "%(count)s of %(total)s",
    "%(count)s of %(total)s paused",
    "%(count)s s",
    "%(count)s/h",
    "%(count)s/min",
    "%(count)s/s",
    "Examples: %(shown)s of %(count)s",
    "Handled in the last %(minutes)s minutes: %(count)s",
    "Published in the last %(minutes)s minutes: %(count)s",
    "Scanned %(scanned)s, %(count)s/s, about %(time)s left.",
    "and %(count)s more",
    "at least %(count)s",
    "more than %(count)s",
    "not started: %(count)s",
    "not started: %(count)s, oldest: %(time)s",
    "over %(count)s",
    "set aside: %(count)s",
}


def test_texts_with_counts_have_plural_forms(nodes):
    without = [
        (module.name, node.args[0]) for module, node in nodes if called(node) in ("_", "gettext_lazy") and node.args
    ]
    texts = [(text.value, module) for module, text in without if isinstance(text, ast.Constant)]
    found = {(text, module) for text, module in texts if "%(count)s" in text}
    assert {each for each in found if each[0] not in ALLOWED} == set()
    assert ALLOWED - {text for text, _ in found} == set()


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
