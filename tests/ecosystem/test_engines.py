"""Ray Data and Spark: workers of a local cluster, one of them killed, do what one process does."""

import os
import shutil
import signal
import sys
from dataclasses import asdict

import pytest
import torch

import mybert
from mybert.finetuning import Predictor
from mybert.pretraining import StoreShards, build_token_store

pytestmark = pytest.mark.slow

WORDS = "the cat dog sat ran on under a mat tree and slept ate fish bread it was happy sad very today".split()
FILES, ROWS = 6, 6 * 1024  # of a file: a part of `predict`, and what a worker takes at a time
SHARDS = 4


@pytest.fixture(scope="module")
def ray_data():
    """Ray Data on two local workers."""
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    ray = pytest.importorskip("ray", reason="Ray is not installed (pip install '.[ray]')")
    # One core for reading, in addition to those of two workers.
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, object_store_memory=200 << 20)
    ray.data.DataContext.get_current().enable_progress_bars = False
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    yield ray.data
    ray.shutdown()


@pytest.fixture(scope="module")
def spark():
    """Spark on two local cores; a task may fail three times."""
    sql = pytest.importorskip("pyspark.sql", reason="Spark is not installed (pip install '.[spark]')")
    if not shutil.which("java"):
        pytest.skip("Spark needs Java, and there is no java")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.ui.enabled": "false"}
    settings |= dict.fromkeys(("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes"), "200000")
    builder = sql.SparkSession.builder.master("local[2,4]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def classifier(model_dir, tables, tokenizer, tmp_path_factory):
    """A folder of a model with random weights, of whose classes none has all texts."""
    model = mybert.MyBertForSequenceClassification.from_pretrained(model_dir("MyBertForSequenceClassification"))
    with torch.no_grad():
        texts = list(tables[1]["sentence"][:100])
        model.classifier.bias -= model.eval()(**tokenizer(texts, padding=True, return_tensors="pt")).logits.mean(0)
    folder = tmp_path_factory.mktemp("classifier")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A folder of Parquet files, and what is in them."""
    pandas = pytest.importorskip("pandas")
    texts = [" ".join(WORDS[(3 * row + 5 * word) % len(WORDS)] for word in range(1 + row % 37)) for row in range(ROWS)]
    whole = pandas.DataFrame({"number": range(ROWS), "sentence": texts, "label": "mine"})
    folder = tmp_path_factory.mktemp("tables")
    for number in range(FILES):
        part = whole[number * ROWS // FILES : (number + 1) * ROWS // FILES]
        part.to_parquet(folder / f"part-{number}.parquet", index=False)
    return folder, whole


def killed_once(kind, folder):
    """A class of that kind that notes every batch that is begun, and kills its process with the third one of all."""

    class Killed(kind):
        def __call__(self, batch):
            if hasattr(batch, "__next__"):
                return map(self, batch)
            begun = folder / "begun"
            with begun.open("a") as notes:
                notes.write("batch\n")
            if begun.read_text().count("batch") >= 3:
                try:
                    (folder / "killed").touch(exist_ok=False)
                except FileExistsError:
                    pass
                else:
                    os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(batch)

    return Killed


def begun(folder):
    return (folder / "begun").read_text().count("batch")


@pytest.fixture(scope="module")
def predicted(classifier, tables):
    """What one process says, as a frame."""
    pandas = pytest.importorskip("pandas")
    folder, whole = tables
    told = pandas.DataFrame(mybert.predict(classifier, sorted(folder.iterdir()), text_column="sentence"))
    assert told["label"].nunique() > 1
    return whole.assign(predicted_label=told["label"], score=told["score"])


def test_ray_predicts(ray_data, tmp_path, classifier, tables, predicted):
    rows = ray_data.read_parquet(str(tables[0])).repartition(target_num_rows_per_block=1024, strict=True)
    workers = ray_data.ActorPoolStrategy(size=2)
    kind = killed_once(Predictor, tmp_path)
    found = rows.map_batches(kind, fn_constructor_args=[classifier], compute=workers)
    assert found.to_pandas().to_dict("list") == predicted.to_dict("list")
    assert (tmp_path / "killed").exists() and begun(tmp_path) == FILES + 1


def test_ray_builds_shards(ray_data, tmp_path, text_file, tokenizer):
    kind = killed_once(StoreShards, tmp_path)
    shards = kind(text_file, tokenizer, tmp_path / "shards", num_shards=SHARDS)
    numbers = ray_data.range(SHARDS, override_num_blocks=SHARDS)
    rows = numbers.map_batches(shards, batch_size=1).take_all()
    same_shards(tmp_path, rows, text_file, tokenizer)


def same_shards(tmp_path, rows, text_file, tokenizer):
    for number in range(SHARDS):
        place = tmp_path / "expected"
        summary = build_token_store(
            text_file, tokenizer, place, shard_index=number, num_shards=SHARDS, show_progress=False
        )
        assert rows[number] == {"id": number, **asdict(summary)}
    files = {file.name: file.read_bytes() for file in (tmp_path / "shards").iterdir()}
    assert files == {file.name: file.read_bytes() for file in place.iterdir()}
    assert (tmp_path / "killed").exists() and begun(tmp_path) == SHARDS + 1


def test_spark_predicts(spark, tmp_path, classifier, tables, predicted):
    frame = spark.read.parquet(str(tables[0]))
    assert frame.rdd.getNumPartitions() == FILES
    schema = "number long, sentence string, label string, predicted_label string, score double"
    found = frame.mapInPandas(killed_once(Predictor, tmp_path)(classifier), schema).toPandas().sort_values("number")
    assert found.to_dict("list") == predicted.to_dict("list")
    assert (tmp_path / "killed").exists() and begun(tmp_path) == FILES + 1


def test_spark_builds_shards(spark, tmp_path, text_file, tokenizer):
    kind = killed_once(StoreShards, tmp_path)
    shards = kind(text_file, tokenizer, tmp_path / "shards", num_shards=SHARDS)
    found = spark.range(0, SHARDS, numPartitions=SHARDS).mapInPandas(shards, shards.schema)
    rows = sorted(
        (row.asDict() for row in found.collect()), key=lambda row: row["id"]
    )  # Spark's `sort` would run it twice
    same_shards(tmp_path, rows, text_file, tokenizer)
