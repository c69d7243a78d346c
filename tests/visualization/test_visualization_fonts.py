import logging

import pytest

from mybert.files.output import files_written_beside
from mybert.visualization import pictures

pytest.importorskip("matplotlib")


@pytest.fixture(params=[list, lambda faces: faces[::-1]], ids=["bold first", "regular first"])
def fonts(request, monkeypatch):
    """Fonts in any order: one with Korean letters, one of another script, and matplotlib's own in two faces."""
    from matplotlib.font_manager import FontEntry, fontManager

    faces = [font for font in fontManager.ttflist if font.name == "DejaVu Sans" and font.style == "normal"]
    own, bold = (next(font for font in faces if font.weight == weight) for weight in (400, 700))
    letters = {
        "korean": frozenset("한국어"),
        "other": frozenset("ሀ"),
        own.fname: frozenset("abc "),
        bold.fname: frozenset("한"),
    }
    entries = [FontEntry(fname=name, name=f"A {name} font") for name in ("korean", "other")]
    monkeypatch.setattr(fontManager, "ttflist", request.param([*entries, bold, own]))
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", list)
    monkeypatch.setattr(pictures, "_letters", lambda file: letters[file])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b", (["DejaVu Sans"], "")),
        ("a 한", (["DejaVu Sans", "A korean font"], "")),
        ("ሀ어", (["DejaVu Sans", "A korean font", "A other font"], "")),
        ("한글", (["DejaVu Sans", "A korean font", "A other font"][:2], "글")),
    ],
)
def test_fonts_are_found_by_their_letters(fonts, text, expected):
    assert pictures.fonts_for(text) == expected


def test_letters_of_no_font_are_said_once(fonts, tmp_path, caplog, recwarn):
    caplog.set_level(logging.WARNING, "mybert")
    figure = pictures.new_figure(2, 2)
    figure.text(0, 0, "글자 글자")
    figure.suptitle("글")
    pictures.write_figure(figure, tmp_path / "a.png")
    (message,) = caplog.messages
    assert "No installed font has 글 자, of " in message and "fonts-noto-cjk" in message
    assert not recwarn.list
    figure = pictures.new_figure(2, 2)
    figure.text(0, 0, "abc")
    pictures.write_figure(figure, tmp_path / "b.png")
    assert len(caplog.messages) == 1


def test_fonts_for_fonts_that_matplotlibs_cache_lacks_reads_their_files(tmp_path, monkeypatch):
    """As after the installation of a font package."""
    from matplotlib.font_manager import FontManager, fontManager

    listed = [face for face in fontManager.ttflist if face.name == "DejaVu Sans"]
    new = next(face.fname for face in fontManager.ttflist if face.name == "STIXGeneral")
    monkeypatch.setattr(fontManager, "ttflist", listed)
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda: [str(tmp_path / "broken.ttf"), new])
    regular = next(face.fname for face in listed if (face.weight, face.style) == (400, "normal"))
    letter = min(pictures._letters(new) - pictures._letters(regular))
    assert pictures.fonts_for(letter) == (["DejaVu Sans", "STIXGeneral"], "")
    added = []
    monkeypatch.setattr(FontManager, "addfont", lambda _, file: added.append(file))
    assert pictures.fonts_for("\U0010fffd") == (["DejaVu Sans"], "\U0010fffd") and not added  # each file is read once


def test_fonts_for_a_font_whose_file_is_gone_or_broken_finds_another(tmp_path, monkeypatch):
    """As after the removal of a font package, which matplotlib's cache still lists."""
    from matplotlib.font_manager import FontEntry, fontManager

    (tmp_path / "broken.ttf").write_bytes(b"no font")
    lost = [FontEntry(fname=str(tmp_path / name), name=f"A {name}") for name in ("broken.ttf", "gone.ttf")]
    monkeypatch.setattr(fontManager, "ttflist", [*lost, *fontManager.ttflist])
    names, lacking = pictures.fonts_for("∫")
    assert not lacking and not {face.name for face in lost} & {*names}
    assert pictures._letters(lost[0].fname) == pictures._letters(lost[1].fname) == frozenset()


def test_write_figure_in_a_temporary_folder_names_the_final_file(fonts, tmp_path, caplog):
    with files_written_beside(tmp_path) as folder:
        figure = pictures.new_figure(2, 2)
        figure.suptitle("글")
        pictures.write_figure(figure, folder / "a.png")
    (message,) = caplog.messages
    assert f", of {tmp_path}/a.png: boxes" in message


def test_fonts_for_letters_of_private_use_says_that_no_font_has_them():
    """matplotlib's font of last resort has a box for each of them."""
    assert pictures.fonts_for("a\U0010fffd") == (["DejaVu Sans"], "\U0010fffd")
