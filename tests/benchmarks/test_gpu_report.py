"""The report of a GPU is written line by line, and every part of it runs on a CPU at a tiny size."""

from argparse import Namespace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters

from mybert import MyBertModel
from mybert.benchmarks import gpu_report
from mybert.benchmarks.packed_prediction import packed_batches, prediction_section
from mybert.modeling_mybert import attention_mybert

TINY = "--sizes tiny --lengths 32 --tokens 256 --steps 1 --backend eager --vocabulary 200 --recipe_steps 2".split()
TINY += ["--sentences", "40"]
RECIPE = (
    "{num_hidden_layers: 1, hidden_size: 16, num_attention_heads: 2, max_length: 24, row_length: 48, "
    "per_device_train_batch_size: 2, torch_compile_backend: eager, model_size: tiny}"
)


SETTINGS = Namespace(
    sizes=["tiny"], lengths=[16], fills=[0.5], tokens=64, steps=1, backend="eager", vocabulary=99, device="cpu"
)


def rows(text: str) -> list[list[str]]:
    """Cells of all tables' rows."""
    lines = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.fixture(autouse=True)
def left_as_it_was():
    torch._dynamo.reset()
    precision = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(precision)
    torch._dynamo.reset()


@pytest.mark.slow
def test_every_section_on_a_cpu(run, tmp_path):
    (tmp_path / "tests.xml").write_text(
        "<testsuites><testsuite><testcase classname='a' name='one'/><testcase classname='a' name='two'><skipped/>"
        "</testcase></testsuite></testsuites>"
    )
    output = tmp_path / "report.md"
    shown = run("gpu_report", *TINY, "--output", output, "--tests", tmp_path / "tests.xml", "--recipe_changes", RECIPE)
    text = output.read_text()
    assert text == shown[shown.index("# Report") :]
    assert "1 passed, 0 failed, 1 skipped." in text
    assert "Not finished" not in text
    cells = rows(text)
    training = [row for row in cells if row[0] == "tiny" and len(row) == 9]
    names = ["transformers, compiled", "mybert, packed and compiled"]
    assert [row[3] for row in training] == [name for name in names for _ in range(2)]
    assert [row[2] for row in training] == ["50%", "100%"] * 2
    ways = [row[2] for row in cells if row[0] == "128"]
    assert ways[:2] == ["mybert", "mybert, compiled"]
    assert [row[3] for row in cells if row[0] == "tiny" and len(row) == 7] == ["transformers SDPA", "mybert"] * 2
    assert [row[1] for row in cells if row[0] == "tiny" and len(row) == 4] == [
        *("Muon, one by one", "Muon", "AdamW"),
        *("transformers, compiled", "transformers, compiled, sorted", "mybert, packed", "mybert, packed and compiled"),
    ]
    assert [row[2] for row in cells if row[0] == "tiny" and len(row) == 5] == ["three products", "one product"]
    recipe = cells[-1]
    assert recipe[:2] == ["2", "16"]


def test_a_report_of_this_size_needs_a_gpu(run, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        run("gpu_report")
    assert "there is no CUDA device; name small --sizes" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["max_steps", "[1, 2]", "{a: b: c}", "", "{max_step: 1}"])
def test_changes_that_are_no_settings_are_said_before_anything_is_measured(run, tmp_path, capsys, text):
    with pytest.raises(SystemExit, match="2"):
        run("gpu_report", *TINY, "--output", tmp_path / "report.md", "--recipe_changes", text)
    assert f"gpu_report: --recipe_changes {text!r} is not a recipe; expected YAML" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_gpu_report_with_a_failing_section_keeps_its_rows(tmp_path, monkeypatch):
    """A section that fails leaves its rows, and the next one goes on; failed tests are named."""

    def breaks(settings, rate):
        yield "| first |"
        raise AssertionError("the losses differ")

    monkeypatch.setattr(gpu_report, "training_section", breaks)
    monkeypatch.setattr(gpu_report, "vocabulary_section", lambda settings: iter(["| second |"]))
    xml = tmp_path / "tests.xml"
    xml.write_text("<testsuite><testcase classname='b' name='bad'><failure/></testcase></testsuite>")
    flags = ["gpu_report", "--output", str(tmp_path / "report.md"), "--tests", str(xml)]
    monkeypatch.setattr("sys.argv", [*flags, "--sizes", "tiny", "--sections", "training", "vocabulary"])
    with pytest.raises(SystemExit) as ended:
        gpu_report.main()
    text = (tmp_path / "report.md").read_text()
    assert ended.value.code == 1
    assert "- failed: `b::bad`" in text
    assert (
        text.index("| first |")
        < text.index("Not finished: AssertionError: the losses differ")
        < text.index("| second")
    )


@pytest.mark.parametrize("kernel", [False, True], ids=["as on a CPU", "as on a GPU"])
def test_layers_are_one_graph(kernel, monkeypatch):
    """For any number of layers: compiling each again would take minutes, and torch gives up after eight."""
    monkeypatch.setattr(MyBertModel, "_supports_varlen", lambda model, words: kernel)
    monkeypatch.setattr(attention_mybert, "varlen_attn", attend_by_borders, raising=False)
    deep = gpu_report.network(SETTINGS, "tiny") | {"num_hidden_layers": 10}
    models = gpu_report.matched_models("ForPreTraining", deep)
    lengths = gpu_report.draw_lengths(4, 16, 2, torch.Generator().manual_seed(0))
    assert (len(lengths), sum(lengths)) == (8, 64)
    batches = gpu_report.make_batches(lengths, 16, 99)
    losses = []
    for side, model, batch in zip(gpu_report.SIDES, models.values(), batches, strict=True):
        torch._dynamo.reset()
        counters.clear()
        losses.append(gpu_report.TrainingSide(side, model, SETTINGS).loss_and_gradient(batch))
        assert counters["stats"]["unique_graphs"] <= 3  # the layer, the vocabulary head and the loss
    assert losses[0] == pytest.approx(losses[1], rel=gpu_report.TRAINING_TOLERANCE)


@pytest.mark.parametrize("kernel", [False, True], ids=["as on a CPU", "as on a GPU"])
def test_packed_prediction_has_one_graph_and_the_logits_of_transformers(kernel, monkeypatch):
    monkeypatch.setattr(MyBertModel, "_supports_varlen", lambda model, words: kernel)
    monkeypatch.setattr(attention_mybert, "varlen_attn", attend_by_borders, raising=False)
    counters.clear()
    settings = Namespace(**vars(SETTINGS) | {"sentences": 40})
    lines = list(prediction_section(settings, partial(gpu_report.network, settings)))
    assert [line.split("|")[2].strip() for line in lines[-4:]][-1] == "mybert, packed and compiled"
    assert counters["stats"]["unique_graphs"] == 2  # each side's


def test_packed_batches_have_one_shape_and_all_sequences():
    sequences = [torch.full((3 + place % 5,), place + 2) for place in range(30)]
    batches = list(packed_batches(sequences, 40, 8))
    assert len({(batch["input_ids"].shape, batch["cu_seq_lens_q"].shape) for batch, _ in batches}) == 1
    assert len(batches) > 2 and sum(rows for _, rows in batches) == 30
    rows = [(batch, row) for batch, rows in batches for row in range(rows)]
    for sequence, (batch, row) in zip(sequences, rows, strict=True):
        tokens = slice(*batch["cu_seq_lens_q"][row : row + 2].tolist())
        assert torch.equal(batch["input_ids"][0, tokens], sequence)
        assert torch.equal(batch["position_ids"][0, tokens], torch.arange(len(sequence)))
    assert all((batch["cu_seq_lens_q"].diff() > 0).all() for batch, _ in batches)


def attend_by_borders(query, key, value, borders, *args, scale, **kwargs):
    """A stand-in for the variable-length kernel, without a branch that depends on values."""
    numbers = torch.bucketize(torch.arange(len(query)), borders[1:], right=True)
    states = (tensor.transpose(0, 1)[None] for tensor in (query, key, value))
    context = F.scaled_dot_product_attention(*states, attn_mask=numbers[:, None] == numbers, scale=scale)
    return context[0].transpose(0, 1)


def test_differences_end_the_training_section(monkeypatch):
    monkeypatch.setattr(gpu_report, "TRAINING_TOLERANCE", -1.0)
    with pytest.raises(AssertionError, match="the losses differ by"):
        list(gpu_report.training_section(SETTINGS, 1e12))
