import json

from covrag_lite.config import Config
from covrag_lite.runs.manifest import build_manifest, save_manifest


def test_a_manifest_names_code_data_and_machine(questions, passages, scripted, tmp_path):
    made = build_manifest(Config(), scripted, 1.23, questions=questions, passages=passages)
    assert {"commit", "versions", "model_sha256", "hardware", "wall_seconds", "peak_memory_gb"} <= set(made)
    assert {name: part["n"] for name, part in made["data"].items()} == {"questions": 4, "passages": 6}
    assert made["parameters"]["seed"] == 1
    save_manifest(tmp_path / "manifest.json", made)
    assert json.loads((tmp_path / "manifest.json").read_text())["model_sha256"] == "scripted"
