import logging
import textwrap
from pathlib import Path

import pytest

from mybert.demo import docstrings
from mybert.demo.docstrings import collect_docstrings


def paragraphs_of(docstring: str) -> list[str]:
    return list(docstrings._paragraphs(f'"""{textwrap.dedent(docstring)}"""'))


def write_package(root: Path, files: dict[str, str]) -> Path:
    for name, source in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    return root


def sentences(topic: str, count: int) -> str:
    return '"""' + "\n\n".join(f"This is sentence number {i} of the {topic}." for i in range(count)) + '"""\n'


def test_paragraphs_of_each_kind_of_string_returns_texts_only():
    text = "This is the text of a string that is {}."
    source = "".join(
        f"{opening}{text.format(word)}{opening[-3:]}\n"
        for opening, word in (
            ('"""', "plain"),
            ("'''", "single"),
            ('r"""', "raw"),
            ('f"""', "formatted"),
            ('b"""', "bytes"),
        )
    )
    assert list(docstrings._paragraphs(source)) == [text.format(word) for word in ("plain", "single", "raw")]


def test_paragraphs_of_a_docstring_returns_its_prose_without_markup():
    docstring = """\
        Computes the :func:`~torch.nn.functional.softmax` of the ``input`` along *one* given
        dimension, see `the guide <https://example.org/guide>`_ for more.

        Shape of the result
        -------------------
        The result is in the order of the points.

        >>> softmax(x)
        This is the output of the example
        array([0.1, 0.9])

        x (`Tensor`): the values of the function at
            the given points.
        z : int
            The number of the points that are used \\
            by the function.
        * The values of the list.

        ```python
        This is the code between the fences.
        ```

        The value is $a^2 + b^2$ of the formula.
        """
    assert paragraphs_of(docstring) == [
        "Computes the torch.nn.functional.softmax of the input along one given dimension, see the guide for more.",
        "The result is in the order of the points.",
        "The number of the points that are used by the function.",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Only four short words.",
        "This is a heading of the section",
        "the rest of a sentence that is cut.",
        "Dies ist ein deutscher Satz ohne englische Woerter.",
        "X[0] = {a: 1, b: 2} if the value == 3.",
        "Torch.add(a, b, *, c=1, d=2, e=3) -> the Tensor of [1, 2].",
        "See https://example.org/ for the rest of the text.",
        "DataFrame.head : Return the first rows of the table.",
    ],
)
def test_paragraphs_of_other_text_returns_nothing(text):
    assert paragraphs_of(text) == []


def test_collect_docstrings_of_a_folder_returns_each_librarys_files_once(tmp_path):
    text = sentences("guide", 2)
    root = write_package(
        tmp_path,
        {
            "zebra/__init__.py": text + '"""This is the text that only zebra has."""',
            "zebra/core/engine.py": '"""The engine runs on the fuel that it is given."""',
            "_alpha/tools.py": text,
            "single.py": '"""A single file is also a package of its own."""',
            "zebra/tests/test_engine.py": '"""This is the test of the engine of zebra."""',
            "zebra/_vendor/six.py": '"""This is a copy of the other package."""',
            "pip/core.py": '"""This is the text of the installer of packages."""',
            "mybert/demo.py": '"""This is the text of the package itself."""',
            "other-1.0.dist-info/notes.py": '"""This is the text of the metadata of a package."""',
            "silent/__init__.py": "x = 1",
        },
    )
    assert collect_docstrings(roots=[root], show_progress=False) == {
        "alpha": [["This is sentence number 0 of the guide.", "This is sentence number 1 of the guide."]],
        "single": [["A single file is also a package of its own."]],
        "zebra": [
            ["This is the text that only zebra has."],
            ["The engine runs on the fuel that it is given."],
        ],
    }


def test_collect_docstrings_with_unreadable_files_skips_and_counts_them(tmp_path, caplog):
    write_package(tmp_path, {"good.py": '"""This is the text of a good file."""'})
    (tmp_path / "bad.py").write_bytes(b'"""This is the text of \xff\xfe a bad file."""')
    (tmp_path / "broken.py").write_text('def f(:\n    """This is the text of a broken file."""')
    with caplog.at_level(logging.WARNING):
        found = collect_docstrings(roots=[tmp_path], show_progress=False)
    assert list(found) == ["broken", "good"]
    assert "1 of 3 source files could not be read" in caplog.text


def test_collect_docstrings_without_any_names_the_folder(tmp_path):
    with pytest.raises(ValueError, match=str(tmp_path)):
        collect_docstrings(roots=[tmp_path], show_progress=False)


@pytest.mark.slow
def test_collect_docstrings_of_this_installation_returns_much_text_twice_the_same():
    found = collect_docstrings(show_progress=False)
    assert found == collect_docstrings(show_progress=False)
    assert {"python", "torch", "numpy", "transformers", "tokenizers"} <= found.keys()
    assert not found.keys() & {"mybert", "pip", "setuptools"}
    paragraphs = [paragraph for files in found.values() for texts in files for paragraph in texts]
    assert len(paragraphs) == len(set(paragraphs))
    assert sum(map(len, paragraphs)) > 6_000_000
    assert not any("\n" in paragraph for paragraph in paragraphs)
    assert any("shape of the tensor" in paragraph for paragraph in paragraphs)
