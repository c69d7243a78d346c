"""Models that do not exist are rejected at once."""

import sys
import time
from functools import partial

import huggingface_hub
import pytest
from huggingface_hub.errors import EntryNotFoundError, HTTPError, RepositoryNotFoundError

from mybert.files.checkpoint import check_available


@pytest.fixture
def hub(monkeypatch):
    """The Hub's answer to a file request, an error or nothing; and the requested names."""
    asked, answers = [], []

    def answer(url, timeout):
        asked.append(url)
        assert timeout <= 10
        if answers:
            raise answers[0]

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", answer)
    return asked, answers


@pytest.mark.parametrize("name", ["./gone", "/gone", "~/gone", "runs/gone", "a/b/c", "../gone"])
def test_a_path_is_not_asked_for(name, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for check in (partial(check_available, ask_hub=False), check_available):
        with pytest.raises(FileNotFoundError, match=rf"^There is no model folder {name}\.$"):
            check(name)
    assert hub[0] == []


def test_what_is_here_is_not_asked_for(hub, tmp_path):
    check_available(tmp_path)
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    check_available(tmp_path / "vocab.txt", "tokenizer")
    assert hub[0] == []


@pytest.mark.parametrize("check", [partial(check_available, ask_hub=False), check_available])
def test_a_model_is_a_folder_and_no_file_of_it(check, hub, tmp_path):
    """transformers takes a config.json for a configuration, and unpickles the file as weights."""
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(NotADirectoryError, match=r"^model is '.*config.json', which is a file; expected the folder"):
        check(tmp_path / "config.json")


def test_a_name_is_asked_for_once(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_available("owner/name", ask_hub=False)
    assert hub[0] == []
    check_available("owner/name")
    assert hub[0] == ["https://huggingface.co/owner/name/resolve/main/config.json"]
    hub[1][:] = [EntryNotFoundError("no config.json")]
    check_available("owner/name")
    hub[1][:] = [RepositoryNotFoundError.__new__(RepositoryNotFoundError)]
    with pytest.raises(OSError, match=r"^model is 'owner/name'; there is no such folder here, and the Hub has none"):
        check_available("owner/name")
    for error in (HTTPError("no network"), ConnectionError("offline"), TimeoutError()):
        hub[1][:] = [error]
        with pytest.raises(OSError, match=r"^tokenizer is 'owner/name'; .* here, and the Hub could not be reached"):
            check_available("owner/name", "tokenizer")
    with pytest.raises(FileNotFoundError, match="There is no model folder two words"):
        check_available("two words")
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda name, file: {"vocab.txt": file}.get(file))
    check_available("owner/name")  # of which the cache has a part


def test_an_unreachable_hub_is_asked_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    http = sys.modules[HTTPError.__module__.partition(".")[0]]
    asked = []

    def refuse(client, request, **kwargs):
        asked.append(request.url.path)
        raise http.ConnectError("no network")

    monkeypatch.setattr(http.Client, "send", refuse)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waits to ask again"))
    with pytest.raises(OSError, match="the Hub could not be reached"):
        check_available("owner/name")
    assert asked.count("/owner/name/resolve/main/config.json") == 1
