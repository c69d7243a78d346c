import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from mybert.visualization import InputPicture, confusion_picture, input_picture
from mybert.visualization import input_and_confusion as drawing
from mybert.visualization.input_and_confusion import MAX_CLASSES, _with_most_mistakes

HOSTILE = ["</b><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "&amp;&", "\"'", "{{title}}", "\\1"]


def test_confusion_picture_numbers_classes_that_no_font_can_write(monkeypatch, tmp_path, caplog):
    figures = []
    monkeypatch.setattr(drawing, "write_figure", lambda figure, path: figures.append(figure))
    monkeypatch.setattr(drawing, "fonts_for", lambda text: ([], "".join(filter("긍정".count, text))))
    confusion_picture({("긍정", "긍정"): 1}, ["bad", "긍정"], tmp_path / "a.png")
    (axes,) = figures[0].axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2"]
    assert axes.get_xlabel() == "predicted (numbers: the classes in their order)"
    assert "(1 bad, 2 긍정); install one that does, such as Noto Sans CJK (fonts-noto-cjk)" in caplog.text
    assert figures[0].get_supxlabel().split() == ["1", "bad,", "2", "□□"]
    confusion_picture({("bad", "bad"): 1}, ["bad"], tmp_path / "a.png")
    assert not figures[1].get_supxlabel()


def test_fields_are_what_the_network_is_given(tokenizer):
    picture = input_picture(tokenizer, "the cats sat.", "it slept.", max_length=12)
    assert picture.tokens == "[CLS] the cat ##s sat . [SEP] it slept . [SEP] [PAD]".split()
    assert tokenizer.convert_ids_to_tokens(picture.token_ids) == picture.tokens
    assert picture.segments == [0] * 7 + [1] * 4 + [0]
    assert list(picture.positions) == list(range(12))
    assert picture.mask == [1] * 11 + [0]


def test_length_is_that_of_the_text_or_cut(tokenizer):
    assert input_picture(tokenizer, "the cat sat").tokens == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    assert input_picture(tokenizer, "the cat sat", max_length=4).tokens == ["[CLS]", "the", "cat", "[SEP]"]
    assert len(input_picture(tokenizer, "the cat sat", "it slept", max_length=4).tokens) == 4
    with pytest.raises(ValueError, match="max_length is 3; 3 special tokens and a token need 4"):
        input_picture(tokenizer, "the cat", "it slept", max_length=3)
    with pytest.raises(ValueError, match="max_length is 0; 2 special tokens and a token need 3"):
        input_picture(tokenizer, "the cat", max_length=0)


def test_picture_file(tokenizer, tmp_path):
    picture = input_picture(tokenizer, "the cat sat on a mat.", "it slept.", max_length=28)
    image = imread(picture.save(tmp_path / "input.png"))[..., :3]
    for fill in ("#fbeaa4", "#cfe6f5", "#fbd7bd", "#d3ecd0", "#e4e4e4"):
        color = np.array(to_rgb(fill))
        assert (np.abs(image - color).max(-1) < 0.01).sum() > 1000
    (axes,) = picture.figure().axes
    texts = [text.get_text() for text in axes.texts]
    assert "cat" in texts and "$E_{27}$" in texts and texts.count("Mask") == 2  # two lines of at most 14 tokens
    assert axes.get_ylim() == (10.6, -0.6)  # five rows each, and one between them

    count = len(HOSTILE)
    hostile = InputPicture(
        [*HOSTILE, "$x^2_", "x" * 200], range(count + 2), [0] * (count + 2), range(count + 2), [1] * (count + 2)
    )
    assert hostile.save(tmp_path / "hostile.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="must end in"):
        picture.save(tmp_path / "input.jpg")


def test_a_confusion_matrix_is_drawn_the_same_way_every_time(tmp_path):
    confusion = {("bad", "bad"): 7, ("bad", "good"): 2, ("good", "good"): 1200, ("좋음", "good"): 1}
    first = confusion_picture(confusion, ["bad", "good", "좋음"], tmp_path / "a.png")
    second = confusion_picture(confusion, ["bad", "good", "좋음"], tmp_path / "b.png")
    assert first.read_bytes() == second.read_bytes()
    image = imread(first)
    assert image.shape[1] > 300 and len(np.unique(image.reshape(-1, image.shape[-1]), axis=0)) > 3


def test_of_many_classes_those_with_most_mistakes_are_shown(tmp_path):
    counts = np.diag(np.full(100, 50))
    counts[70, 3] = 9
    counts[5, 6] = 1
    names, smaller = _with_most_mistakes([str(n) for n in range(100)], counts)
    assert len(names) == MAX_CLASSES and names[-1] == "(all others)" and {"70", "3", "5", "6"} <= set(names)
    assert names[:-1] == sorted(names[:-1], key=int)
    assert smaller.sum() == counts.sum() and smaller[names.index("70"), names.index("3")] == 9
    confusion = {(f"class {row}", f"class {column}"): int(counts[row, column]) for row, column in np.argwhere(counts)}
    path = confusion_picture(confusion, [f"class {n}" for n in range(100)], tmp_path / "many.png")
    assert max(imread(path).shape) < 3000


def test_names_of_classes_are_no_formulas(tmp_path):
    confusion_picture({("$0_$9", "$0_$9"): 1, ("a^$_$", "$0_$9"): 1}, ["$0_$9", "a^$_$"], tmp_path / "a.png")
    assert (tmp_path / "a.png").is_file()


def test_pictures_of_wrong_inputs_are_errors(tmp_path):
    with pytest.raises(ValueError, match="confusion matrix is empty"):
        confusion_picture({}, ["a"], tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"must end in \.png"):
        confusion_picture({("a", "a"): 1}, ["a"], tmp_path / "a.html")
