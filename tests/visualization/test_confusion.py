import numpy as np
import pytest
from PIL import Image

from mybert.visualization import confusion_picture
from mybert.visualization.confusion import MOST_CLASSES, _with_most_mistakes


def test_a_matrix_is_drawn_the_same_way_every_time(tmp_path):
    confusion = {("bad", "bad"): 7, ("bad", "good"): 2, ("good", "good"): 1200, ("좋음", "good"): 1}
    first = confusion_picture(confusion, ["bad", "good", "좋음"], tmp_path / "a.png")
    second = confusion_picture(confusion, ["bad", "good", "좋음"], tmp_path / "b.png")
    assert first.read_bytes() == second.read_bytes()
    with Image.open(first) as picture:
        assert picture.size[0] > 300 and len(picture.getcolors(1 << 20)) > 3


def test_of_many_classes_those_with_most_mistakes_are_shown(tmp_path):
    counts = np.diag(np.full(100, 50))
    counts[70, 3] = 9
    counts[5, 6] = 1
    names, smaller = _with_most_mistakes([str(n) for n in range(100)], counts)
    assert len(names) == MOST_CLASSES and names[-1] == "(all others)" and {"70", "3", "5", "6"} <= set(names)
    assert names[:-1] == sorted(names[:-1], key=int)
    assert smaller.sum() == counts.sum() and smaller[names.index("70"), names.index("3")] == 9
    confusion = {(f"class {row}", f"class {column}"): int(counts[row, column]) for row, column in np.argwhere(counts)}
    path = confusion_picture(confusion, [f"class {n}" for n in range(100)], tmp_path / "many.png")
    with Image.open(path) as picture:
        assert max(picture.size) < 3000


def test_names_of_classes_are_no_formulas(tmp_path):
    confusion_picture({("$0_$9", "$0_$9"): 1, ("a^$_$", "$0_$9"): 1}, ["$0_$9", "a^$_$"], tmp_path / "a.png")
    assert (tmp_path / "a.png").is_file()


def test_what_cannot_be_drawn_is_refused(tmp_path):
    with pytest.raises(ValueError, match="confusion matrix is empty"):
        confusion_picture({}, ["a"], tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"must end in \.png"):
        confusion_picture({("a", "a"): 1}, ["a"], tmp_path / "a.html")
