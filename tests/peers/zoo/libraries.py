#!/usr/bin/env python3
"""Has cairn-node check networks of torchvision and transformers as these libraries write them.

    libraries.py CAIRN_NODE [--form training|dynamo] [NAME ...]

Each is made with random weights, those of transformers with two small layers, exported with an open batch in TRAINING
form (opset 17) or by the newer exporter (opset 18), and goes through "cairn-node check". Prints a Markdown table and a
line for what was refused: "-" is what the exporter itself does not write. Fails if something was refused.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import warnings

import torch
import torchvision
import transformers as hf
from torch import nn

from users import silenced

CLASSIFIERS = ("alexnet", "vgg11_bn", "resnet18", "resnext50_32x4d", "squeezenet1_1", "densenet121", "shufflenet_v2_x0_5",
               "mobilenet_v2", "mobilenet_v3_small", "mnasnet0_5", "efficientnet_b0", "efficientnet_v2_s", "regnet_y_400mf",
               "convnext_tiny", "vit_b_32", "swin_t", "swin_v2_t", "maxvit_t")
SEGMENTERS = ("lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large", "fcn_resnet50")
WIDTHS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
TEXT = {**WIDTHS, "vocab_size": 99, "max_position_embeddings": 64}
PICTURE = {**WIDTHS, "image_size": 64, "patch_size": 16}
DECODER = {**TEXT, "use_cache": False}


class Segmenter(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.model = torchvision.models.get_model(name, weights=None, weights_backbone=None)

    def forward(self, x):
        return self.model(x)["out"]


class OfText(nn.Module):
    def __init__(self, kind, **config):
        super().__init__()
        self.model = kind(kind.config_class(**config))

    def forward(self, tokens):
        return self.model(input_ids=tokens, return_dict=False)[0]


class OfMaskedText(OfText):
    def forward(self, tokens, mask):
        return self.model(input_ids=tokens, attention_mask=mask, return_dict=False)[0]


class OfNextToken(OfText):
    """With a mask that its own code makes: that of transformers is not exported in TRAINING form."""

    def forward(self, tokens):
        mask = torch.full((1, 1, tokens.shape[1], tokens.shape[1]), -1e9).triu(1)
        return self.model(input_ids=tokens, attention_mask=mask, return_dict=False)[0]


class OfPictures(OfText):
    def forward(self, x):
        return self.model(pixel_values=x, return_dict=False)[0]


def picture(size):
    return (torch.randn(2, 3, size, size),)


TOKENS = torch.randint(0, 99, (2, 16))
MASKED = (TOKENS, torch.ones(2, 16, dtype=torch.long))
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 99, "n_positions": 64, "use_cache": False}
DISTIL = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "vocab_size": 99, "max_position_embeddings": 64}
STAGES = {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]}
NETWORKS = {
    **{name: (lambda name=name: torchvision.models.get_model(name), picture(224)) for name in CLASSIFIERS},
    **{name: (lambda name=name: Segmenter(name), picture(96)) for name in SEGMENTERS},
    "r3d_18": (lambda: torchvision.models.get_model("r3d_18"), (torch.randn(2, 3, 8, 56, 56),)),
    "Bert": (lambda: OfMaskedText(hf.BertForSequenceClassification, **TEXT), MASKED),
    "DistilBert": (lambda: OfMaskedText(hf.DistilBertForSequenceClassification, **DISTIL), MASKED),
    "Roberta": (lambda: OfMaskedText(hf.RobertaForSequenceClassification, **TEXT), MASKED),
    "Albert": (lambda: OfMaskedText(hf.AlbertForSequenceClassification, **TEXT, embedding_size=16), MASKED),
    "Electra": (lambda: OfMaskedText(hf.ElectraForSequenceClassification, **TEXT, embedding_size=16), MASKED),
    "GPT2": (lambda: OfText(hf.GPT2LMHeadModel, **GPT2), (TOKENS,)),
    "Llama": (lambda: OfText(hf.LlamaForCausalLM, **DECODER, num_key_value_heads=1), (TOKENS,)),
    "Qwen2": (lambda: OfText(hf.Qwen2ForCausalLM, **DECODER, num_key_value_heads=1), (TOKENS,)),
    "GPTNeoX": (lambda: OfText(hf.GPTNeoXForCausalLM, **DECODER), (TOKENS,)),
    "GPT2-masked": (lambda: OfNextToken(hf.GPT2LMHeadModel, **GPT2), (TOKENS,)),
    "Llama-masked": (lambda: OfNextToken(hf.LlamaForCausalLM, **DECODER, num_key_value_heads=1), (TOKENS,)),
    "Qwen2-masked": (lambda: OfNextToken(hf.Qwen2ForCausalLM, **DECODER, num_key_value_heads=1), (TOKENS,)),
    "GPTNeoX-masked": (lambda: OfNextToken(hf.GPTNeoXForCausalLM, **DECODER), (TOKENS,)),
    "ViT": (lambda: OfPictures(hf.ViTForImageClassification, **PICTURE), picture(64)),
    "DeiT": (lambda: OfPictures(hf.DeiTForImageClassification, **PICTURE), picture(64)),
    "ConvNext": (lambda: OfPictures(hf.ConvNextForImageClassification, **STAGES, drop_path_rate=0.1), picture(64)),
    "Segformer": (lambda: OfPictures(hf.SegformerForSemanticSegmentation, **STAGES, num_attention_heads=[1, 2, 2, 2],
                                     decoder_hidden_size=16), picture(64)),
    "MobileViT": (lambda: OfPictures(hf.MobileViTForImageClassification, image_size=64), picture(64)),
}


def export(network, samples, form, path):
    names = [f"input{i}" for i in range(len(samples))]
    if form == "training":
        torch.onnx.export(network, samples, path, dynamo=False, opset_version=17, do_constant_folding=False,
                          training=torch.onnx.TrainingMode.TRAINING, input_names=names,
                          dynamic_axes={name: {0: "batch"} for name in names})
    else:
        batch = torch.export.Dim("batch", min=2, max=64)
        torch.onnx.export(network, samples, path, dynamo=True, opset_version=18, external_data=False, verbose=False,
                          dynamic_shapes=tuple({0: batch} for _ in samples), input_names=names)


def check(node, name, form):
    """What the table says, and of a refusal the first line."""
    make, samples = NETWORKS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        try:
            with silenced():
                export(make().train(), samples, form, path)
        except Exception:  # the exporter raises whatever it meets
            return "-", None
        result = subprocess.run([node, "check", path], capture_output=True, text=True, timeout=300)
        if result.returncode == 0:
            return "yes", None
        return "refused", (result.stdout + result.stderr).splitlines()[0].removeprefix(path + ": ")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("node")
    parser.add_argument("--form", choices=("training", "dynamo"), action="append")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    forms = options.form or ["training", "dynamo"]
    refused = []
    warnings.filterwarnings("ignore")
    print(f"torchvision {torchvision.__version__}, transformers {hf.__version__}, PyTorch {torch.__version__}\n")
    print(f"| network | {' | '.join(forms)} |\n|---|{'---|' * len(forms)}")
    for name in options.names or NETWORKS:
        said = []
        for form in forms:
            word, line = check(options.node, name, form)
            said.append(word)
            if line:
                refused.append(f"{name}, {form}: {line}")
        print(f"| {name} | {' | '.join(said)} |", flush=True)
    print("\n".join(["", *refused]))
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
