"""`benchmarks/time_to_quality.py` trains both ways once, and asks both for the same words."""

import json

import pytest


@pytest.mark.slow
def test_both_ways_are_trained_once(run, tmp_path, documents):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join("\n".join(document * 8) for document in documents * 3) + "\n")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "{vocab_size: 90, layout: compact, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, "
        "max_length: 24, per_device_train_batch_size: 4, use_cpu: true, num_processes: 1, save_strategy: 'no', "
        "heldout: 0.2}"
    )
    flags = [text, "--heldout", text, "--ours", recipe, "--minutes", 0.05, "--shares", 0.5, "--rates", 1e-3]
    shown = run("time_to_quality", *flags, "--limit", 20, "--output_dir", tmp_path / "out")
    rows = [line.split("|")[1].strip() for line in shown.splitlines() if line.startswith("| ") and "nats" not in line]
    names = ["mybert, 0.025 minutes", "transformers at 0.001, a tenth of the time", "transformers, 0.05 minutes"]
    assert rows == names
    results = json.loads((tmp_path / "out" / "quality.json").read_text())
    assert len({results[name]["words"] for name in names}) == 1
    assert all(1 < results[name]["nats_per_word"] < 12 for name in names)
    again = run("time_to_quality", *flags, "--limit", 20, "--output_dir", tmp_path / "out")
    assert [line for line in again.splitlines() if line.startswith("| ")] == [
        line for line in shown.splitlines() if line.startswith("| ")
    ]
