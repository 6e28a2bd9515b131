"""Recipes, the host and OCI images, as root file systems that sandboxes start from."""

from paddock.sandbox.images.build_command_runner import BuildProgress, ImageBuildCancelled
from paddock.sandbox.images.build_jobs import ImageBuildJobs
from paddock.sandbox.images.built_images import ImageManifest
from paddock.sandbox.images.image_store import ImageInfo, ImagePruneResult, ImageStore
from paddock.sandbox.images.oci_images import RegistryCredentials
from paddock.sandbox.images.recipe import Recipe
from paddock.sandbox.images.recipe_library import default_recipe_directories

__all__ = [
    "BuildProgress",
    "ImageBuildCancelled",
    "ImageBuildJobs",
    "ImageInfo",
    "ImageManifest",
    "ImagePruneResult",
    "ImageStore",
    "Recipe",
    "RegistryCredentials",
    "default_recipe_directories",
]
