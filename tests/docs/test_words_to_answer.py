"""README leads to the answers of frequent questions within a few words."""

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "words_to_answer.py"))
Question, way_to = SCRIPT["Question"], SCRIPT["way_to"]
README = """# A title

![three more words](a.png) Read the [page](page.md#the-answer) <!-- not these words -->.

    code of three words
"""
PAGE = """# Page

Words above the anchor.

## The `answer`

Run this:

```bash
other words
```

| or | that |
|---|---|
| a | `b` |

    answer now
"""


@pytest.fixture
def readme(tmp_path):
    (tmp_path / "page.md").write_text(PAGE)
    (tmp_path / "README.md").write_text(README)
    return tmp_path / "README.md"


@pytest.mark.parametrize("question", SCRIPT["QUESTIONS"])
def test_way_to_question_has_few_words(question):
    way = way_to(SCRIPT["QUESTIONS"][question])
    assert way.words <= SCRIPT["MAX_WORDS"], way


def test_way_to_counts_words_without_code_and_pictures(readme):
    way = way_to(Question("page", "^answer"), readme)
    assert (way.target, way.words_to_link, way.words_to_command) == ("page.md#the-answer", 4, 8)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[page]", "[other]", r"no link \[page\]"),
        ("#the-answer", "#the-question", "no heading #the-question"),
        ("page.md#the-answer", "#a-title", "no code"),
    ],
)
def test_way_to_broken_way_raises_lookup_error(readme, old, new, message):
    readme.write_text(README.replace(old, new))
    with pytest.raises(LookupError, match=message):
        way_to(Question("page", "^answer"), readme)


def test_way_to_missing_page_raises_os_error(readme):
    (readme.parent / "page.md").unlink()
    with pytest.raises(OSError, match=r"page\.md"):
        way_to(Question("page", "^answer"), readme)
