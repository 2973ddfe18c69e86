"""Describe the distribution for package indexes, which have none of the files beside the README."""

import re
import tomllib
from pathlib import Path

from setuptools import find_namespace_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
RELATIVE = r"\((?!https?:|#)([^)]*)\)"


class WithPages(build_py):
    """Take the pages of the documentation, and not the program that makes a site of them."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        return [] if package == PAGES else super().find_package_modules(package, package_dir)  # type: ignore[no-any-return]


def for_package_index(text: str, repository: str = "") -> str:
    """Return Markdown whose links and pictures lead into the repository.

    Without its address, pictures go, and links become their text and path.
    """
    text = re.sub(r"<!--.*?-->\n*", "", text, flags=re.DOTALL)
    if repository:
        text = re.sub(r"(!\[[^]]*\])" + RELATIVE, rf"\1({repository}/raw/HEAD/\2)", text)
        text = re.sub(r"(\[[^]]*\])" + RELATIVE, rf"\1({repository}/blob/HEAD/\2)", text)
    text = re.sub(r":? ?!\[[^]]*\]" + RELATIVE, "", text)
    text = re.sub(
        r"\[([^]]*)\]" + RELATIVE,
        lambda link: link[1] if link[2].startswith(link[1]) else f"{link[1]} ({link[2]})",
        text,
    )
    return re.sub(r"\n{3,}", "\n\n", text)


#: Where a wheel has the pages of the documentation, for `manage.py mq help`.
PAGES = "mq_django.pages"
PATTERNS = ["*.md", "howto/*.md", "reference/*.md", "coming-from/*.md"]
DATA = ["*.lua", "*.html", "*.txt", "*.css", "*.js", "*.svg", "*.mo", "*.po", "*.pyi", "py.typed"]
project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
setup(
    cmdclass={"build_py": WithPages},
    long_description=for_package_index(
        (ROOT / "README.md").read_text(encoding="utf-8"), project.get("urls", {}).get("Repository", "").rstrip("/")
    ),
    long_description_content_type="text/markdown",
    # Namespace packages: folders of data, too, such as lua and templates. Tests and the example project are not
    # for users.
    packages=[
        *find_namespace_packages(include=["mq_django", "mq_django.*"], exclude=["*.__pycache__", "*.__pycache__.*"]),
        PAGES,
    ],
    package_dir={PAGES: "docs"},
    package_data={PAGES: PATTERNS, "": DATA},
)
