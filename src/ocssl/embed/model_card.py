"""The model card of an export: what the encoder is, what it has seen, how healthy it was, and how to load it."""

from __future__ import annotations

from pathlib import Path

from ocssl._core.version import __version__
from ocssl._files.toml import read_toml
from ocssl.embed.image_encoder import ImageEncoder
from ocssl.errors import OcsslError, printable
from ocssl.runs.folder import SETTINGS, finished

LOADING = {
    "safetensors": 'import ocssl\nencoder = ocssl.load_encoder("FOLDER")\nfeatures = encoder(["image.jpg"])',
    "onnx": 'import onnxruntime\nsession = onnxruntime.InferenceSession("model.onnx")\n'
    '(features,) = session.run(["features"], {"images": images})  # uint8 [batch, 3, SIZE, SIZE]',
    "timm": 'import timm\nmodel = timm.create_model("local-dir:FOLDER", pretrained=True, num_classes=0).eval()\n'
    "features = model(pixels)  # normalised float32 [batch, 3, SIZE, SIZE]",
    "hf": 'from transformers import AutoModel\nmodel = AutoModel.from_pretrained("FOLDER"MORE).eval()\n'
    "features = HOW  # pixels: normalised float32 [batch, 3, SIZE, SIZE]",
}
LIBRARIES = {"safetensors": "ocssl", "onnx": "onnx", "timm": "timm", "hf": "transformers"}
POOLED = "model(pixel_values=pixels).pooler_output.flatten(1)"


def model_card(encoder: ImageEncoder, kind: str, licence: str = "") -> str:
    """The card as Markdown, with the front matter that hubs read."""
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
            LOADING[kind]
            .replace("SIZE", str(encoder.image_size))
            .replace("MORE", ", add_pooling_layer=False" if _lacks_pooler(encoder) else "")
            .replace("HOW", _features_of(encoder)),
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
    how = "the centre square is cut out, then resized" if encoder.fit == "crop" else "both sides are resized"
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
