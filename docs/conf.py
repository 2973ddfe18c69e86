"""How Sphinx builds the documentation site: `make docs`."""

import re
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from docutils.nodes import Element, TextElement, paragraph
from pygments.lexers.special import TextLexer
from sphinx.addnodes import pending_xref, toctree
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon import Config, GoogleDocstring

import mq_django

settings.configure(INSTALLED_APPS=["django.contrib.contenttypes", "mq_django"], USE_TZ=True)
django.setup()

project = "mq_django"
author = copyright = "mq_django contributors"  # noqa: A001 - Sphinx's name
release = version = mq_django.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_build"]
# Single backquotes in docstrings are code, as in the pages.
default_role = "literal"

# As on GitHub, so that links to headings lead to the same place in the files and on the site.
myst_heading_anchors = 4
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

autodoc_default_options = {"members": True, "undoc-members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"mq_django {release}"
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {"top_of_page_buttons": []}


def resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: TextElement) -> Element | None:
    """Link a class named by the module that has it to its entry under its public name; leave other types as text."""
    if node.get("refdomain") != "py":
        return None
    name = re.split(r"[.~]", node["reftarget"])[-1]
    domain: Any = env.get_domain("py")
    for entry, found in domain.objects.items():
        if entry.rpartition(".")[2] == name and found.objtype in ("class", "exception", "function", "data"):
            link = domain.resolve_xref(env, node["refdoc"], app.builder, "obj", entry, node, contnode)
            return link if link is not None else contnode
    return contnode


def read_docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Translate a docstring to reStructuredText. Its indented paragraphs are examples."""
    if lines and lines[0].startswith("Alias for field number"):
        del lines[:]  # named tuples say this of each field that has no text
    if hasattr(obj, "__wrapped__") and iscoroutinefunction(obj):
        lines[:] = [f"See `{obj.__wrapped__.__name__}()`. This is its coroutine function."]
    for index in range(len(lines) - 1, 1, -1):
        before, blank, line = lines[index - 2 : index + 1]
        if line.startswith("    ") and not blank and before and not before.startswith(" "):
            lines[index:index] = ["::", ""]
    if what not in ("attribute", "data", "property"):  # there, a colon would separate type and text
        lines[:] = GoogleDocstring(lines, Config(), app, what, name, obj, options).lines()


def shorten(*found: Any) -> tuple[str | None, str | None]:
    """Return the signature, in which a default that is an empty mapping is written as a reader would."""
    *_, signature, returned = found
    return signature and signature.replace("mappingproxy({})", "{}"), returned


#: Corrections of the pages of Sphinx and furo for readers with a keyboard or a screen reader: pattern -> replacement.
ACCESSIBLE = {
    r'<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    r'<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Contents">',
    r"<pre>": '<pre tabindex="0">',
    r'<div class="(table-wrapper [^"]*)">': r'<div class="\1" tabindex="0">',
    r'(id="furo-main-content">\s*)<noscript>': r"\1<h1>Search</h1><noscript>",
    r'<th class="head"><p></p></th>': '<td class="head"></td>',
    # Parameters, a line each. A list must have terms.
    r"<dl>\s*<dd>(<em.*?)</dd>\s*</dl>": r'<span class="sig-lines"><span class="sig-line">\1</span></span>',
    r"(<em class=\"sig-param\".*?)</dd>\s*<dd>": r'\1</span><span class="sig-line">',
}


def make_accessible(app: Sphinx, error: Exception | None) -> None:
    """Repair the pages that were built."""
    for path in sorted(Path(app.outdir).rglob("*.html")) if error is None else ():
        page = path.read_text(encoding="utf-8")
        for pattern, replacement in ACCESSIBLE.items():
            page = re.sub(pattern, replacement, page, flags=re.DOTALL)
        path.write_text(page, encoding="utf-8")


def write_markdown(app: Sphinx, error: Exception | None) -> None:
    """Write each page as Markdown beside its HTML, and `llms.txt` (llmstxt.org), which lists them by their section."""
    if error is not None or app.builder.name != "html":
        return
    titles = {name: title.astext() for name, title in app.env.titles.items()}
    index = app.env.get_doctree("index")
    about = next(node.astext() for node in index.findall(paragraph)).replace("\n", " ")
    lines = [f"# {project} {release}", "", f"> {about}"]
    for tree in index.findall(toctree):
        lines += ["", f"## {tree['caption']}", ""]
        below = [each for name in tree["includefiles"] for each in app.env.toctree_includes.get(name, ())]
        lines += [f"- [{titles[name]}]({name}.md)" for name in dict.fromkeys([*tree["includefiles"], *below])]
    Path(app.outdir, "llms.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    for name in sorted(titles):
        # Comments tell the tests what to do with a box.
        page = re.sub(r"<!--.*?-->\n*", "", Path(app.env.doc2path(name)).read_text(encoding="utf-8"), flags=re.DOTALL)
        Path(app.outdir, f"{name}.md").write_text(page, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Register what the build does beside Sphinx."""
    app.add_lexer("redis", TextLexer)
    app.connect("missing-reference", resolve)
    app.connect("build-finished", make_accessible)
    app.connect("build-finished", write_markdown)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-process-signature", shorten)
