"""Describe the distribution for package indexes, which have none of the files beside the README."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
RELATIVE = r"\((?!https?:|#)([^)]*)\)"


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


project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
setup(
    long_description=for_package_index(
        (ROOT / "README.md").read_text(encoding="utf-8"), project.get("urls", {}).get("Repository", "").rstrip("/")
    ),
    long_description_content_type="text/markdown",
)
