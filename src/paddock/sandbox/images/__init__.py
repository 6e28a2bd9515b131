"""Recipes, the host and OCI images, as root file systems that boxes start from."""

from paddock.sandbox.images.console import BuildCancelled, Progress
from paddock.sandbox.images.jobs import BuildJobs
from paddock.sandbox.images.library import default_recipe_directories
from paddock.sandbox.images.oci import Credentials
from paddock.sandbox.images.recipe import Recipe
from paddock.sandbox.images.shelf import Manifest
from paddock.sandbox.images.store import ImageInfo, ImageStore, Pruned

__all__ = [
    "BuildCancelled",
    "BuildJobs",
    "Credentials",
    "ImageInfo",
    "ImageStore",
    "Manifest",
    "Progress",
    "Pruned",
    "Recipe",
    "default_recipe_directories",
]
