"""A Hub on the loopback address: the endpoints that the real huggingface_hub client calls, with git-like revisions."""

import base64
import functools
import hashlib
import json
import os
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import huggingface_hub
import pytest
import transformers

import mybert

TOKEN = "hf_LoopbackSecret0123456789"
OWNER = "owner"


@dataclass
class Repository:
    private: bool
    refs: dict = field(default_factory=dict)  # name -> sha
    commits: dict = field(default_factory=dict)  # sha -> {path: bytes}
    messages: list = field(default_factory=list)

    def commit(self, ref, files, message):
        sha = hashlib.sha1(json.dumps([len(self.commits), ref, sorted(files), message]).encode()).hexdigest()
        self.refs[ref] = sha
        self.commits[sha] = files
        self.messages.append(message)
        return sha

    def files(self, revision):
        return self.commits.get(self.refs.get(revision, revision))


class Hub:
    """What the server knows; tests read it and set `refuse`, which answers (method, path) with an error or None."""

    def __init__(self):
        self.repositories = {}
        self.blobs = {}  # large files, by SHA-256
        self.requests = []  # (method, path, authorization)
        self.refuse = lambda method, path: None
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"hub": self}))
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def files(self, repo_id, revision="main"):
        return self.repositories[repo_id].files(revision)

    def paths(self, method):
        return [path for verb, path, _ in self.requests if verb == method]


def blob_id(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def is_large(path):
    return path.endswith(".safetensors")


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def handle_request(self):
        url = urlsplit(self.path)
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            self.body = b""
            while size := int(self.rfile.readline(), 16):
                self.body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        self.query = parse_qs(url.query)
        self.hub.requests.append((self.command, unquote(url.path), self.headers.get("Authorization")))
        refusal = self.hub.refuse(self.command, unquote(url.path))
        if refusal == "drop":
            self.close_connection = True
        elif refusal:
            self.answer({"error": "refused"}, refusal)
        else:
            self.route([unquote(part) for part in url.path.strip("/").split("/")])

    do_GET = do_HEAD = do_POST = do_PUT = handle_request

    def answer(self, content, status=200, **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status, code):
        self.answer({"error": code}, status, X_Error_Code=code, X_Error_Message=code)

    @property
    def is_owner(self):
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def route(self, parts):
        hub = self.hub
        match parts:
            case ["api", "repos", "create"]:
                if not self.is_owner:
                    return self.fail(401, "Unauthorized")
                asked = json.loads(self.body)
                repo_id = f"{asked.get('organization') or OWNER}/{asked['name']}"
                if repo_id in hub.repositories:
                    return self.answer({"error": "exists", "url": f"{hub.url}/{repo_id}"}, 409)
                repository = hub.repositories[repo_id] = Repository(asked.get("visibility") == "private")
                repository.commit("main", {".gitattributes": b"*.safetensors filter=lfs\n"}, "initial commit")
                return self.answer({"url": f"{hub.url}/{repo_id}"})
            case ["api", "validate-yaml"]:
                return self.answer({"errors": [], "warnings": []})
            case ["lfs", oid]:
                assert hashlib.sha256(self.body).hexdigest() == oid
                hub.blobs[oid] = self.body
                return self.answer({}, ETag=oid)
            case ["api", "models", owner, name, *rest]:
                return self.with_repository(f"{owner}/{name}", self.api, rest)
            case [owner, git, "info", "lfs", "objects", "batch"]:
                return self.with_repository(f"{owner}/{git.removesuffix('.git')}", self.large_files)
            case [owner, name, "resolve", revision, *path]:
                return self.with_repository(f"{owner}/{name}", self.resolve, revision, "/".join(path))
        return self.fail(404, "NotFound")

    def with_repository(self, repo_id, function, *arguments):
        repository = self.hub.repositories.get(repo_id)
        if repository is None or (repository.private and not self.is_owner):
            return self.fail(401, "RepoNotFound")
        if self.command in ("POST", "PUT") and not self.is_owner:
            return self.fail(403, "Forbidden")
        return function(repo_id, repository, *arguments)

    def large_files(self, repo_id, repository):
        objects = json.loads(self.body)["objects"]
        for item in objects:
            if item["oid"] not in self.hub.blobs:
                item["actions"] = {"upload": {"href": f"{self.hub.url}/lfs/{item['oid']}"}}
        self.answer({"transfer": "basic", "objects": objects})

    def api(self, repo_id, repository, rest):
        match rest:
            case [] | ["revision", _]:
                revision = rest[1] if rest else "main"
                if (files := repository.files(revision)) is None:
                    return self.fail(404, "RevisionNotFound")
                sha = repository.refs.get(revision, revision)
                siblings = [{"rfilename": path} for path in sorted(files)]
                about = {"id": repo_id, "sha": sha, "private": repository.private, "siblings": siblings, "tags": []}
                config = json.loads(files.get("config.json", b"{}"))
                known = {name: config[name] for name in ("architectures", "model_type") if name in config}
                return self.answer(about | ({"config": known} if "config.json" in files else {}))
            case ["tree", revision, *_]:
                if (files := repository.files(revision)) is None:
                    return self.fail(404, "RevisionNotFound")
                tree = []
                for path, content in sorted(files.items()):
                    entry = {"type": "file", "path": path, "size": len(content), "oid": blob_id(content)}
                    if is_large(path):
                        oid = hashlib.sha256(content).hexdigest()
                        entry["lfs"] = {"oid": oid, "size": len(content), "pointerSize": 100}
                    tree.append(entry)
                return self.answer(tree)
            case ["branch", branch]:
                start = json.loads(self.body).get("startingPoint") or "main"
                if branch in repository.refs:
                    return self.fail(409, "Conflict")
                if repository.files(start) is None:
                    return self.fail(404, "RevisionNotFound")
                repository.refs[branch] = repository.refs.get(start, start)
                return self.answer({}, 201)
            case ["preupload", revision]:
                if (files := repository.files(revision)) is None:
                    return self.fail(404, "RevisionNotFound")
                answers = []
                for file in json.loads(self.body)["files"]:
                    path = file["path"]
                    answers.append(
                        {
                            "path": path,
                            "uploadMode": "lfs" if is_large(path) else "regular",
                            "shouldIgnore": False,
                            "oid": None
                            if path not in files
                            else hashlib.sha256(files[path]).hexdigest()
                            if is_large(path)
                            else blob_id(files[path]),
                        }
                    )
                return self.answer({"files": answers})
            case ["commit", revision]:
                return self.take_commit(repo_id, repository, revision)
        return self.fail(404, "NotFound")

    def take_commit(self, repo_id, repository, revision):
        if (files := repository.files(revision)) is None:
            return self.fail(404, "RevisionNotFound")
        files, message = dict(files), None
        for line in self.body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            match entry["key"]:
                case "header":
                    message = value["summary"]
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    files[value["path"]] = self.hub.blobs[value["oid"]]
                case "deletedFile":
                    del files[value["path"]]
        answer = {"success": True}
        if self.query.get("create_pr") == ["1"]:
            number = 1 + sum(ref.startswith("refs/pr/") for ref in repository.refs)
            revision = f"refs/pr/{number}"
            answer["pullRequestUrl"] = f"{self.hub.url}/{repo_id}/discussions/{number}"
        answer["commitOid"] = repository.commit(revision, files, message)
        answer["commitUrl"] = f"{self.hub.url}/{repo_id}/commit/{answer['commitOid']}"
        return self.answer(answer)

    def resolve(self, repo_id, repository, revision, path):
        if (files := repository.files(revision)) is None:
            return self.fail(404, "RevisionNotFound")
        sha = repository.refs.get(revision, revision)
        if path not in files:
            return self.answer({}, 404, X_Error_Code="EntryNotFound", X_Repo_Commit=sha)
        content = files[path]
        large = {"X_Linked_ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X_Linked_Size": len(content)}
        return self.answer(
            content, ETag=f'"{blob_id(content)}"', X_Repo_Commit=sha, **(large if is_large(path) else {})
        )


@pytest.fixture
def hub():
    hub = Hub()
    thread = threading.Thread(target=hub.server.serve_forever, daemon=True)
    thread.start()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()
    thread.join()


@pytest.fixture
def hub_environment(hub, tmp_path):
    """Environment variables that make other processes use the loopback Hub, with its token."""
    return {
        **{
            name: value for name, value in os.environ.items() if name not in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
        },
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf_home"),
        "HF_TOKEN": TOKEN,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


@pytest.fixture
def client(hub, monkeypatch):
    """This process's huggingface_hub client, online and on the loopback Hub, without Xet's native upload."""
    constants = huggingface_hub.constants
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub.url)
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(transformers.utils.hub, "_hf_api", None)  # else the one of an earlier test, for another Hub
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    huggingface_hub.close_session()
    yield huggingface_hub.HfApi()
    huggingface_hub.close_session()


@pytest.fixture(scope="session")
def make_model_dir(tmp_path_factory, tiny_model):
    """Folder of a tiny model with a given head and the shared tokenizer."""

    @functools.cache
    def make(head):
        return tiny_model(tmp_path_factory.mktemp(head) / "model", getattr(mybert, head), num_hidden_layers=2)

    return make
