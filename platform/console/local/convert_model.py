"""Turn the packed weights of SmolLM2-135M-Instruct into a directory that vLLM serves. Runs inside .venv-engine.

Usage: python convert_model.py WEIGHTS.gguf TARGET, where TARGET is an empty directory.
"""

import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # everything needed is in the one file
os.environ["TOKENIZERS_PARALLELISM"] = "false"

END_OF_TURN = "<|im_end|>"


def convert(weights: Path, target: Path) -> None:
    """Write bf16 safetensors, the tokenizer with its chat template and the generation settings into `target`."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    source = {"pretrained_model_name_or_path": str(weights.parent), "gguf_file": weights.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    if not tokenizer.chat_template:
        raise SystemExit("the weights carry no chat template")
    unpacked = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(**source, quantization_config=unpacked, dtype="bfloat16")
    end = tokenizer.convert_tokens_to_ids(END_OF_TURN)
    tokens = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": end, "pad_token_id": end}
    # What its makers sample it with; the engine takes them where a request says nothing. At 1 so small a model rambles.
    model.generation_config = GenerationConfig(do_sample=True, temperature=0.2, top_p=0.9, **tokens)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
