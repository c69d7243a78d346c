"""What sentence-transformers needs of a model folder is found and copied whole; nothing outside of the folder is."""

import json

import pytest

from mybert.files import COMPANIONS, companion_files, copy_companions

MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"},
]
FILES = ["1_Pooling/config.json", "2_Dense/config.json", "2_Dense/deeper/weights.bin", "modules.json"]


@pytest.fixture
def folder(tmp_path):
    source = tmp_path / "source"
    for name in FILES:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    (source / "modules.json").write_text(json.dumps(MODULES))
    for name in ("config.json", "3_Other/config.json"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text("{}")
    return source


def test_modules_travel_whole(folder, tmp_path):
    assert companion_files(folder) == FILES
    assert copy_companions(folder, tmp_path / "target") == FILES
    assert {path.name for path in (tmp_path / "target").iterdir()} == {"1_Pooling", "2_Dense", "modules.json"}
    for name in FILES:
        assert (tmp_path / "target" / name).read_bytes() == (folder / name).read_bytes()


def test_settings_travel_without_modules(tmp_path):
    (tmp_path / "config_sentence_transformers.json").write_text("{}")
    assert companion_files(tmp_path) == ["config_sentence_transformers.json"]
    assert COMPANIONS[0] == "modules.json"


@pytest.mark.parametrize("path", ["..", "/etc", "1_Pooling/../..", "."])
def test_modules_outside_are_refused(folder, tmp_path, path):
    (folder / "modules.json").write_text(json.dumps([MODULES[0], MODULES[1] | {"path": path}]))
    with pytest.raises(ValueError, match="expected folders within"):
        copy_companions(folder, tmp_path / "target")


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"a": 1}', "[" * 5000, '[{"path": 3}]', '[{"path": ["a"]}]'])
def test_broken_lists_of_modules_are_refused(folder, content):
    (folder / "modules.json").write_text(content)
    if content == "{}":
        assert companion_files(folder) == ["modules.json"]
        return
    with pytest.raises(ValueError, match=r"modules\.json") as caught:
        companion_files(folder)
    assert len(str(caught.value)) < 500


def test_links_are_followed_within_the_hub_s_cache_only(folder, tmp_path):
    (tmp_path / "secret").write_text("secret")
    snapshot = tmp_path / "models--a" / "snapshots" / "1"
    snapshot.parent.mkdir(parents=True)
    folder.rename(snapshot)
    (tmp_path / "models--a" / "blobs").mkdir()
    (snapshot / "1_Pooling" / "config.json").rename(tmp_path / "models--a" / "blobs" / "abc")
    (snapshot / "1_Pooling" / "config.json").symlink_to("../../../blobs/abc")
    assert companion_files(snapshot) == FILES
    (snapshot / "1_Pooling" / "leak").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match="leads out of"):
        companion_files(snapshot)
