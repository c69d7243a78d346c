"""Every workload runs at a tiny size, and disagreeing sides are an error."""

import pytest
import torch

from mybert.benchmarks import model_speed, runtimes
from mybert.benchmarks.harness import random_batch, speed_table, take_turns
from mybert.benchmarks.model_speed import INFERENCE, ON_SENTENCES, SENTENCES, SKEWED
from mybert.benchmarks.runtimes import GROUP, PACKED, PEER, REST, RUNTIMES, RuntimeEncoders, sorted_by_length
from mybert.modeling_mybert import linear_kernels


@pytest.fixture
def small(monkeypatch):
    """Short batches and few repetitions."""
    monkeypatch.setattr(model_speed, "TRAINING", {"tiny": 2})
    monkeypatch.setattr(model_speed, "INFERENCE", {name: (what, (7, 3)) for name, (what, _) in INFERENCE.items()})


@pytest.fixture
def bench(run):
    """Run these workloads with these flags; what is printed."""
    return lambda words: run("model_speed", "--workloads", *words.split())


@pytest.fixture
def sst2(tmp_path):
    sentences = ["a moving film", "dull and far too long , sadly", "bright , funny and never dull", "a long dull film"]
    lines = [f"{sentences[number % 4]}\t{number % 2}" for number in range(64)]
    (tmp_path / "train.tsv").write_text("sentence\tlabel\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def test_fill_of_the_batches():
    for lengths, fill in ((SENTENCES, 0.45), (SKEWED, 0.18)):
        mask = random_batch(lengths)["attention_mask"]
        assert mask.shape == (32, max(lengths))
        assert float(mask.float().mean()) == pytest.approx(fill, abs=0.01)


def test_batches_do_not_change_from_run_to_run():
    assert torch.equal(random_batch(SENTENCES)["input_ids"], random_batch(SENTENCES)["input_ids"])


def test_ratio_is_the_median_of_the_turns():
    table = speed_table({"peer": [2.0, 4.0, 9.0], "mybert": [1.0, 1.0, 1.0]}, "peer", {"mybert": "exact"})
    assert "| mybert | 1.0000 | 4.00 | exact |" in table


def test_runs_take_turns():
    calls = []
    seconds, results = take_turns({name: lambda name=name: calls.append(name) or name for name in "ab"}, 2)
    assert calls == ["a", "b"] * 3  # the first time untimed
    assert [len(values) for values in seconds.values()] == [2, 2] and results == {"a": "a", "b": "b"}


@pytest.mark.parametrize(("took", "seconds"), [([0.25, 0.125, 0.125], 0.125), ([0.375, 0.25], 0.25), ([9.0], 9.0)])
def test_short_calls_follow_one_another_after_a_rest(monkeypatch, in_this_process, tmp_path, took, seconds):
    """Another process's threads wait for work in a loop for a while; a turn begins when they sleep."""
    seen = []
    monkeypatch.setattr(runtimes.time, "sleep", lambda seconds: seen.extend(["rest"] * (seconds == REST)))
    monkeypatch.setattr(runtimes, "timed", lambda run: (run() or took[len(seen) - 2], None))
    encoders = RuntimeEncoders(lambda *_: {"mybert": lambda batch: seen.append("call")}, {}, 1, tmp_path)
    assert encoders.seconds("mybert", (7, 3), False) == seconds
    assert seen == ["rest"] + ["call"] * len(took)


@pytest.mark.slow
def test_inference_training_and_memory(small, bench):
    report = bench("sentences query training memory --model_size tiny --training_sizes tiny --repeats 1")
    assert report.count("| transformers SDPA |") == 4  # two batches, training full and half full
    assert report.count("| mybert |") == 4
    assert "| tiny, 2 x 128 |" in report


@pytest.mark.slow
def test_finetuning_and_pipeline(small, sst2, bench):
    report = bench(f"finetuning pipeline --model_size tiny --repeats 1 --num_sentences 40 --sst2 {sst2}")
    assert "an epoch of Trainer, once, 40 sentences" in report
    assert "text-classification of 40 sentences of SST-2, batch 32, tiny, medians of 1" in report


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch is built without oneDNN")
def test_both_kernels(monkeypatch, bench):
    monkeypatch.setattr(model_speed, "MATRIX_PRODUCTS", ((8, 12, 40), (70, 600, 520)))
    report = bench("kernels --repeats 2")
    rows = [line for line in report.splitlines() if "->" in line and line.startswith("| ")]
    assert [row.count(" ms (") for row in rows] == [0, 3, 3]
    assert "| 70, 600 -> 520 |" in rows[2]
    assert f"Taken here: product: {'oneDNN' if linear_kernels().product else 'MKL'}, gradient" in report
    monkeypatch.setattr(model_speed, "gradient_of_weight", lambda *_: torch.randn(40, 12))
    with pytest.raises(AssertionError, match=r"the kernels' products differ by"):
        bench("kernels --repeats 1")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert "## kernels" not in bench("kernels --repeats 1")


def test_sides_that_disagree_are_refused(small, monkeypatch, in_this_process, bench):
    real = runtimes.matched_encoders

    def unequal(settings):
        models = real(settings)
        with torch.no_grad():
            model = models["mybert"]
            model.embeddings.word_embeddings.weight.add_(0.01 * torch.randn(model.config.hidden_size))
        return models

    monkeypatch.setattr(runtimes, "matched_encoders", unequal)
    monkeypatch.setattr(model_speed, "RUNTIMES", {})
    with pytest.raises(AssertionError, match=r"mybert's states differ by"):
        bench("sentences --model_size tiny --repeats 1")


def test_each_runtime_has_a_process_and_what_is_not_installed_is_said(
    small, monkeypatch, caplog, in_this_process, bench
):
    def not_installed(*_):
        raise ImportError("No module named 'openvino'")

    def fast(settings, threads, folder):
        assert (threads, torch.get_num_threads(), list(folder.iterdir())) == (2, 1, [])
        return {"Fast": runtimes.encoder_of(runtimes.matched_encoders(settings)[PEER])}

    monkeypatch.setattr(model_speed, "RUNTIMES", {"OpenVINO": not_installed, "Fast Runtime": fast})
    with caplog.at_level("WARNING"):
        report = bench("sentences --model_size tiny --repeats 1 --threads 2")
    assert in_this_process == ["PyTorch", "Fast Runtime"]
    assert "Without OpenVINO: No module named 'openvino'." in caplog.text
    rows = [line.split(" | ")[0] for line in report.splitlines() if "largest difference" in line or "alone" in line]
    assert rows[0] == "| transformers SDPA" and "| mybert, prepacked" in rows
    assert "| Fast" in rows and "| mybert, sorted" not in rows
    assert {"| transformers SDPA, sorted", "| Fast, sorted"} < set(rows)
    assert rows[-1] == "| (linear layers' products alone)"


def test_batches_in_groups_of_equal_length():
    """Each row goes through with the rows of its group, and comes back in its place."""
    shapes = []

    def encode(batch):
        shapes.append(tuple(batch["input_ids"].shape))
        return torch.stack([batch["input_ids"], 2 * batch["input_ids"]], -1).float()

    batch = random_batch((3, 9, 4, 9, 2, 1, 7, 8, 6, 5))
    states = sorted_by_length(encode)(batch)
    assert torch.equal(states, torch.stack([batch["input_ids"], 2 * batch["input_ids"]], -1).float())
    assert shapes == [(GROUP, 8), (2, 9)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runtime", "packages"),
    [(PACKED, ("openvino", "nncf")), ("OpenVINO", ("openvino", "nncf")), ("CTranslate2", ("ctranslate2",))],
)
def test_other_runtimes_agree(runtime, packages, tmp_path):
    for package in packages:
        pytest.importorskip(package)
    settings = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128}
    bert = runtimes.matched_encoders(settings)[PEER]
    batch = random_batch((20, 5, 9, 7, 3, 12, 8, 9, 10, 11))
    tokens = batch["attention_mask"].bool()
    with torch.no_grad():
        expected = bert(**batch).last_hidden_state[tokens]
    encoders = RUNTIMES[runtime](settings, 1, tmp_path)
    assert f"{runtime} int8" in encoders
    for name, encode in encoders.items():
        tolerance = 0.1 if "int8" in name or "bfloat16" in name else 1e-5
        torch.testing.assert_close(encode(batch)[tokens], expected, rtol=0, atol=tolerance)


def test_by_default_all_that_can_run_does(sst2, monkeypatch, run):
    ran = []
    names = {f"_{name}": name for name in ("inference", "kernels", "training", "memory", *ON_SENTENCES)}
    for function, name in names.items():
        monkeypatch.setattr(model_speed, function, lambda *_, name=name: ran.append(name))
    run("model_speed")
    assert ran == ["inference", "kernels", "training", "memory"]
    ran.clear()
    run("model_speed", "--sst2", sst2)
    assert ran == list(names.values())


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--workloads sentnces", "invalid choice: 'sentnces'"),
        ("--workloads query pipeline", "sst2 is not set; finetuning, pipeline, embeddings need"),
        ("--sst2 nowhere", "sst2 is nowhere; expected a folder with SST-2's train.tsv."),
    ],
)
def test_model_speed_wrong_flags_are_errors(flags, sentence, run, capsys):
    with pytest.raises(SystemExit) as ended:
        run("model_speed", *flags.split())
    assert ended.value.code == 2 and sentence in capsys.readouterr().err
