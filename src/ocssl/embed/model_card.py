"""The model card of an export: what the encoder is, what it has seen, how healthy it was, and how to load it."""

from __future__ import annotations

from pathlib import Path

from ocssl._core.version import __version__
from ocssl._files.toml import read_toml
from ocssl.data.decode.decoder import scaled_side
from ocssl.embed.image_encoder import ImageEncoder
from ocssl.errors import OcsslError, printable
from ocssl.runs.folder import SETTINGS, finished

LOADING = {
    "safetensors": 'import ocssl\nencoder = ocssl.load_encoder("FOLDER")\nfeatures = encoder(["image.jpg"])',
    "onnx": 'import onnxruntime\nsession = onnxruntime.InferenceSession("FILE")\n'
    'images = np.stack([read("image.jpg")])\n'
    '(features,) = session.run(["features"], {"images": images})  # uint8 [batch, 3, SIZE, SIZE]',
    "timm": 'import timm\nmodel = timm.create_model("local-dir:FOLDER", pretrained=True, num_classes=0).eval()\n'
    "features = model(pixels)  # normalised float32 [batch, 3, SIZE, SIZE]",
    "hf": 'from transformers import AutoModel\nmodel = AutoModel.from_pretrained("FOLDER"MORE).eval()\n'
    "features = HOW  # pixels: normalised float32 [batch, 3, SIZE, SIZE]",
}
LIBRARIES = {"safetensors": "ocssl", "onnx": "onnx", "timm": "timm", "hf": "transformers"}
NORMALISE = """\
import torch
mean, std = (torch.tensor(three).view(3, 1, 1) for three in (MEAN, STD))
pixels = (torch.from_numpy(np.stack([read("image.jpg")])) / 255 - mean) / std
"""
READING = """\
import numpy as np
from PIL import Image, ImageOps

def read(path):  # uint8 [3, SIZE, SIZE]
    image = Image.open(path)
    image.draft(None, (LEAST, LEAST))  # a large JPEG is decoded at a half, a quarter or an eighth
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16 bits
        image = Image.fromarray(np.uint8(np.asarray(image) / 257 + 0.5))
    if image.has_transparency_data:
        above, image = image.convert("RGBA"), Image.new("RGB", image.size, "white")
        image.paste(above, mask=above)
    BOX
    image = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR, box)
    return np.asarray(image).transpose(2, 0, 1)

"""
BOXES = {
    "squash": "box = (0, 0, *image.size)",
    "crop": "side = min(image.size)\n"
    "    left, top = (image.width - side) // 2, (image.height - side) // 2\n"
    "    box = (left, top, left + side, top + side)",
}
POOLED = "model(pixel_values=pixels).pooler_output.flatten(1)"


def model_card(encoder: ImageEncoder, kind: str, licence: str = "", file: str = "model.onnx") -> str:
    """The card as Markdown, with the front matter that hubs read. `file`: the name of the ONNX file."""
    seen, health = _history(encoder)
    facts = {
        "architecture": ", ".join(f"{key} {value}" for key, value in encoder.architecture.items()),
        "features": f"{encoder.dimension} numbers",
        "method": encoder.about.get("method", "unknown"),
        "data": seen,
        "images seen": encoder.about.get("images", "unknown"),
        "optimizer steps": encoder.about.get("steps", "unknown"),
        "health": health,
        "fingerprint": encoder.fingerprint,
        "made by": f"ocssl {__version__}",
    }
    means = encoder.preprocessing
    stated = _line(licence) if licence else "Not stated: ask whoever trained it, also about the data."
    return "\n".join(
        [
            "---",
            f"license: {_line(licence or 'unknown')}",
            f"library_name: {LIBRARIES[kind]}",
            "pipeline_tag: image-feature-extraction",
            "tags: [self-supervised-learning, continual-learning]",
            "---",
            "",
            "# Image encoder trained by online continual self-supervised learning",
            "",
            "| what | value |",
            "| --- | --- |",
            *(f"| {key} | {_line(value)} |" for key, value in facts.items()),
            "",
            "## Preprocessing",
            "",
            _steps(encoder),
            "",
            f"Mean {means['mean']}, standard deviation {means['std']}, of colours in [0, 1].",
            "",
            "## Use",
            "",
            "```python",
            _code(encoder, kind, file),
            "```",
            "",
            "Vectors of encoders with different fingerprints must not be compared.",
            "",
            "## Licence",
            "",
            stated,
            "",
        ]
    )


def _code(encoder: ImageEncoder, kind: str, file: str) -> str:
    """Python that loads the export and gives the features of an image, read as a run reads it."""
    reading = {"safetensors": "", "onnx": READING}.get(kind, READING + NORMALISE)
    size, means = encoder.image_size, encoder.preprocessing
    values = {
        "BOX": BOXES[encoder.fit],
        "SIZE": size,
        "LEAST": scaled_side(size),
        "FILE": file,
        "MORE": ", add_pooling_layer=False" if _lacks_pooler(encoder) else "",
        "HOW": _features_of(encoder),
        "MEAN": means["mean"],
        "STD": means["std"],
    }
    code = reading + LOADING[kind]
    for name, value in values.items():
        code = code.replace(name, str(value))
    return code


def _features_of(encoder: ImageEncoder) -> str:
    pool = encoder.architecture.get("pool", "cls")
    if _lacks_pooler(encoder):
        hidden = "model(pixel_values=pixels).last_hidden_state"
        return f"{hidden}[:, 0]" if pool == "cls" else f"{hidden}[:, 1:].mean(1)"
    return POOLED


def _lacks_pooler(encoder: ImageEncoder) -> bool:
    """Whether transformers would add a layer that features do not pass through, with random weights."""
    model = getattr(encoder.network, "model", None)
    dropped = model is not None and getattr(model, "pooler", model) is None
    return dropped or encoder.architecture.get("name") == "vit"


def _steps(encoder: ImageEncoder) -> str:
    size = encoder.image_size
    how = "the centre square is resized" if encoder.fit == "crop" else "both sides are resized"
    return (
        f"Images are turned upright as EXIF says, laid over white where transparent, and made RGB; {how} to {size} x "
        f"{size} px (bilinear with antialias, as Pillow does), then normalised."
    )


def _history(encoder: ImageEncoder) -> tuple[str, str]:
    """What the run was trained on, and how it ended."""
    folder = Path(str(encoder.about.get("folder", "")))
    data, health = "unknown", "not measured"
    try:
        if (folder / SETTINGS).is_file():
            data = str(read_toml(folder / SETTINGS).get("benchmark", "unknown"))
            if (metrics := finished(folder)) is not None:
                accuracy = metrics.get("final_accuracy")
                health = "collapse was noticed" if metrics.get("collapsed") else "no collapse was noticed"
                health += "" if accuracy is None else f", probe accuracy {accuracy:.1f} %"
    except (OcsslError, OSError, ValueError):
        pass
    return data, health


def _line(value: object) -> str:
    return printable(str(value)).replace("|", "\\|")
