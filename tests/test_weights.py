"""A GGUF file is converted once, whatever it is called."""

from types import SimpleNamespace

import pytest
import transformers

from covrag_lite.engine import weights


@pytest.fixture
def converted(tmp_path, monkeypatch):
    """The names of the files that were converted, by a transformers that writes folders alone."""
    names = []

    def read(folder, gguf_file, **_):
        names.append(gguf_file)
        return SimpleNamespace(save_pretrained=lambda place: place.mkdir(exist_ok=True))

    monkeypatch.setattr(weights, "CACHE", tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", read)
    tokenizer = SimpleNamespace(save_pretrained=lambda place: None)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *_, **__: tokenizer)
    return names


def test_the_same_file_under_another_name_is_not_converted_again(tmp_path, converted):
    file, link = tmp_path / "q4.gguf", tmp_path / "Some-Model.gguf"
    file.write_text("weights")
    link.symlink_to(file)
    assert weights.hash_weights(file) == weights.hash_weights(link)
    made = [weights.convert_gguf(one, weights.hash_weights(one)) for one in (link, file, link)]
    assert converted == ["Some-Model.gguf"] and len(set(made)) == 1
    file.write_text("other weights")
    assert weights.convert_gguf(file, weights.hash_weights(file)) not in made


def test_a_folder_that_another_process_is_still_writing_is_not_taken(tmp_path, converted):
    (weights.CACHE / "q4-0123.77").mkdir()
    made = weights.convert_gguf(tmp_path / "q4.gguf", "0123")
    assert converted == ["q4.gguf"] and made == weights.CACHE / "q4-0123"
