import pytest

from mybert.training import nothing_left_behind, open_run_folder

SETTINGS = {"command": "pretrain", "seed": 1, "text": ["a.txt"]}


def test_a_new_folder_is_made_and_found_again(tmp_path):
    folder = tmp_path / "a" / "b"
    assert open_run_folder(folder, SETTINGS) is None
    assert open_run_folder(folder, SETTINGS) is None
    (folder / "checkpoint-10").mkdir()
    (folder / "checkpoint-9").mkdir()
    assert open_run_folder(folder, SETTINGS) == str(folder / "checkpoint-10")


def test_other_things_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match=r"exists and holds other things \(thesis.tex\)"):
        open_run_folder(tmp_path, SETTINGS)
    assert (tmp_path / "thesis.tex").exists()
    assert open_run_folder(tmp_path, SETTINGS, overwrite=True) is None
    assert not (tmp_path / "thesis.tex").exists()


def test_changed_settings_are_named(tmp_path):
    open_run_folder(tmp_path, SETTINGS)
    with pytest.raises(ValueError, match="seed was 1, is 2"):
        open_run_folder(tmp_path, SETTINGS | {"seed": 2})


def test_a_file_is_no_folder(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(ValueError, match="is a file; expected a folder"):
        open_run_folder(path, SETTINGS)
    with pytest.raises(OSError, match="Not a directory"):
        open_run_folder(path / "below", SETTINGS)


def test_a_mistake_leaves_no_folder_behind(tmp_path):
    for name, kept in (("new", False), ("trained", True)):
        open_run_folder(tmp_path / name, SETTINGS)
        if kept:
            (tmp_path / name / "checkpoint-1").mkdir()
        with pytest.raises(ValueError, match="empty"), nothing_left_behind(tmp_path / name):
            raise ValueError("The corpus is empty.")
        assert (tmp_path / name).exists() is kept
