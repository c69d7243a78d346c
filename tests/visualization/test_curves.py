import json
import math
import sys
from functools import partial

import numpy as np
import pytest

from mybert.visualization import curves as drawing
from mybert.visualization import learning_curves, plot_run, training_curves
from mybert.visualization.commands import draw_run
from mybert.visualization.settings import CurvesSettings

matplotlib = pytest.importorskip("matplotlib", reason="training curves need matplotlib")


def pretraining_history(logs=60):
    history = []
    for i in range(1, logs + 1):
        loss = {"mlm_loss": 2 + 6 / i, "nsp_loss": 0.7 - 0.004 * i}
        accuracy = {"mlm_accuracy": 0.5 * i / logs, "nsp_accuracy": 0.5 + 0.3 * i / logs}
        values = {"loss": sum(loss.values()), **loss, **accuracy}
        history.append({"step": 10 * i, "epoch": i / logs, "learning_rate": 1e-3 / i, "grad_norm": 1.0, **values})
        if i % 20 == 0:
            evaluation = {f"eval_{key}": value for key, value in values.items()}
            history.append({"step": 10 * i, "eval_runtime": 2.0, "eval_samples_per_second": 9.0, **evaluation})
    history.append({"step": 10 * logs, "train_runtime": 33.0, "train_loss": 3.0, "total_flos": 1e9})
    return history


def panel_titles(history):
    return [panel.title for panel in drawing._panels([drawing._curves(history)])]


def test_pretraining_run_has_a_panel_per_quantity(tmp_path):
    assert panel_titles(pretraining_history()) == [
        "Masked LM loss",
        "Next sentence loss",
        "Masked LM accuracy",
        "Next sentence accuracy",
        "Learning rate",
        "Gradient norm",
    ]
    path = training_curves(pretraining_history(), tmp_path / "curves.png", title="Run")
    image = matplotlib.image.imread(path)
    height, width = image.shape[:2]
    assert width == 3 * 3.6 * 150 and height == pytest.approx((2 * 2.5 + 0.6) * 150, abs=1)
    for color in (drawing._TRAINING_COLOUR, drawing._EVALUATION_COLOUR):
        wanted = np.array(matplotlib.colors.to_rgb(color))
        assert (np.abs(image[..., :3] - wanted).max(axis=-1) < 0.01).sum() > 200


def test_guessing_is_drawn_where_it_was_measured(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(matplotlib.axes.Axes, "axhline", lambda ax, height, **kwargs: drawn.append(height))
    history = pretraining_history()
    training_curves(history, tmp_path / "curves.png")
    assert not drawn  # more than half of the pairs are random, but the share was not measured
    history.append({"step": 600, "eval_nsp_majority": 0.6})
    training_curves(history, tmp_path / "curves.png")
    assert drawn == [pytest.approx(-0.6 * math.log(0.6) - 0.4 * math.log(0.4)), 0.6]


def test_fine_tuning_run_shows_the_loss_and_every_evaluation_metric():
    history = [
        {"step": 10, "loss": 0.7, "learning_rate": 1e-5, "grad_norm": 2.0},
        {"step": 20, "eval_loss": 0.6, "eval_accuracy": 0.7, "eval_matthews_correlation": 0.3, "eval_runtime": 1.0},
    ]
    assert panel_titles(history) == ["Loss", "Accuracy", "Matthews correlation", "Learning rate", "Gradient norm"]
    assert panel_titles([{"step": 1, "mlm_loss": 5.0, "loss": 5.0}]) == ["Loss", "Masked LM loss"]


def test_training_curves_show_small_changes_as_small_and_no_single_points(monkeypatch, tmp_path):
    figures = []
    monkeypatch.setattr(drawing, "write_figure", lambda figure, path: figures.append(figure))
    history = [{"step": step, "loss": 1 - step / 1000, "eval_accuracy": 0.5 + step / 1000} for step in (1, 2)]
    training_curves([*history, {"step": 2, "eval_f1": 0.5}], tmp_path / "a.png")
    spans = [high - low for low, high in (ax.get_ylim() for ax in figures[0].axes)]
    assert spans == pytest.approx([0.2, 0.1], rel=0.01)


@pytest.mark.parametrize(
    ("first", "last", "evaluated", "said"),
    [
        (0.4, 0.15, 0.151, " (40–15 %, evaluation 15 %)"),
        (0.4, 0.4, 0.15, " (40 %, evaluation 15 %)"),
        (0.15, 0.16, 0.15, ""),
        (0.4, 0.4, None, ""),
    ],
)
def test_training_curves_name_masked_shares_that_differ(monkeypatch, tmp_path, first, last, evaluated, said):
    figures = []
    monkeypatch.setattr(drawing, "write_figure", lambda figure, path: figures.append(figure))
    history = [*pretraining_history(), {"step": 1, "mlm_share": first}, {"step": 600, "mlm_share": last}]
    training_curves([*history, {"step": 600, "eval_mlm_share": evaluated}], tmp_path / "a.png")
    texts = [text.get_text() for ax in figures[0].axes for text in ax.texts]
    units = ["nats per masked token", "% of masked tokens"]
    assert [text for text in texts if "masked" in text] == [f"{unit}{said}" for unit in units]


@pytest.mark.parametrize(
    ("logged", "drawn"),
    [
        ({"accuracy": 0.7, "macro_f1": 0.5}, {"Accuracy": 70, "Macro f1": 50}),
        ({"exact_match": 0.25, "f1": 0.5}, {"Exact match": 0.25, "F1": 0.5}),  # of questions: already in per cent
        ({"exact": 62.5, "HasAns_f1": 75.0}, {"Exact": 62.5, "HasAns f1": 75}),
        ({"matched_accuracy": 0.7, "pearson": 0.5, "PER_f1": 1.0}, {"Matched accuracy": 70, "PER f1": 100}),
        ({"f1": 88.0, "rmse": 3.5}, {"F1": 88}),  # of another program
    ],
)
def test_training_curves_of_accuracy_and_f1_are_in_per_cent(monkeypatch, tmp_path, logged, drawn):
    figures = []
    monkeypatch.setattr(drawing, "write_figure", lambda figure, path: figures.append(figure))
    entry = {f"eval_{name}": value for name, value in logged.items()}
    training_curves([{"step": 1, **entry}, {"step": 2, **entry}], tmp_path / "a.png")
    panels = {ax.get_title(loc="left"): ax for ax in figures[0].axes if ax.get_visible()}
    units = {
        title: [text.get_text() for text in ax.texts if text.get_position() == (0, 5)] for title, ax in panels.items()
    }
    assert {title for title, unit in units.items() if unit == ["%"]} == set(drawn)
    for title, percent in drawn.items():
        ax = panels[title]
        assert 100 * ax.lines[0].get_ydata()[-1] == pytest.approx(percent) and ax.get_ylim()[1] <= 1
        assert ax.yaxis.get_major_formatter()(0.5, 0).startswith("50")


def test_curves_keep_finite_numbers_and_the_last_value_of_a_step():
    history = [
        {"step": 20, "loss": 2.0},
        {"step": 10, "loss": 3.0},
        {"step": 20, "loss": 1.0},
        {"step": 30, "loss": math.nan, "grad_norm": math.inf},
        {"loss": 9.0},
        {"step": 40, "loss": "broken", "eval_ok": True},
        {"step": 50, "loss": 10**400, "grad_norm": 1e300},
        {"step": 10**400, "loss": 1.0},
    ]
    curves = drawing._curves(history)
    assert set(curves) == {"loss", "step"}
    steps, values = curves["loss"]
    assert steps.tolist() == [10, 20] and values.tolist() == [3.0, 1.0]


def test_moving_average_is_the_mean_of_the_neighbors():
    values = np.random.default_rng(0).normal(size=100)
    smoothed = drawing._moving_average(values)
    expected = [values[max(0, i - 2) : i + 3].mean() for i in range(100)]
    np.testing.assert_allclose(smoothed, expected, rtol=1e-9, atol=1e-12)


def test_same_history_same_bytes_and_no_state_left_behind(tmp_path):
    before = dict(matplotlib.rcParams)
    history = pretraining_history()
    first = training_curves(history, tmp_path / "first.png").read_bytes()
    second = training_curves(history, tmp_path / "second.png").read_bytes()
    assert first == second
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.png", "second.png"]
    assert dict(matplotlib.rcParams) == before
    assert b"Software" not in first and b"Date" not in first


def test_names_are_no_formulas(tmp_path):
    path = training_curves([{"step": 1, "loss": 0.5, "eval_$^$": 0.5}], tmp_path / "a.png", title="run $0_$")
    assert path.is_file()


def test_a_failing_drawing_keeps_the_old_picture(tmp_path, monkeypatch):
    path = training_curves(pretraining_history(), tmp_path / "curves.png")
    old = path.read_bytes()

    def fail(figure, file, **_):
        file.write_bytes(b"half a picture")
        raise OSError("disk full")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        training_curves(pretraining_history(), path)
    assert path.read_bytes() == old and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("history", [[], [{"step": 1, "train_runtime": 3.0}], [{"loss": 1.0}]])
def test_nothing_to_draw(tmp_path, history):
    with pytest.raises(ValueError, match=f"nothing to draw: none of its {len(history)} entries"):
        training_curves(history, tmp_path / "curves.png")
    assert not list(tmp_path.iterdir())


def test_plot_run_reads_the_folder_or_its_newest_checkpoint(tmp_path):
    run = tmp_path / "my_run"
    for step in (90, 100):
        folder = run / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": [{"step": step, "loss": 1.0}]}))
    newest = plot_run(run).read_bytes()
    history = [{"step": 100, "loss": 1.0}]
    assert newest == training_curves(history, tmp_path / "expected.png", title="my_run").read_bytes()

    (run / "trainer_state.json").write_text(json.dumps({"log_history": pretraining_history()}))
    path = plot_run(run, tmp_path / "other.png")
    assert path == tmp_path / "other.png" and path.read_bytes() != newest


@pytest.fixture
def figures(monkeypatch):
    """The figures that would be written."""
    found = []
    monkeypatch.setattr(drawing, "write_figure", lambda figure, path: found.append(figure) or path)
    return found


def write_run(folder, history):
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    return folder


def test_plot_run_of_several_runs_overlays_them_under_their_names(tmp_path, figures):
    loss = [{"step": step, "loss": 1 / step, "learning_rate": 1e-4} for step in (1, 2, 3)]
    runs = [
        write_run(tmp_path / "a" / "out", [*loss, {"step": 3, "eval_loss": 0.5, "eval_f1": 0.25}]),
        write_run(tmp_path / "b" / "out", [*loss[:2], {"step": 2, "eval_loss": 0.75, "eval_f1": 0.5}]),
        write_run(tmp_path / "c", [*loss, {"step": 5, "loss": 0.125}]),
    ]
    plot_run(runs, tmp_path / "curves.png")
    (figure,) = figures
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["Loss", "F1", "Learning rate"]
    names = ["a/out", "b/out", "tmp/c".replace("tmp", tmp_path.name), "training", "evaluation"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == names
    colors = [line.get_color() for line in figure.legends[0].get_lines()[:3]]
    drawn = [(line.get_color(), line.get_label(), list(line.get_ydata())) for line in figure.axes[0].lines]
    assert drawn == [
        (colors[0], "training", [1, 1 / 2, 1 / 3]),
        (colors[0], "evaluation", [0.5]),
        (colors[1], "training", [1, 1 / 2]),
        (colors[1], "evaluation", [0.75]),
        (colors[2], "training", [1, 1 / 2, 1 / 3, 0.125]),
    ]
    assert len(set(colors)) == 3 and {ax.get_xlim() for ax in figure.axes} == {(0, 5)}
    ends = [(text.get_text(), text.get_color()) for text in figure.axes[0].texts if text.get_text() != "nats"]
    assert ends == [("0.125", colors[2]), ("0.5", colors[0]), ("0.75", colors[1])]


def test_plot_run_of_several_long_runs_draws_their_means_alone(tmp_path, figures):
    losses = [[1 + (step % 2) * height for step in range(400)] for height in (1, 2)]
    runs = [
        write_run(tmp_path / str(number), [{"step": step, "loss": loss} for step, loss in enumerate(values, start=1)])
        for number, values in enumerate(losses)
    ]
    plot_run(runs, tmp_path / "both.png")
    plot_run(runs[0], tmp_path / "one.png")
    both, one = (figure.axes[0].lines for figure in figures)
    assert [max(line.get_ydata()) < 2 + number for number, line in enumerate(both)] == [True, True]
    assert [max(line.get_ydata()) < 2 for line in one] == [False, True]  # of one run, also what was logged


def test_plot_run_of_several_runs_moves_their_last_values_apart_below_the_top(tmp_path, figures):
    runs = [
        write_run(tmp_path / str(number), [{"step": step, "eval_f1": 0.9 - step * number / 1e4} for step in (1, 2)])
        for number in range(7)
    ]
    plot_run(runs, tmp_path / "curves.png")
    heights = sorted(text.xy[1] for text in figures[0].axes[0].texts if text.get_text()[0].isdigit())
    assert len(heights) == 7 and heights[-1] <= 1 and min(np.diff(heights)) > 0.0999


def test_plot_run_of_several_runs_says_what_it_lacks(tmp_path):
    run = write_run(tmp_path / "run", [{"step": 1, "loss": 1.0}])
    with pytest.raises(ValueError, match="output is not set; expected a PNG file for the curves of several runs"):
        plot_run([run, run])
    with pytest.raises(ValueError, match="There are 8 runs; expected one to 7, each with a color"):
        plot_run([run] * 8, tmp_path / "a.png")
    with pytest.raises(FileNotFoundError, match=r"none holds no trainer_state.json"):
        plot_run([run, tmp_path / "none"], tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


def test_learning_curves_join_rows_of_the_same_name_and_show_standard_errors(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(
        "mybert.visualization.curves.write_figure", lambda figure, path: figures.append(figure) or path
    )
    curves = (
        {"mine": [[300, 0.7, 0.02], [100, 0.6, None]]},
        {"mine": [[1000, 0.8, 0.01]], "other": [[100, 0.9, None]]},
        {"mine": [[100, 0.5, None]], "other": [[100, 0.9, None]]},
    )
    for name, rows in zip("abc", curves, strict=True):
        (tmp_path / name).mkdir()
        report = {"learning_curves": {"sst2": rows, "again": rows}, "titles": {"sst2": "SST-2", "again": "SST-2"}}
        (tmp_path / name / "suite.json").write_text(json.dumps(report))
    folders = [tmp_path / "a", tmp_path / "b"]
    assert draw_run(CurvesSettings(run_dirs=[str(folders[0])])) == tmp_path / "a" / "learning_curves.png"
    assert (
        draw_run(CurvesSettings(run_dirs=[*map(str, folders)], output=str(tmp_path / "both.png")))
        == tmp_path / "both.png"
    )
    file = str(folders[0] / "suite.json")
    assert draw_run(CurvesSettings(run_dirs=[file])) == tmp_path / "a" / "learning_curves.png"
    del figures[2:]
    ax, again = figures[1].axes  # tasks may have the same title
    assert (ax.get_title(loc="left"), again.get_title(loc="left")) == ("SST-2", "SST-2")
    (mine, _, (bars,)), (other, _, _) = ax.containers
    assert (list(mine.get_xdata()), list(mine.get_ydata())) == ([100, 300, 1000], [0.6, 0.7, 0.8])
    assert bars.get_segments()[1][:, 1].tolist() == pytest.approx([0.68, 0.72])
    assert list(other.get_ydata()) == [0.9]
    assert ax.yaxis.get_major_formatter()(0.7).endswith("%")
    assert [text.get_text() for text in figures[1].legends[0].get_texts()] == ["mine", "other"]
    learning_curves([*folders, tmp_path / "c"], tmp_path / "all.png")  # "c" measured another model of that name
    assert [text.get_text() for text in figures[2].legends[0].get_texts()] == ["mine", "other", "mine, c"]
    assert [list(line.get_ydata()) for line, _, _ in figures[2].axes[0].containers] == [[0.6, 0.7, 0.8], [0.9], [0.5]]
    errors = {"learning_curves": {"minutes": curves[0]}, "titles": {"minutes": "minutes, rmse"}}
    (tmp_path / "a" / "suite.json").write_text(json.dumps(errors))
    learning_curves(folders[0])
    assert "%" not in figures[3].axes[0].yaxis.get_major_formatter()(0.7)  # in the unit of the data
    with pytest.raises(ValueError, match="output is not set; expected a PNG file for the curves of several suites"):
        learning_curves(folders)
    (tmp_path / "a" / "suite.json").write_text("{}")
    with pytest.raises(ValueError, match=r"suite\.json has no learning curves; measure the suite with train_sizes"):
        learning_curves(folders[0])
    many = {"sst2": {f"row {number}": [[100, 0.5, None]] for number in range(99)}}
    (tmp_path / "a" / "suite.json").write_text(json.dumps({"learning_curves": many, "titles": {"sst2": "SST-2"}}))
    with pytest.raises(ValueError, match=r"There are 99 rows; expected at most \d+, each with a color"):
        learning_curves(folders[0])
    for wrong in (3, {"sst2": [1]}, {"sst2": {"mine": [[100, "x", None]]}}, {"sst2": {"mine": [[100, 0.5]]}}):
        (tmp_path / "a" / "suite.json").write_text(json.dumps({"learning_curves": wrong}))
        with pytest.raises(ValueError, match=r"suite\.json has other learning_curves than mybert glue writes \("):
            learning_curves(folders[0])


def test_a_long_name_is_broken_and_not_cut(tmp_path, figures):
    name = "a-name-of-a-run-" * 6
    plot_run(write_run(tmp_path / name, [{"step": step, "loss": 1.0} for step in (1, 2)]))
    title = figures[0].legends[0].get_title().get_text()
    assert title.replace("\n", "") == name and max(map(len, title.splitlines())) < 40


def test_plot_run_names_what_is_missing_or_broken(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(FileNotFoundError, match=f"{folder} holds no trainer_state.json"):
            plot_run(folder)
    state = tmp_path / "trainer_state.json"
    for text, message in (
        ("{", "is not JSON"),
        ("", "is not JSON"),
        ("\ud800", "is not JSON"),
        ("[" * 100_000, "is nested too deep"),
        ("[]", "holds a JSON list; expected an object"),
        *((f'{{"log_history": {value}}}', "is not a trainer state") for value in ("[1]", '["loss"]', "1", "null")),
        ("{}", "is not a trainer state"),
    ):
        state.write_bytes(text.encode(errors="surrogatepass"))
        with pytest.raises(ValueError, match=f"{state} {message}"):
            plot_run(tmp_path)
    state.write_text('{"log_history": []}')
    with pytest.raises(ValueError, match=f"{state}: .*nothing to draw"):
        plot_run(tmp_path)
    for draw in (partial(plot_run, tmp_path), partial(training_curves, pretraining_history())):
        with pytest.raises(ValueError, match=r"^The picture's name '.*curves\.svg' must end in \.png\."):
            draw(tmp_path / "curves.svg")
        with pytest.raises(FileNotFoundError, match=r"absent: this folder for curves\.png does not exist"):
            draw(tmp_path / "absent" / "curves.png")


def test_missing_matplotlib_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[train\]'"):
        training_curves(pretraining_history(), tmp_path / "curves.png")
