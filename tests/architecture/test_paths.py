"""How much code a command runs through: own functions, files, and how often it opens a config.json.

The limits are what it takes today outside the network, and a few more. They only fall: lower them with every
simplification. `test_forward_of_twelve_layers_takes_few_own_calls` limits the network.
"""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import mybert
from mybert import MyBertForSequenceClassification
from mybert.cli import main

ROOT = f"{Path(mybert.__file__).resolve().parent}/"
OPTIMIZED = 2  # flag of the code of functions, which classes and modules lack
PRETRAIN = (
    "--vocab_size 60 --vocab_layout compact --model_size tiny --hidden_size 32 --num_hidden_layers 1 --max_length 32 "
    "--max_steps 2 --save_strategy no --per_device_train_batch_size 8 --validation_split 0.2 --disable_tqdm --use_cpu "
    "--num_processes 1"
)
opened: list[str] = []  # config.json files, since the list was emptied


@pytest.fixture(scope="module", autouse=True)
def opened_files_are_recorded() -> None:
    def record(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and Path(str(arguments[0])).name == "config.json":
            opened.append(str(arguments[0]))

    sys.addaudithook(record)  # for good: it cannot be removed


def entered_by(command: list[str]) -> Counter[str]:
    """The own files in which a command enters functions, with their numbers."""
    functions = set()

    def record(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        module = frame.f_globals.get("__name__", "")
        is_own = module.startswith("mybert.") and not module.startswith("mybert.modeling_mybert.")
        if event == "call" and is_own and code.co_flags & OPTIMIZED:
            functions.add((code.co_filename, code.co_name, code.co_firstlineno))

    opened.clear()
    sys.setprofile(record)
    try:
        status = main(command)
    finally:
        sys.setprofile(None)
    assert status == 0
    # Neither comprehensions nor what dataclasses generate, of which versions of Python have other numbers.
    return Counter(file.removeprefix(ROOT) for file, name, _ in functions if "<" not in (name[0], file[0]))


@pytest.mark.parametrize(
    ("command", "functions", "files", "configs"),
    [
        # A tenth of them, and a reading of config.json, checks flags and files before libraries are imported.
        # Format and target of texts are two files, settings two, because they load no library.
        ("predict MODEL DATA --output OUT.csv --use_cpu", 206, 35, 3),
        # Config.json is opened once more to sync it.
        (f"pretrain --text TEXT --output_dir OUT {PRETRAIN}", 460, 53, 3),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else None,
)
def test_commands_take_short_paths(command, functions, files, configs, tmp_path, tiny_model, text_file):
    tiny_model(tmp_path / "model", MyBertForSequenceClassification)
    (tmp_path / "rows.csv").write_text("text\nthe cat\na dog sat\nit was happy\n")
    places = {"MODEL": tmp_path / "model", "DATA": tmp_path / "rows.csv", "TEXT": text_file}

    def words(run: str) -> list[str]:
        outputs = {"OUT": tmp_path / run, "OUT.csv": tmp_path / f"{run}.csv"}
        return [str((places | outputs).get(word, word)) for word in command.split()]

    assert main(words("first")) == 0  # imports modules, whose options are made by functions
    found = entered_by(words("second"))
    assert found.total() <= functions and len(found) <= files and len(opened) <= configs, (found, opened)


def test_predict_loads_neither_the_trainer_nor_data_libraries(tmp_path, tiny_model, run_python):
    tiny_model(tmp_path / "model", MyBertForSequenceClassification)
    (tmp_path / "row.txt").write_text("the cat\n")
    words = ["predict", str(tmp_path / "model"), str(tmp_path / "row.txt"), "--use_cpu", "--quiet"]
    code = f"import sys; from mybert.cli import main; main({words}); print(*sys.modules)"
    loaded = run_python("-c", code).stdout.split()
    assert "mybert.finetuning.prediction.predictor" in loaded
    assert not {"transformers.trainer", "datasets", "pandas", "sklearn", "mybert.runs.trainer"} & {*loaded}
