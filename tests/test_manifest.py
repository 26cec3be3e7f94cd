"""What a manifest says about the code that ran."""

import subprocess

import pytest

from covrag_lite.runs import manifest

WHO = ("-c", "user.name=n", "-c", "user.email=e@example.org")


def git(folder, *words):
    subprocess.run(["git", "-C", str(folder), *WHO, *words], check=True, capture_output=True)


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository with one commit, in place of this project's."""
    module = tmp_path / "covrag_lite" / "method.py"
    module.parent.mkdir()
    module.write_text("")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    monkeypatch.setattr(manifest, "ROOT", tmp_path)
    monkeypatch.delenv("COVRAG_COMMIT", raising=False)
    return tmp_path


def test_the_commit_is_that_of_the_clone(clone):
    head = clone / ".git" / "refs" / "heads"
    (branch,) = head.iterdir()
    assert manifest.find_commit()["commit"] == branch.read_text().strip()


def test_committed_code_is_not_modified(clone):
    assert manifest.find_commit()["modified"] is False


def test_a_changed_module_is_a_modification(clone):
    (clone / "covrag_lite" / "method.py").write_text("changed = True")
    assert manifest.find_commit()["modified"] is True


def test_a_new_result_is_no_modification_of_the_code(clone):
    (clone / "results.csv").write_text("")
    assert manifest.find_commit()["modified"] is False


def test_without_a_repository_the_commit_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(manifest, "ROOT", tmp_path)
    monkeypatch.delenv("COVRAG_COMMIT", raising=False)
    assert manifest.find_commit() == {"commit": "unknown", "modified": None}


def test_a_copy_without_history_may_name_its_commit(clone, monkeypatch):
    monkeypatch.setenv("COVRAG_COMMIT", "abc123")
    assert manifest.find_commit() == {"commit": "abc123", "modified": None}
