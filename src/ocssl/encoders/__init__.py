"""Encoders: networks from images to features. Built in, of the libraries timm and transformers, or your own.

A new one is a class under `@ENCODERS.add("name")` that takes the image size; options are keyword-only arguments.
"""

from ocssl.encoders.encoder import ENCODERS, STAGE, Preprocessing, check_module, feature_dimension, stages
from ocssl.encoders.hf import HuggingFace
from ocssl.encoders.resnet import ResNet, ResNet10, ResNet18
from ocssl.encoders.timm_models import Timm
from ocssl.encoders.vit import ViT
from ocssl.encoders.weights import convert_weights, load_weights, preprocessing_of

__all__ = [
    "ENCODERS",
    "STAGE",
    "HuggingFace",
    "Preprocessing",
    "ResNet",
    "ResNet10",
    "ResNet18",
    "Timm",
    "ViT",
    "check_module",
    "convert_weights",
    "feature_dimension",
    "load_weights",
    "preprocessing_of",
    "stages",
]
