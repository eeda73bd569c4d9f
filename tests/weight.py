"""Lines of source and tests and words of documents, against the budgets in pyproject.toml; exit 1 where one is over."""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("harness", "impls", "reports", "normbwd.py")
SUFFIXES = (".py", ".js", ".html", ".css")
ITEM = re.compile(r"\s*([-*]|\d+\.) ")


def lines_of(*paths: Path) -> int:
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*"))]
    return sum(file.read_text(encoding="utf-8").count("\n") for file in files if file.suffix in SUFFIXES)


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs and items of lists; no headings, tables, comments or code."""
    gathered: list[str] = []
    fenced = False
    for line in [*text.splitlines(), ""]:
        fenced ^= line.startswith("```")
        is_text = not fenced and line.strip() and not line.startswith(("    ", "#", "|", "<!--", "```"))
        if gathered and (not is_text or ITEM.match(line)):
            yield " ".join(gathered)
            gathered = []
        if is_text:
            gathered.append(line)


def faults_of(name: str, text: str, most_words: int, most_characters: int) -> Iterator[str]:
    for paragraph in paragraphs(text):
        if (words := len(paragraph.split())) > most_words:
            yield f"{name}: {words} words in one paragraph, at most {most_words}: {paragraph[:60]}..."
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("|") and len(line) > most_characters:
            yield f"{name}:{number}: {len(line)} characters in a line of a table, at most {most_characters}"


def main() -> int:
    budgets = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["normbwd"]["weight"]
    documents = {path: path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]}
    readme = documents[ROOT / "README.md"]
    packages = [ROOT / name for name in SOURCES]
    for package in [part for path in packages for part in (path, *sorted(path.glob("[!_]*/")))]:
        sys.stdout.write(f"{lines_of(package):8}  {package.relative_to(ROOT)}\n")
    counts = {
        "source": lines_of(*packages),
        "tests": lines_of(ROOT / "tests"),
        "words": sum(len(text.split()) for text in documents.values()),
        "readme_words": len(readme.split()),
    }
    faults = []
    for what, count in counts.items():
        sys.stdout.write(f"{count:8}  {what} (at most {budgets[what]})\n")
        if count > budgets[what]:
            faults.append(f"{what}: {count}, at most {budgets[what]}")
    for path, text in documents.items():
        limits = budgets["paragraph_words"], budgets["table_characters"]
        faults += faults_of(str(path.relative_to(ROOT)), text, *limits)
    sys.stdout.writelines(f"too much: {fault}\n" for fault in faults)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
