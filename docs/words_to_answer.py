"""Count the words between a question and its answer: `python docs/words_to_answer.py` prints a row for each question.

A reader with a question reads README from its first line to a link, and the linked page from its anchor to the first
command that answers. Headings, tables and code within a sentence count; blocks of code, pictures and comments do not.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[1]
MAX_WORDS = 250


class Question(NamedTuple):
    link: str  # its text in README
    command: str  # regular expression of the command or call that answers


QUESTIONS = {
    "a classifier from my own table": Question("classify", r"^mybert finetune .*--train_file"),
    "faster inference": Question("faster inference", r"^mybert predict .*--dtype bfloat16"),
    "pretraining on my own text": Question("pretrain", r"^mybert pretrain \S"),
    "question answering": Question("answer questions", r'pipeline\("question-answering"'),
    "a Google checkpoint": Question("Google's checkpoints", r"^mybert convert google \S"),
}


@dataclass(frozen=True)
class Way:
    """From README's first line to the answer of a question."""

    target: str
    words_to_link: int
    words_to_command: int

    @property
    def words(self) -> int:
        return self.words_to_link + self.words_to_command


def way_to(question: Question, readme: Path = ROOT / "README.md") -> Way:
    """Follow a question's link.

    Raises:
        LookupError: If README has no such link, or its target no such heading or no such command below it.
        OSError: If the linked page does not exist.
    """
    target, words_to_link = find_link(readme, question.link)
    page, _, anchor = target.partition("#")
    return Way(target, words_to_link, words_to_command(readme.parent / page if page else readme, anchor, question))


def find_link(page: Path, text: str) -> tuple[str, int]:
    """The target of the first link with this text, and the number of words before it."""
    count = 0
    for token in tokens_of(page):
        children = token.children or []
        for index, child in enumerate(children):
            if child.type == "link_open" and link_text(children[index + 1 :]) == text:
                return unquote(str(child.attrs["href"])), count
            count += words_of(child)
    raise LookupError(f"{page} has no link [{text}](...).")


def words_to_command(page: Path, anchor: str, question: Question) -> int:
    """The number of words from an anchor, or from the first line, to the code with the command."""
    tokens = tokens_of(page)
    start = 0
    if anchor:
        titles = [index for index, token in enumerate(tokens) if token.type == "heading_open"]
        start = next((index for index in titles if slug(tokens[index + 1].content) == anchor), -1)
        if start < 0:
            raise LookupError(f"{page} has no heading #{anchor}.")
    count = 0
    for token in tokens[start:]:
        if token.type in ("fence", "code_block") and re.search(question.command, token.content, re.MULTILINE):
            return count
        count += sum(map(words_of, token.children or []))
    raise LookupError(f"{page} has no code that matches {question.command!r} below #{anchor}.")


def tokens_of(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))


def link_text(tokens: list[Token]) -> str:
    """The text of the link that these tokens begin in."""
    end = next(index for index, token in enumerate(tokens) if token.type == "link_close")
    return "".join(" " if token.type == "softbreak" else token.content for token in tokens[:end])


def words_of(token: Token) -> int:
    """The number of words; punctuation between spaces is none."""
    return len(re.findall(r"\S*\w\S*", token.content)) if token.type in ("text", "code_inline") else 0


def slug(title: str) -> str:
    """The anchor of a heading, as on GitHub."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def main() -> int:
    ways = {name: way_to(question) for name, question in QUESTIONS.items()}
    for name, way in ways.items():
        print(f"{way.words:4d} = {way.words_to_link:3d} + {way.words_to_command:3d}  {name}: {way.target}")
    return int(max(way.words for way in ways.values()) > MAX_WORDS)


if __name__ == "__main__":
    sys.exit(main())
