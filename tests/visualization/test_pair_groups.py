"""Bars of the accuracy by group, from reports of `mybert score`."""

import json

import pytest

from mybert import cli
from mybert.files.errors import SettingError
from mybert.visualization import accuracy_bars

matplotlib = pytest.importorskip("matplotlib", reason="pictures need matplotlib")
pytest.importorskip("matplotlib.axes")


def write_report(path, **accuracies):
    groups = {"UID": {"p": 0.5, "q": 0.25, "$r$": 1.0}, "term": accuracies}
    path.write_text(json.dumps({"accuracy": 0.5, "groups": groups}))
    return path


def test_accuracy_bars_are_those_of_the_last_column_by_model(tmp_path, monkeypatch):
    drawn, barh = [], matplotlib.axes.Axes.barh

    def keep(ax, heights, values, *args, **looks):
        drawn.append((looks["label"], [*values], heights))
        return barh(ax, heights, values, *args, **looks)

    monkeypatch.setattr(matplotlib.axes.Axes, "barh", keep)
    reports = [
        write_report(tmp_path / "first.json", easy=0.9, hard=0.2),
        write_report(tmp_path / "second.json", easy=0.8, hard=0.4),
    ]
    output = tmp_path / "bars.png"
    assert cli.main(["curves", *map(str, reports), "--output", str(output)]) == 0
    assert [each[:2] for each in drawn] == [("first", [20, 90, 50]), ("second", [40, 80, 50])]
    assert all(above > below for above, below in zip(drawn[0][2], drawn[1][2], strict=True))
    image = matplotlib.image.imread(output)
    assert image.shape[1] == 6.4 * 150 and (image[..., :3] < 0.9).any()
    assert accuracy_bars(reports[0], tmp_path / "one.png") == tmp_path / "one.png"


def test_accuracy_bars_of_wrong_reports_are_one_sentence(tmp_path):
    good = write_report(tmp_path / "good.json", easy=0.9)
    other = write_report(tmp_path / "other.json", hard=0.9)
    many = write_report(tmp_path / "many.json", **{f"g{number}": 0.5 for number in range(101)})
    single, broken = tmp_path / "single.json", tmp_path / "broken.json"
    single.write_text('{"rows": 3, "accuracy": 0.5}')
    broken.write_text('{"groups": {"UID": 3}, "accuracy": 0.5}')
    for files, message in (
        ([good, other], "other.json has other groups than .*good.json; expected reports on the same pairs"),
        ([many], "101 groups; expected at most 100"),
        ([single], "single.json has no groups; score minimal pairs with group_columns and report"),
        ([broken], "broken.json has other groups than mybert score writes"),
        ([good] * 8, "There are 8 reports; expected one to 7"),
    ):
        with pytest.raises(ValueError, match=message):
            accuracy_bars(files, tmp_path / "bars.png")
    with pytest.raises(SettingError, match="output is not set; expected a PNG file"):
        accuracy_bars(good, None)
    assert not (tmp_path / "bars.png").exists()
