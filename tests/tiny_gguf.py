"""A GGUF file of a tiny Llama, as llama.cpp's converter writes it."""

import json

import gguf
from transformers import AutoConfig

# Our names of a layer's tensors -> those of GGUF.
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OTHERS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def interleave(weight, n_heads):
    """Reorder the rows of each head as GGUF expects them for rotary positions."""
    n_rows, n_columns = weight.shape
    halves = weight.reshape(n_heads, 2, n_rows // n_heads // 2, n_columns)
    return halves.swapaxes(1, 2).reshape(n_rows, n_columns)


def rename(name):
    """Return the name of a tensor in GGUF."""
    stem = name.removesuffix(".weight")
    if stem in OTHERS:
        return f"{OTHERS[stem]}.weight"
    number, _, part = stem.removeprefix("model.layers.").partition(".")
    return f"blk.{number}.{LAYER[part]}.weight"


def write_gguf(folder, file):
    """Write the Llama in a folder as a GGUF file with 32-bit weights, and return the file."""
    from safetensors.numpy import load_file

    config = AutoConfig.from_pretrained(folder)
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name("tiny")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    add_tokenizer(writer, json.loads((folder / "tokenizer.json").read_text())["model"])
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weight in load_file(folder / "model.safetensors").items():
        projection = name.split(".")[-2]
        if projection in heads:
            weight = interleave(weight, heads[projection])
        writer.add_tensor(rename(name), weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def add_tokenizer(writer, bpe):
    """Add a byte-level tokenizer, whose special token has the number 0."""
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    types = [gguf.TokenType.NORMAL] * len(tokens)
    types[0] = gguf.TokenType.CONTROL
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in bpe["merges"]])
    for add in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_pad_token_id):
        add(0)
    writer.add_add_bos_token(False)
