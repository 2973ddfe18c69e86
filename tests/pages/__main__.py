"""List the pages of docs/ with the number of their boxes by language, and what executes those with code."""

from collections import Counter

from tests.pages.boxes import boxes, code, elsewhere, pages


def main() -> None:
    for page in pages():
        counts = Counter(language or "plain" for language, _ in boxes(page))
        other = elsewhere(page)
        by = f"{other.by}: {other.reason}" if other else "tests/pages"
        listed = ", ".join(f"{count} {language}" for language, count in sorted(counts.items()))
        print(f"docs/{page}.md: {listed or 'no boxes'}{f'; {by}' if code(page) else ''}")  # noqa: T201


if __name__ == "__main__":
    main()
